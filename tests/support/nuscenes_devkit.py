"""What the official nuScenes devkit makes of a data set; runs in an environment of its own, since it needs numpy below 2.

``python nuscenes_devkit.py ROOT VERSION`` prints, for every image of a camera in the order of time, file, stamp, matrix and
intrinsics as JSON.
"""

import json
import sys

from nuscenes.nuscenes import NuScenes
from nuscenes.utils.geometry_utils import transform_matrix
from pyquaternion import Quaternion


def camera_to_world(devkit, image):
    """4 x 4 matrix of an image's camera, by the devkit's own geometry."""
    product = None
    for table, token in (
        ("ego_pose", image["ego_pose_token"]),
        ("calibrated_sensor", image["calibrated_sensor_token"]),
    ):
        row = devkit.get(table, token)
        matrix = transform_matrix(row["translation"], Quaternion(row["rotation"]))
        product = matrix if product is None else product @ matrix
    return product


def main(root, version):
    devkit = NuScenes(version=version, dataroot=root, verbose=False)
    images = sorted(
        (row for row in devkit.sample_data if row["sensor_modality"] == "camera"),
        key=lambda row: row["timestamp"],
    )
    json.dump(
        [
            {
                "file": image["filename"],
                "scene": devkit.get("scene", devkit.get("sample", image["sample_token"])["scene_token"])[
                    "name"
                ],
                "timestamp": image["timestamp"],
                "T_world_cam": camera_to_world(devkit, image).tolist(),
                "intrinsics": devkit.get("calibrated_sensor", image["calibrated_sensor_token"])[
                    "camera_intrinsic"
                ],
            }
            for image in images
        ],
        sys.stdout,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
