"""Author camera paths: a move by name, a path through keyframes, the turns of a drive, and a zoom that follows a dolly."""

import tempfile
from pathlib import Path

import torch

from merope import Pinhole
from merope.data import read_poses, write_poses
from merope.geometry.keyframes import keyframe_path
from merope.geometry.presets import Crane, DollyZoom, LaneChange
from merope.geometry.turns import turn_variant

# In metres and degrees, in the world of the first camera: x right, y down, z forward.
drive = LaneChange(distance=40.0, offset=3.5, side="left").poses(num_frames=49, fps=12.0)
print(f"lane change  {drive.path_length:5.1f} m, ends {-float(drive.center_world[-1, 0]):.1f} m to the left")

# The paper's augmentation: the first 9 frames stay, then the drive bends to either side. Up is against y.
for side in ("left", "right"):
    turned = turn_variant(drive, side=side, start=8, up_world=(0, -1, 0))
    assert torch.equal(turned.T_world_cam[:9], drive.T_world_cam[:9])
    print(
        f"turned {side:<5} {turned.path_length:5.1f} m, ends at {[round(x, 1) for x in turned.center_world[-1].tolist()]}"
    )

# Three poses of a crane shot become 49 frames at a constant speed.
few = Crane(height=4.0, forward=3.0).poses(num_frames=3, fps=1.0)
shot = keyframe_path(few, num_frames=49, fps=12.0)
print(
    f"keyframes    {shot.path_length:5.1f} m, steps of {shot.step_lengths.min():.4f} to {shot.step_lengths.max():.4f} m"
)

# A dolly zoom changes the lens with the distance, so that the subject 10 m ahead keeps its size.
dolly = DollyZoom(subject_distance=10.0, travel=6.0)
approach = dolly.poses(num_frames=49, fps=12.0)
lens = Pinhole.from_fov(fov_x_deg=60.0, height=288, width=512).zoomed(dolly.focal_factors(num_frames=49))
ends_world = torch.tensor([[-1.0, 0.0, 10.0], [1.0, 0.0, 10.0]], dtype=torch.float64)
ends_cam = ends_world - approach.center_world[:, None]
pixels, _ = lens.project(ends_cam)
widths = pixels[:, 1, 0] - pixels[:, 0, 0]
print(f"dolly zoom   a subject 2 m wide has {widths.min():.3f} to {widths.max():.3f} pixels in every frame")

with tempfile.TemporaryDirectory() as folder:
    # `merope demo --trajectory` and `merope generate` drive along this file.
    path = Path(folder) / "drive.json"
    write_poses(path, drive, format="merope")
    assert torch.equal(read_poses(path, format="merope").T_world_cam, drive.T_world_cam)
