"""What each process of the tests of `share_clip` does; imported anew by every one of them."""

import warnings
from collections import Counter
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from accelerate import cpu_offload
from diffusers.models.transformers.transformer_wan import WanAttnProcessor
from torch import Tensor

import merope.attention.sharding as sharding
from merope.adapters import CameraAdapter, attach
from merope.adapters.clip_sharding import share_clip
from merope.adapters.command import latent_rays
from merope.adapters.flow import predict_velocity
from merope.adapters.spec import VideoSpec
from merope.cameras import Pinhole
from merope.cameras.rays import ViewRays
from merope.cameras.scenes import random_drive
from merope.encodings import MeRoPE
from merope.encodings.latitude_up import LatitudeUpMap
from merope.encodings.scale import ScaleWarning
from tests.support.processes import run_together
from tests.support.wan import CHANNELS, COLS, ROWS, attached, awake, stirred, tiny_wan

FRAMES, PREFIX, PER_FRAME = 13, 3, ROWS * COLS
ENCODINGS = (
    *("merope", "ucpe", "gta", "urope", "raynova", "rayrope", "crepe"),
    *("cameractrl", "recammaster", "scope", "rerope-merope", "none"),
)
# Name of a case: encoding or None, timesteps per token, dtype.
CASES: dict[str, tuple[str | None, bool, torch.dtype]] = {
    **{name: (name, True, torch.float64) for name in ENCODINGS},
    "one timestep": ("merope", False, torch.float64),
    "one timestep in float32": ("merope", False, torch.float32),
    "float32": ("rayrope", True, torch.float32),
    "no adapter": (None, True, torch.float64),
    "input map": ("gta", True, torch.float64),
}


def model_of(name: str) -> tuple[Any, CameraAdapter | None]:
    """The transformer of a case, two blocks, and its adapter, with nothing left at zero."""
    encoding, _, dtype = CASES[name]
    model = tiny_wan(num_layers=2)
    adapter = None
    if encoding is not None:
        adapter = stirred(
            attached(model, encoding, input_map=LatitudeUpMap() if name == "input map" else None)
        )
    model.to(dtype)
    return model, adapter


def clip_of(name: str, *, frames: int = FRAMES, seed: int = 1) -> dict[str, Any]:
    """Inputs of two clips; the first latent frames are clean where times are per token."""
    _, per_token, dtype = CASES[name]
    draw = torch.Generator().manual_seed(seed)
    times = torch.tensor([700.0, 30.0])
    if per_token:
        times = times[:, None].expand(2, frames * PER_FRAME).clone()
        times[:, : PREFIX * PER_FRAME] = 0
    return {
        "hidden_states": torch.randn(2, CHANNELS, frames, 2 * ROWS, 2 * COLS, generator=draw).to(dtype),
        "timestep": times,
        "encoder_hidden_states": torch.randn(2, 5, 8, generator=draw).to(dtype),
        "return_dict": False,
    }


def drive(*, frames: int = FRAMES, seed: int = 0) -> ViewRays:
    """Cameras of the two clips."""
    return random_drive(seed, views=frames)


def ask(model: Any, adapter: CameraAdapter | None, clip: dict[str, Any], view: Any = None) -> Tensor:
    """The transformer's output."""
    cameras = nullcontext() if adapter is None else adapter.cameras(drive() if view is None else view)
    with torch.no_grad(), cameras:
        return model(**clip)[0]


# One clip by predict_velocity, as sampling calls it


SPEC = VideoSpec(
    height=32,
    width=48,
    num_frames=49,
    prefix_frames=9,
    fps=8,
    camera=Pinhole.from_fov(fov_x_deg=90, height=32, width=48).to_dict(),
    patch=2,
    latent_channels=CHANNELS,
    text_tokens=5,
)


def velocity(share: bool) -> Tensor:
    """Velocities of a clip with and without text, two in a batch."""
    model = tiny_wan(num_layers=2)
    adapter = awake(attach(model, encoding=MeRoPE(head_dim=64), compression=2, schedule=[1]))
    draw = torch.Generator().manual_seed(4)
    noisy, clean = (
        torch.randn(1, *SPEC.latent_shape, generator=draw).expand(2, -1, -1, -1, -1) for _ in "nc"
    )
    text = torch.randn(2, 5, 8, generator=draw)
    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(2, SPEC.latent_frames, 1, 1)
    T_world_cam[..., 2, 3] = 2.0 * torch.arange(SPEC.latent_frames)
    signals = adapter.signals(latent_rays(T_world_cam, SPEC))
    with torch.inference_mode(), share_clip(adapter) if share else nullcontext():
        return predict_velocity(
            model, adapter, noisy, clean, torch.tensor([0.6, 0.6]), signals, SPEC, text=text
        )


# What a process computes and sends


