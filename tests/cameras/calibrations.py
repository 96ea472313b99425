"""Real calibrations by short names; tests skip where their files are missing."""

from typing import Any

from merope.cameras import CameraModel
from merope.data.lenses.calibration_files import read_calibration
from tests.support.shared import shared_file

FOLDER = "data/fisheye"
CALIB = f"{FOLDER}/calib"
RDS_HQ = "data/rds_hq/ftheta"

# Names of the files of rays, the calibration that each was made from, and what its reader has to be told.
LENSES_OF_RAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "vi_car_cam0_pinhole": (f"{CALIB}/vi_car_cam0_pinhole.yaml", {}),
    "vi_car_cam0_mei": (f"{CALIB}/vi_car_cam0_mei.yaml", {}),
    "mynteye_left_mei": (f"{CALIB}/mynteye_left_mei.yaml", {}),
    "tumvi_cam0_kb4": (f"{CALIB}/tumvi_kb4.yaml", {"camera": "cam0"}),
    "tumvi_cam1_kb4": (f"{CALIB}/tumvi_kb4.yaml", {"camera": "cam1"}),
    "tumvi_cam0_ds": (f"{CALIB}/tumvi_ds.json", {"camera": "cam0"}),
    "tumvi_cam1_ds": (f"{CALIB}/tumvi_ds.json", {"camera": "cam1"}),
    "tumvi_cam0_eucm": (f"{CALIB}/tumvi_eucm.json", {"camera": "cam0"}),
    "tumvi_cam1_eucm": (f"{CALIB}/tumvi_eucm.json", {"camera": "cam1"}),
    "surround_view_front": (f"{FOLDER}/surround_view_front.yaml", {"format": "opencv-fisheye"}),
    "woodscape_front": (f"{FOLDER}/woodscape_front.json", {}),
    "pyocam_fisheye_1": (f"{FOLDER}/pyocam_fisheye_1.json", {"height": 778, "width": 1032}),
    "rds_hq_ftheta_front_wide_120fov": (f"{RDS_HQ}_front_wide_120fov.npy", {}),
    "rds_hq_ftheta_cross_left_120fov": (f"{RDS_HQ}_cross_left_120fov.npy", {}),
    "rds_hq_ftheta_front_tele_30fov": (f"{RDS_HQ}_front_tele_30fov.npy", {}),
}


def lens_of_rays(name: str) -> CameraModel:
    path, options = LENSES_OF_RAYS[name]
    return read_calibration(shared_file(path), **options)


def aria(camera: str) -> CameraModel:
    return read_calibration(shared_file(f"{FOLDER}/aria_adt/calibration.json"), camera=camera)
