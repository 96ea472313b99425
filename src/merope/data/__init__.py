"""Trajectory files, video files and clips."""

from merope.data.pose_files import PoseFile, load_pose_file, read_poses, write_poses
from merope.data.pose_table import PoseFileError, ReadOptions

__all__ = ["PoseFile", "PoseFileError", "ReadOptions", "load_pose_file", "read_poses", "write_poses"]