@contextmanager
def counted_bytes() -> Any:
    """Bytes that this process puts into gathers of tokens, in order; what processes tell one another is left out."""
    sent: list[int] = []
    plain = sharding.dist.all_gather_single

    def counting(output: Tensor, own: Tensor, **options: Any) -> Any:
        if own.dtype != torch.int64 and own.dtype != torch.float64:
            sent.append(own.numel() * own.itemsize)
        return plain(output, own, **options)

    sharding.dist.all_gather_single = counting
    try:
        yield sent
    finally:
        sharding.dist.all_gather_single = plain


def work_and_bytes() -> tuple[dict[str, set[int]], list[int]]:
    """Tokens (frames for patches) that modules of the shared transformer see, by name, and bytes sent."""
    model, adapter = model_of("float32")
    seen: dict[str, set[int]] = {}

    def watched(name: str, axis: int) -> Any:
        def look(module: Any, args: Any) -> None:
            seen.setdefault(name, set()).add(args[0].shape[axis])

        return look

    block = model.blocks[1]
    for name, module, axis in (
        ("patches", model.patch_embedding, 2),
        ("times", model.condition_embedder.time_embedder, 1),
        ("norm1", block.norm1, 1),
        ("to_q", block.attn1.to_q, 1),
        ("to_k", block.attn1.to_k, 1),
        ("to_v", block.attn1.to_v, 1),
        ("to_out", block.attn1.to_out[0], 1),
        ("branch to_k", block.camera_branch.to_k, 1),
        ("branch to_out", block.camera_branch.to_out, 1),
        ("cross to_q", block.attn2.to_q, 1),
        ("ffn", block.ffn, 1),
        ("proj_out", model.proj_out, 1),
    ):
        module.register_forward_pre_hook(watched(name, axis))
    with share_clip(adapter), counted_bytes() as sent:
        ask(model, adapter, clip_of("float32"))
    return seen, sent


# What is left behind


def traces(model: Any) -> tuple[Any, ...]:
    """Everything about a transformer that sharing might change."""
    modules = dict(model.named_modules())
    return (
        {name: type(module) for name, module in modules.items()},
        {name: sorted(vars(module)) for name, module in modules.items()},
        {name: id(module.processor) for name, module in modules.items() if hasattr(module, "processor")},
        list(model.state_dict()),
        Counter(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules.values()),
    )


def left_behind() -> dict[str, bool]:
    """Whether a transformer is as it was: after sharing, and after an error in it."""
    found = {}
    for name in ("merope", "scope", "no adapter"):
        model, adapter = model_of(name)
        before, inside = traces(model), None
        with share_clip(model):
            inside = traces(model)
            ask(model, adapter, clip_of(name))
        found[name] = traces(model) == before and inside != before and inside[3] == before[3]
        try:
            with share_clip(model):
                raise KeyError("everywhere")
        except KeyError:
            found[f"{name}, after an error"] = traces(model) == before
    return found


def offloaded() -> list[Tensor]:
    """Output of a transformer whose weights are fetched for each call, shared and alone."""
    model, adapter = model_of("merope")
    cpu_offload(model, execution_device=torch.device("cpu"))
    outputs = [ask(model, adapter, clip_of("merope"))]
    with share_clip(adapter):
        outputs.append(ask(model, adapter, clip_of("merope")))
    return outputs


# What cannot be


