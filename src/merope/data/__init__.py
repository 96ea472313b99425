"""Pose files, calibrations, videos, data sets of clips, and what is made of them for training: docs/data.md.

What pose files need is exported here; everything else is imported from its module (the map is in docs/architecture.md).
"""

from merope.data.poses.files import PoseFile, load_pose_file, read_poses, write_poses
from merope.data.poses.table import PoseFileError, ReadOptions

__all__ = ["PoseFile", "PoseFileError", "ReadOptions", "load_pose_file", "read_poses", "write_poses"]
