"""What one process of several does with an adapted transformer under FSDP2 (gloo, CPU)."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from merope.adapters import CameraAdapter, load_adapter, save_adapter
from merope.adapters.base_identity import base_identity
from tests.support.wan import attached, inputs, run, stirred, tiny_wan


def shard(adapter: CameraAdapter) -> None:
    """Blocks, then the rest, over all processes."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in adapter.transformer.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(adapter.transformer, mesh=mesh)


def compare(rank: int, world_size: int, folder: str) -> None:
    """Hold an adapter that was sharded after attaching against the whole one; process 0 writes what was said."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    said = []
    for name in ("merope", "scope", "rerope"):
        whole = stirred(attached(tiny_wan(num_layers=2), name))
        expected, base = run(whole), tiny_wan(num_layers=2)(**inputs())[0]
        save_adapter(Path(folder) / f"{name}-{rank}.safetensors", whole)
        expected.square().mean().backward()

        # The file of the whole adapter, into a model that is sharded then.
        adapter = load_adapter(Path(folder) / f"{name}-{rank}.safetensors", tiny_wan(num_layers=2))
        identity = base_identity(adapter.transformer)
        shard(adapter)
        assert base_identity(adapter.transformer)["fingerprint"] is None
        assert adapter.is_zero == whole.is_zero
        out = run(adapter)
        torch.testing.assert_close(out, expected)
        out.square().mean().backward()
        for ours, theirs in zip(adapter.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(_whole(ours.grad), theirs.grad, rtol=1e-4, atol=1e-7)

        with adapter.taken_off() as model:
            assert not any("camera" in key for key in model.state_dict())
            torch.testing.assert_close(model(**inputs())[0], base)
        torch.testing.assert_close(run(adapter), expected)
        said.append(_refusal(save_adapter, Path(folder) / f"refused-{rank}.safetensors", adapter))
        tensors = {
            f"{block}.{key}": _whole(value)
            for block, branch in adapter.branches.items()
            for key, value in branch.state_dict().items()
        }
        save_adapter(Path(folder) / f"{name}-{rank}.safetensors", adapter, tensors=tensors, base=identity)
        again = load_adapter(Path(folder) / f"{name}-{rank}.safetensors", tiny_wan(num_layers=2))
        assert torch.equal(run(again), expected)

        adapter.detach()
        torch.testing.assert_close(adapter.transformer(**inputs())[0], base)
        said.append(_refusal(attached, adapter.transformer, name))
    if rank == 0:
        (Path(folder) / "said").write_text("\n".join(said))
    dist.barrier()
    dist.destroy_process_group()


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _refusal(call, *args) -> str:
    try:
        call(*args)
    except ValueError as error:
        return str(error)
    return "taken"