class Doubled(WanAttnProcessor):
    """Another library's attention."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        return 2 * super().__call__(*args, **kwargs)


class Failed(Exception):
    """What happens on one process alone."""


def told(function: Any) -> str:
    """The error that a call ends with, if it does."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def calls_that_fail(rank: int, world_size: int) -> dict[str, str]:
    """What this process is told where the last one, or every one, does something else."""
    model, adapter = model_of("merope")
    assert adapter is not None
    odd = rank == world_size - 1
    clip = clip_of("merope")

    def shared(clip: dict[str, Any] = clip, view: Any = None) -> None:
        with share_clip(adapter):
            ask(model, adapter, clip, view)

    def fails_at(module: Any) -> Any:
        def fail(*_: Any) -> None:
            raise Failed("out of luck")

        def run() -> None:
            handle = module.register_forward_hook(fail) if odd else None
            try:
                shared()
            finally:
                if handle is not None:
                    handle.remove()

        return run

    def fails_beside() -> None:
        with share_clip(adapter):
            if odd:
                raise Failed("no memory for the video")
            ask(model, adapter, clip)

    def fails_afterwards() -> None:
        with share_clip(adapter):
            ask(model, adapter, clip)
            if odd:
                raise Failed("no room for the file")

    def goes_on_after_an_error() -> None:
        with share_clip(adapter):
            first = told(lambda: ask(model, adapter, clip_of("merope", seed=1 + odd)))
            assert first.startswith("SharedClipError"), first
            ask(model, adapter, clip)

    def leaves_early() -> None:
        with share_clip(adapter):
            if not odd:
                ask(model, adapter, clip)

    def gradients() -> None:
        with share_clip(adapter), adapter.cameras(drive()):
            model(**clip)

    def recorded() -> None:
        with adapter.recording_residuals():
            shared()

    def another_encoding() -> None:
        other, others = model_of("gta" if odd else "merope")
        with share_clip(others):
            ask(other, others, clip)

    def another_attention() -> None:
        other, _ = model_of("no adapter")
        if odd:
            other.blocks[1].attn1.set_processor(Doubled())
        with share_clip(other):
            pass

    def twice() -> None:
        with share_clip(adapter), share_clip(model):
            pass

    def detached_within() -> None:
        with share_clip(adapter):
            adapter.detach()

    def cached() -> None:
        from diffusers import FirstBlockCacheConfig

        other, _ = model_of("no adapter")
        other.enable_cache(FirstBlockCacheConfig(threshold=0.1))
        with share_clip(other):
            ask(other, None, clip)

    text = {**clip, "encoder_hidden_states": clip["encoder_hidden_states"] * (1.1 if odd else 1)}
    later = {**clip, "timestep": clip["timestep"] * (0.99 if odd else 1)}
    longer = clip_of("merope", frames=FRAMES + odd)
    calls = {
        "fewer frames than processes": lambda: shared(
            clip_of("merope", frames=world_size - 1), drive(frames=world_size - 1)
        ),
        "another seed": lambda: shared(clip_of("merope", seed=1 + odd)),
        "another prompt": lambda: shared(text),
        "another step": lambda: shared(later),
        "another length": lambda: shared(longer, drive(frames=FRAMES + odd)),
        "other cameras": lambda: shared(view=drive(seed=int(odd))),
        "cameras of another length": lambda: shared(view=drive(frames=FRAMES + 1)),
        "no cameras": lambda: _without_cameras(adapter, model, clip, odd),
        "fails in a block": fails_at(model.blocks[1].ffn),
        "fails before the first block": fails_at(model.patch_embedding),
        "fails at the output": fails_at(model.proj_out),
        "fails beside": fails_beside,
        "fails afterwards": fails_afterwards,
        "goes on after an error": goes_on_after_an_error,
        "leaves early": leaves_early,
        "gradients": gradients,
        "recorded": recorded,
        "another encoding": another_encoding,
        "another attention": another_attention,
        "twice": twice,
        "detached within": detached_within,
        "cached": cached,
        "no transformer": lambda: share_clip(torch.nn.Linear(2, 2)).__enter__(),
        "afterwards all is well": shared,
    }
    return {name: told(call) for name, call in calls.items()}


def _without_cameras(adapter: CameraAdapter, model: Any, clip: dict[str, Any], odd: bool) -> None:
    with share_clip(adapter), torch.no_grad(), nullcontext() if odd else adapter.cameras(drive()):
        model(**clip)


def in_a_group(rank: int, world_size: int) -> Tensor | str:
    """A case by all processes but the first; what the first is told."""
    group = dist.new_group(list(range(1, world_size)))
    model, adapter = model_of("merope")
    if rank == 0:
        return told(share_clip(adapter, group=group).__enter__)
    with share_clip(adapter, group=group):
        return ask(model, adapter, clip_of("merope"))


def compiled() -> list[Tensor]:
    """Blocks compiled before they are shared: alone, shared with two cameras, alone again."""
    model = tiny_wan(num_layers=1)
    adapter = stirred(attached(model, "merope"))
    clip = clip_of("float32")
    views = [drive(seed=seed) for seed in (0, 1)]
    expected = [ask(model, adapter, clip, view) for view in views]
    model.compile_repeated_blocks(fullgraph=True, backend="aot_eager")
    outputs = [ask(model, adapter, clip, views[0])]
    with share_clip(adapter):
        outputs += [ask(model, adapter, clip, view) for view in views]
    outputs.append(ask(model, adapter, clip, views[0]))
    return [out - want for out, want in zip(outputs, [expected[0], *expected, expected[0]], strict=True)]


def everything(rank: int, world_size: int) -> dict[str, Any]:
    """All but the compiled blocks."""
    warnings.simplefilter("ignore", ScaleWarning)
    results: dict[str, Any] = {}
    for name in CASES:
        model, adapter = model_of(name)
        with share_clip(model if adapter is None else adapter):
            results[name] = ask(model, adapter, clip_of(name))
    results["velocity"] = velocity(share=True)
    results["work"], results["bytes"] = work_and_bytes()
    results["left behind"] = left_behind()
    results["offloaded"] = offloaded()
    results["group"] = in_a_group(rank, world_size)
    results["told"] = calls_that_fail(rank, world_size)
    return results


def work(rank: int, world_size: int, what: str) -> Any:
    """Everything one process has to say."""
    return compiled() if what == "compiled" else everything(rank, world_size)


def run_processes(world_size: int, what: str = "everything") -> list[Any]:
    """What every process found, by rank."""
    return run_together(work, world_size, what)
