"""Score a recovered path against the commanded one, and see what the usual metrics cannot.

The estimate is the command with a little noise, then the same path driven backwards. The second scores a
perfect tr% and AUC by the printed equations; the flag and the oriented AUC tell.
"""

import torch

import merope
from merope.evaluation.scoring import evaluate_clip
from merope.geometry.rotations import rotvec_to_matrix

NUM_FRAMES = 25

# A gentle left turn: 1 m and 1 degree per frame, camera axes (x right, y down, z forward).
yaw = -torch.deg2rad(torch.arange(NUM_FRAMES, dtype=torch.float64))
steps = torch.stack([yaw.sin(), torch.zeros(NUM_FRAMES, dtype=torch.float64), yaw.cos()], dim=-1)
turn = torch.stack([torch.zeros(NUM_FRAMES), yaw, torch.zeros(NUM_FRAMES)], dim=-1).to(torch.float64)
commanded = merope.Poses(R_world_cam=rotvec_to_matrix(turn), center_world=steps.cumsum(0) - steps[0])

noise = 0.05 * torch.randn(NUM_FRAMES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
noisy = merope.Poses(R_world_cam=commanded.R_world_cam, center_world=commanded.center_world + noise)
backwards = merope.Poses(R_world_cam=commanded.R_world_cam, center_world=-commanded.center_world)

for name, estimated in (("noisy", noisy), ("backwards", backwards)):
    result = evaluate_clip(commanded, estimated, clip_id=name)
    values = result.all.values
    print(
        f"{name:<10} tr {values['tr_percent']:5.2f} %   AUC@3 {values['auc_3']:6.2f}   "
        f"oriented {values['auc_3_oriented']:6.2f}   CamMC {values['cammc']:6.2f}   flags {sorted(result.flags)}"
    )

assert "reversed" in evaluate_clip(commanded, backwards).flags
