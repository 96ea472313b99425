"""Trajectory file formats, a module for each family; `FORMATS` holds them all by name.

A format is a `PoseFormat`: numbers in, numbers out. Conventions are settled in `merope.data.pose_files`.
"""

from merope.data.pose_formats import arrays, merope_json, text_rows
from merope.data.pose_formats.raw import PoseFormat, RawPoses

__all__ = ["FORMATS", "PoseFormat", "RawPoses"]

FORMATS: dict[str, PoseFormat] = {
    **text_rows.FORMATS,
    **arrays.FORMATS,
    **merope_json.FORMATS,
}
