"""One clip through a whole Wan transformer over two processes: each has some of the latent frames.

Runs itself in two processes of this machine. The same call works under torchrun, one GPU per process.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from diffusers import WanTransformer3DModel

import merope
from merope.adapters import attach
from merope.adapters.clip_sharding import share_clip

PROCESSES, NUM_FRAMES, ROWS, COLS = 2, 13, 2, 3


def work(rank, store):
    """What every process runs, with the same model, clip and cameras."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    torch.manual_seed(0)
    transformer = WanTransformer3DModel(
        num_layers=2, num_attention_heads=2, attention_head_dim=64, ffn_dim=256, text_dim=8, freq_dim=32
    ).eval()
    adapter = attach(transformer, encoding=merope.MeRoPE(head_dim=64), compression=2, schedule="every")
    with torch.no_grad():
        for branch in adapter.branches.values():
            # As if trained: a new branch is silent.
            branch.to_out.weight.normal_(std=0.1)

    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(1, NUM_FRAMES, 1, 1)
    T_world_cam[..., 2, 3] = 2.0 * torch.arange(NUM_FRAMES)
    camera = merope.Pinhole.from_fov(fov_x_deg=90, height=32, width=48)
    dirs_cam, valid = merope.TokenGrid(rows=ROWS, cols=COLS).token_rays(camera)
    rays = merope.ViewRays.from_poses(
        T_world_cam, dirs_cam.expand(1, NUM_FRAMES, -1, -1), grid=(ROWS, COLS), camera=camera
    )
    cameras = adapter.signals(rays)
    latents = torch.randn(1, 16, NUM_FRAMES, 2 * ROWS, 2 * COLS)
    text = torch.randn(1, 5, 8)

    tokens = []
    transformer.blocks[0].ffn.register_forward_pre_hook(lambda module, args: tokens.append(args[0].shape[1]))

    def velocity():
        with adapter.cameras(cameras):
            return transformer(latents, timestep=torch.tensor([500]), encoder_hidden_states=text).sample

    with torch.inference_mode():
        alone = velocity()
        with share_clip(adapter):
            shared = velocity()

    off = (shared - alone).abs().max()
    counts = torch.empty(PROCESSES, dtype=torch.int64)
    dist.all_gather_single(counts, torch.tensor(tokens[-1:]))
    if rank == 0:
        print(
            f"{tokens[0]} tokens alone, {' + '.join(map(str, counts.tolist()))} shared by {PROCESSES} processes; "
            f"the outputs differ by {float(off):.1e} at most, of {float(alone.abs().max()):.1f}"
        )
    assert off < 1e-5
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (Path(folder) / "store",), nprocs=PROCESSES)
