"""Camera branches on diffusers' Wan transformer: attach, command a drive, save, load, detach.

The transformer is the real class at a small size; with the sizes of a released checkpoint, or from
``WanTransformer3DModel.from_pretrained``, the calls are the same.
"""

import tempfile
from pathlib import Path

import torch
from diffusers import WanTransformer3DModel

import merope
from merope.adapters import attach, load_adapter, save_adapter
from merope.cameras import latent_poses
from merope.worlds import drive

NUM_FRAMES, ROWS, COLS = 17, 3, 5
SIZES = {
    "num_layers": 4,
    "num_attention_heads": 2,
    "attention_head_dim": 64,
    "in_channels": 8,
    "out_channels": 8,
    "text_dim": 8,
    "freq_dim": 32,
    "ffn_dim": 128,
}
torch.manual_seed(0)
base = WanTransformer3DModel(**SIZES).eval()

# 17 frames are 5 latent frames; each has a pose and, with patches of 2 x 2 latent cells, 3 x 5 tokens.
poses = latent_poses(drive("curve", seed=1, num_frames=NUM_FRAMES, fps=10).rebase_to_first())
camera = merope.Pinhole.from_fov(fov_x_deg=90, height=48, width=80)
dirs_cam, valid = merope.TokenGrid(rows=ROWS, cols=COLS).token_rays(camera)
rays = merope.ViewRays.from_poses(
    poses.T_world_cam[None], dirs_cam.expand(1, len(poses), -1, -1), grid=(ROWS, COLS), camera=camera
)
call = {
    "hidden_states": torch.randn(1, 8, len(poses), 2 * ROWS, 2 * COLS),
    "timestep": torch.tensor([500]),
    "encoder_hidden_states": torch.zeros(1, 1, 8),
    "return_dict": False,
}


@torch.no_grad()
def run(adapter):
    with adapter.cameras(rays):
        return adapter.transformer(**call)[0]


with torch.no_grad():
    before = base(**call)[0]

# A branch beside every second self-attention. Its output starts at zero: training starts from the base model.
adapter = attach(base, encoding=merope.MeRoPE(head_dim=64), compression=2, schedule="alternate")
assert torch.equal(run(adapter), before)
count = sum(parameter.numel() for parameter in adapter.parameters())
print(f"branches on blocks {adapter.blocks}, {count} parameters; at step 0 every output bit is the base's")

# What training would do to the output projections.
for branch in adapter.branches.values():
    torch.nn.init.normal_(branch.to_out.weight, std=0.1)
commanded = run(adapter)
assert not torch.equal(commanded, before)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "adapter.safetensors"
    save_adapter(path, adapter)
    assert torch.equal(adapter.detach()(**call)[0], before)
    print("detached: the base model again, to the bit")
    assert torch.equal(run(load_adapter(path, base)), commanded)
    print(f"loaded from {path.stat().st_size / 1e3:.0f} kB: the commanded output again, to the bit")
