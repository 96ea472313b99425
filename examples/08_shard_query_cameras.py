"""One clip over several processes: each has some of the cameras, and all the keys and values as they are.

Runs itself in three processes of this machine. Two of them share the clip first, then all three.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import merope
from merope.attention.sharding import shard_cameras, sharded_camera_attention

PROCESSES, NUM_VIEWS, ROWS, COLS = 3, 13, 2, 3
PER_VIEW = ROWS * COLS

T_world_cam = torch.eye(4, dtype=torch.float64).repeat(1, NUM_VIEWS, 1, 1)
T_world_cam[..., 2, 3] = 2.0 * torch.arange(NUM_VIEWS)
camera = merope.Pinhole.from_fov(fov_x_deg=90, height=32, width=48)
dirs_cam, valid = merope.TokenGrid(rows=ROWS, cols=COLS).token_rays(camera)


def views(first, last):
    """Some of the clip's cameras."""
    return merope.ViewRays.from_poses(
        T_world_cam[:, first:last],
        dirs_cam.expand(1, last - first, -1, -1),
        grid=(ROWS, COLS),
        time=torch.arange(first, last),
    )


def work(rank, store):
    """What every process runs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    encoding = merope.MeRoPE(head_dim=64)
    # The same on all processes here, to compare with; in a model each would have its own part alone.
    torch.manual_seed(0)
    whole = torch.randn(4, 1, 2, NUM_VIEWS * PER_VIEW, 64, dtype=torch.float64)

    for world_size in (2, 3):
        group = dist.new_group(list(range(world_size)))
        if rank >= world_size:
            continue
        plan = shard_cameras(NUM_VIEWS, world_size)
        first, last = plan.run(rank)
        own = slice(first * PER_VIEW, last * PER_VIEW)
        query, key, value = (x[:, :, own].clone().requires_grad_() for x in whole[:3])
        weights = whole[3][:, :, own]

        # This process's cameras against all keys: no geometry that it does not use.
        operator = encoding.operator(views(first, last), views(0, NUM_VIEWS), dtype=torch.float64)
        out = sharded_camera_attention(query, key, value, operator, plan, group=group, frame_causal=True)
        (out * weights).sum().backward()

        leaves = [x.clone().requires_grad_() for x in whole[:3]]
        operator = encoding.operator(views(0, NUM_VIEWS), dtype=torch.float64)
        expected = merope.camera_attention(*leaves, operator, frame_causal=True)
        (expected * whole[3]).sum().backward()
        pairs = [
            (out, expected),
            *((x.grad, y.grad) for x, y in zip((query, key, value), leaves, strict=True)),
        ]
        off = torch.stack([(ours - theirs[:, :, own]).abs().max() for ours, theirs in pairs]).detach()
        dist.all_reduce(off, op=dist.ReduceOp.MAX, group=group)
        if rank == 0:
            print(
                f"{NUM_VIEWS} cameras over {world_size} processes, {list(plan.counts)}: output off one process's by "
                f"{float(off[0]):.1e}, gradients by {float(off[1:].max()):.1e}"
            )
        assert off.max() < 1e-12
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (Path(folder) / "store",), nprocs=PROCESSES)
