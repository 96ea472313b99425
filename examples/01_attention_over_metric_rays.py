"""Camera attention over a drive: from poses and a lens to attention that knows metres.

Seven views, two metres apart, drive straight ahead. The operator is built once from geometry and then
serves any queries, keys and values.
"""

import torch

import merope

NUM_VIEWS, ROWS, COLS = 7, 3, 5

# Camera-to-world matrices in metres, OpenCV axes: the camera looks along its z axis, and drives there.
T_world_cam = torch.eye(4, dtype=torch.float64).repeat(NUM_VIEWS, 1, 1)
T_world_cam[:, 2, 3] = 2.0 * torch.arange(NUM_VIEWS)
poses = merope.Poses.from_matrices(T_world_cam)

# One ray per token: the centre of each patch of a 48 x 80 image, cut into 3 x 5 patches.
camera = merope.Pinhole.from_fov(fov_x_deg=90, height=48, width=80)
dirs_cam, valid = merope.TokenGrid(rows=ROWS, cols=COLS).token_rays(camera)
rays = merope.ViewRays.from_poses(
    poses.T_world_cam[None], dirs_cam.expand(1, NUM_VIEWS, -1, -1), grid=(ROWS, COLS)
)

operator = merope.MeRoPE(head_dim=128).operator(rays)
query, key, value = torch.randn(3, 1, 2, NUM_VIEWS * ROWS * COLS, 128)
out = merope.camera_attention(query, key, value, operator)
print(f"{poses}: {out.shape[2]} tokens attended, output {list(out.shape)}")

# The transform between any two tokens is orthogonal, however far apart their cameras are.
pairwise = operator.dense()[0]  # [query, key, chan, chan]
error = (pairwise.mT @ pairwise - torch.eye(128)).abs().max()
print(f"largest entry of U^T U - I over all {pairwise.shape[0] ** 2} pairs: {error:.1e}")
assert error < 1e-5
