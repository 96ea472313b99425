"""Trajectory file formats, a module for each family; `FORMATS` holds them all by name.

A format is a `PoseFormat`: numbers in, numbers out. Conventions are settled in `merope.data.poses.files`.
"""

from merope.data.poses.formats import (
    ac3d,
    argoverse2,
    aria,
    arrays,
    colmap,
    comma2k19,
    euroc,
    kitti360,
    merope_json,
    motionctrl,
    nerfstudio,
    nuscenes,
    panshot,
    rds_hq,
    realestate10k,
    recammaster,
    text_rows,
    tri_dgp,
)
from merope.data.poses.formats.raw import PoseFormat, RawPoses

__all__ = ["FORMATS", "PoseFormat", "RawPoses"]

FORMATS: dict[str, PoseFormat] = {
    **text_rows.FORMATS,
    **arrays.FORMATS,
    **merope_json.FORMATS,
    **kitti360.FORMATS,
    **euroc.FORMATS,
    **realestate10k.FORMATS,
    **panshot.FORMATS,
    **comma2k19.FORMATS,
    **rds_hq.FORMATS,
    **aria.FORMATS,
    **argoverse2.FORMATS,
    **tri_dgp.FORMATS,
    **colmap.FORMATS,
    **nerfstudio.FORMATS,
    **recammaster.FORMATS,
    **motionctrl.FORMATS,
    **ac3d.FORMATS,
    **nuscenes.FORMATS,
}
