"""Small folders of nuScenes' tables: a car that drives in a circle, a camera and a lidar on it, pictures of 36 x 64."""

import json
import math

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 36, 64
INTRINSICS = [[50.5, 0.0, 32.25], [0.0, 50.25, 17.5], [0.0, 0.0, 1.0]]
# Half-turns about no axis of symmetry, so that another order of the components is another rotation.
CAMERA_WXYZ = (0.5, -0.5, 0.5, -0.5)
CAMERA_CENTER_EGO = (1.7, 0.02, 1.5)


def ego(time):
    """Centre and wxyz rotation of the car at a time in seconds: 10 m/s on a circle of 50 m, far from the origin, z up."""
    heading = time / 5
    tilt = 0.01
    w, x, y, z = math.cos(heading / 2), 0.0, 0.0, math.sin(heading / 2)
    tw, tx = math.cos(tilt / 2), math.sin(tilt / 2)
    rotation = (w * tw - x * tx, w * tx + x * tw, y * tw + z * tx, z * tw - y * tx)
    return (1000 + 50 * math.sin(heading), 2000 - 50 * math.cos(heading), 0.0), rotation


def image_times(count):
    """Stamps in microseconds: the lidar's 20 turns a second trigger 12 images, so 0.05 and 0.1 s alternate; a key frame
    every sixth."""
    turns = [math.ceil(number * 20 / 12 - 1e-9) for number in range(count)]
    return [1_532_402_927_612_460 + 50_000 * turn for turn in turns]


def write_nuscenes_root(root, *, count=24, dropped=(), scenes=("scene-0061",), leave_out=(), pictures=True):
    """A data set with v1.0-mini below ``root``; ``dropped`` images of each scene and whole tables are left out."""
    tables = {
        "sensor": [
            {"token": "s-cam", "channel": "CAM_FRONT", "modality": "camera"},
            {"token": "s-lidar", "channel": "LIDAR_TOP", "modality": "lidar"},
        ],
        "calibrated_sensor": [
            _calibration("c-lidar", "s-lidar", (0.9, 0.0, 1.8), (1.0, 0.0, 0.0, 0.0), []),
            _calibration("c-cam", "s-cam", CAMERA_CENTER_EGO, CAMERA_WXYZ, INTRINSICS),
        ],
        "scene": [
            {"token": f"t-{name}", "name": name, "description": f"Turn left, {name}"} for name in scenes
        ],
        **{name: [] for name in ("sample", "sample_data", "ego_pose")},
    }
    start = image_times(1)[0]
    for scene in scenes:
        for number, stamp in enumerate(image_times(count)):
            sample = f"p-{scene}-{number // 6}"
            if number % 6 == 0:
                tables["sample"].append({"token": sample, "timestamp": stamp, "scene_token": f"t-{scene}"})
                # The lidar's own stamp is 35 ms later, and so is its ego pose.
                _add(
                    tables,
                    f"l-{scene}-{number}",
                    sample,
                    "c-lidar",
                    stamp + 35_000,
                    start,
                    True,
                    "LIDAR_TOP",
                    (0, 0),
                )
            if number not in dropped:
                _add(
                    tables,
                    f"i-{scene}-{number}",
                    sample,
                    "c-cam",
                    stamp,
                    start,
                    number % 6 == 0,
                    "CAM_FRONT",
                    (HEIGHT, WIDTH),
                )
    folder = root / "v1.0-mini"
    folder.mkdir(parents=True)
    # Tables have no order that means anything.
    tables["sample_data"].reverse()
    for name, rows in tables.items():
        if name not in leave_out:
            (folder / f"{name}.json").write_text(json.dumps(rows, indent=1))
    if pictures:
        for row in tables["sample_data"]:
            if "CAM" in row["filename"]:
                path = root / row["filename"]
                path.parent.mkdir(parents=True, exist_ok=True)
                grey = (row["timestamp"] - start) // 50_000 % 256
                Image.fromarray(np.full((HEIGHT, WIDTH, 3), grey, np.uint8)).save(path, quality=95)
    return folder


def _calibration(token, sensor, translation, rotation, intrinsics):
    return {
        "token": token,
        "sensor_token": sensor,
        "translation": list(translation),
        "rotation": list(rotation),
        "camera_intrinsic": intrinsics,
    }


def _add(tables, token, sample, calibration, stamp, start, is_key_frame, channel, size):
    center, rotation = ego((stamp - start) / 1e6)
    tables["ego_pose"].append(
        {"token": f"e-{token}", "timestamp": stamp, "translation": list(center), "rotation": list(rotation)}
    )
    tables["sample_data"].append(
        {
            "token": token,
            "sample_token": sample,
            "ego_pose_token": f"e-{token}",
            "calibrated_sensor_token": calibration,
            "timestamp": stamp,
            "is_key_frame": is_key_frame,
            "height": size[0],
            "width": size[1],
            "filename": f"{'samples' if is_key_frame else 'sweeps'}/{channel}/{token}.jpg",
        }
    )
