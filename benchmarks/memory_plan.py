"""The memory plan held against real training steps, on this machine's CPU; or the plan's table for the published models.

``python benchmarks/memory_plan.py`` trains small and middle-sized Wans for two steps each, all in processes of their own,
and prints predicted bytes, the bytes of tensors that were alive at once, and by how much the process grew (its resident
set, which holds the allocator's gaps and the libraries' scratch too). ``--table`` prints what docs/wan.md shows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

MIB = 2**20

# Layers, heads of 64 or 128 channels, feed-forward, tokens as latent frames x rows x columns of pixels.
SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "layers": 6,
        "heads": 4,
        "head_dim": 64,
        "ffn": 1024,
        "frames": 17,
        "height": 128,
        "width": 192,
    },
    "middle": {
        "layers": 6,
        "heads": 6,
        "head_dim": 128,
        "ffn": 3584,
        "frames": 25,
        "height": 224,
        "width": 384,
    },
}
TRAINS = ("branch", "branch+attention", "all")


def transformer_of(size: dict[str, Any]) -> dict[str, Any]:
    """A Wan2.2 of this size."""
    from merope.recipes.published import WAN22_TI2V_5B

    return {
        **WAN22_TI2V_5B["transformer"],
        "num_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "attention_head_dim": size["head_dim"],
        "ffn_dim": size["ffn"],
        "text_dim": 256,
    }


def config_of(size: dict[str, Any], case: dict[str, Any]) -> Any:
    """The driving recipe at this size, one clip at a time on one process."""
    from merope.adapters.spec import wan_spec
    from merope.recipes.published import WAN22_TI2V_5B
    from merope.recipes.wan import RECIPES
    from merope.training.finetune_config import ParallelConfig

    model = {"transformer": transformer_of(size), "vae": WAN22_TI2V_5B["vae"]}
    spec = wan_spec(
        model["transformer"],
        model["vae"],
        height=size["height"],
        width=size["width"],
        num_frames=size["frames"],
        prefix_frames=9,
        fps=12.0,
        shift=5.0,
    )
    return replace(
        RECIPES[f"nuscenes-{case['encoding']}"](model),
        spec=spec,
        compression=2,
        global_batch=case["clips"],
        steps=2,
        trains=case["trains"],
        gradient_checkpointing=case["checkpointing"],
        parallel=ParallelConfig(mode="replicate"),
    )


class MadeUpClips:
    """Clips of noise, as a cache gives them."""

    def __init__(self, spec: Any, text_dim: int, text_tokens: int) -> None:
        import torch

        from merope.cameras import Pinhole
        from merope.data.caches.cached_clip import CachedClip, CacheDescription

        self.sources, self.clip_ids, self.clusters = ["noise"] * 2, ["0", "1"], ["all"] * 2
        channels = spec.latent_shape[0]
        self.description = CacheDescription(
            vae={},
            latents_mean=(0.0,) * channels,
            latents_std=(1.0,) * channels,
            text_encoder={},
            text_length=text_tokens,
            height=spec.height,
            width=spec.width,
            num_frames=spec.num_frames,
            temporal_stride=spec.temporal_stride,
            spatial_stride=spec.spatial_stride,
        )
        self.empty_text = torch.zeros(1, text_dim)
        self.up_worlds = [None] * len(self)
        poses = torch.eye(4, dtype=torch.float64).repeat(spec.num_frames, 1, 1)
        poses[:, 2, 3] = torch.arange(spec.num_frames)
        self.clip = CachedClip(
            clip_id="0",
            mean=torch.randn(spec.latent_shape),
            logvar=torch.zeros(spec.latent_shape),
            text=torch.randn(20, text_dim),
            T_world_cam=poses,
            lens=Pinhole.from_fov(fov_x_deg=90.0, height=spec.height, width=spec.width),
            fps=spec.fps,
        )

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.clip


def measure(size: str, case: dict[str, Any]) -> dict[str, int]:
    """Train two steps here: most bytes of tensors alive at once, and growth of the process."""
    import torch
    from diffusers import WanTransformer3DModel

    from merope.training.finetune import FinetuneTrainer, ahead
    from merope.training.parallel import joined_processes
    from merope.training.pretrained import add_cameras
    from merope.training.shape_run import FollowedBytes

    config = config_of(SIZES[size], case)
    clips: Any = MadeUpClips(config.spec, 256, case["text"])
    before = _resident("VmRSS")
    with (
        FollowedBytes() as followed,
        joined_processes() as processes,
        tempfile.TemporaryDirectory() as folder,
    ):
        transformer = WanTransformer3DModel(**transformer_of(SIZES[size]))
        adapter = add_cameras(transformer, config)
        trainer = FinetuneTrainer(
            Path(folder), config, transformer=transformer, adapter=adapter, clips=clips, processes=processes
        )
        # A base in float32 is read to the last weight before it is cut; training has not begun.
        torch.set_num_threads(1)
        followed.peak = followed.now
        prepared = ahead(trainer._jobs())
        for _ in range(config.steps):
            trainer._update(prepared, measure=False)
        prepared.close()
    return {"tensors": followed.peak, "process": _resident("VmHWM") - before}


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def compare(sizes: list[str]) -> None:
    """Print predicted and measured bytes of every case."""
    from merope.training.memory import plan_memory

    print(
        f"{'size':<8}{'encoding':<10}{'trains':<18}{'checkpt':<8}{'clips':<6}{'planned':>10}{'tensors':>10}{'ratio':>8}",
        end="",
    )
    print(f"{'process':>10}  MiB; ratio = planned / tensors")
    worst = 1.0
    for size in sizes:
        cases = [
            {"encoding": encoding, "trains": trains, "checkpointing": checkpointing, "clips": 1, "text": 64}
            for encoding, allowed in (("merope", TRAINS), ("ucpe", ("branch",)), ("none", ("all",)))
            for trains in allowed
            for checkpointing in (True, False)
        ]
        for case in cases:
            config = config_of(SIZES[size], case)
            planned = plan_memory(transformer_of(SIZES[size]), config, text_tokens=case["text"]).tensors
            ran = subprocess.run(
                [sys.executable, __file__, "--measure", json.dumps({"size": size, "case": case})],
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                check=False,
            )
            if ran.returncode:
                raise SystemExit(ran.stderr)
            found = json.loads(ran.stdout.splitlines()[-1])
            ratio = planned / found["tensors"]
            worst = max(worst, ratio, 1 / ratio)
            checkpointing = "yes" if case["checkpointing"] else "no"
            print(
                f"{size:<8}{case['encoding']:<10}{case['trains']:<18}{checkpointing:<8}{case['clips']:<6}"
                f"{planned / MIB:>10.1f}{found['tensors'] / MIB:>10.1f}{ratio:>8.3f}{found['process'] / MIB:>10.1f}",
                flush=True,
            )
    print(f"worst ratio either way: {worst:.3f}")


# Recipe, what trains, checkpointing, parallel mode, GPUs.
TRAINING: tuple[tuple[str, str, bool, str, int], ...] = (
    ("nuscenes-merope", "branch", True, "replicate", 1),
    ("nuscenes-merope", "branch", False, "replicate", 1),
    ("nuscenes-merope", "branch", True, "fsdp", 4),
    ("nuscenes-merope", "branch+attention", True, "replicate", 1),
    ("nuscenes-merope", "all", True, "fsdp", 1),
    ("nuscenes-merope", "all", True, "fsdp", 4),
    ("nuscenes-merope", "all", True, "fsdp", 8),
    ("nuscenes-merope", "all", True, "hsdp", 64),
    ("nuscenes-merope", "all", False, "hsdp", 64),
    ("nuscenes-merope", "all", True, "fsdp", 64),
    ("panshot-merope", "branch", True, "replicate", 8),
    ("panshot-merope", "branch", False, "replicate", 8),
)
SAMPLING: tuple[tuple[str, str, bool, bool], ...] = (
    ("nuscenes-merope", "none", False, True),
    ("nuscenes-merope", "none", True, False),
    ("nuscenes-merope", "model", False, True),
    ("nuscenes-merope", "group", True, True),
    ("nuscenes-merope", "sequential", True, True),
    ("panshot-merope", "none", False, True),
    ("panshot-merope", "model", True, True),
)
# Dense bfloat16 operations per second, as their makers' data sheets have them.
PEAKS = {"RTX 4090": 165e12, "A100": 312e12, "H20": 148e12, "H100": 989e12}
# Table 6: encoding, GiB per GPU and clips per second in training, both on four H20.
TABLE_6 = (("none", 35.80, 5.30), ("gta", 36.58, 4.89), ("ucpe", 36.58, 4.86), ("merope", 37.57, 4.70))


def table() -> None:
    """Print the tables of docs/wan.md."""
    from merope.recipes.wan import RECIPES
    from merope.training.finetune_config import ParallelConfig
    from merope.training.flops import forward_flops, training_flops
    from merope.training.memory import GIB, plan_memory
    from merope.training.sampling_memory import plan_sampling

    print("| recipe | trains | checkpointing | weights | GPUs | tensors, GiB | GPU, GiB | fullest |")
    print("|---|---|---|---|---|---|---|---|")
    for name, trains, checkpointing, mode, gpus in TRAINING:
        recipe = RECIPES[name]
        parallel = ParallelConfig(mode=mode, shard_size=4 if mode == "hsdp" else None)  # type: ignore[arg-type]
        config = replace(
            recipe(), trains=trains, gradient_checkpointing=checkpointing, parallel=parallel, global_batch=64
        )
        plan = plan_memory(recipe.base["transformer"], config, num_processes=gpus)
        print(
            f"| `{name}` | {trains} | {'yes' if checkpointing else 'no'} | {mode} | {gpus} | "
            f"{plan.tensors / GIB:.1f} | {plan.device / GIB:.1f} | {plan.fullest} |",
            flush=True,
        )
    print(
        "\n| recipe | offload | tiled | text encoder | tensors, GiB | GPU, GiB | fullest |\n|---|---|---|---|---|---|---|"
    )
    for name, offload, tiled, text in SAMPLING:
        recipe = RECIPES[name]
        plan = plan_sampling(recipe.base, recipe(), offload=offload, tiled=tiled, text_encoder=text)  # type: ignore[arg-type]
        print(
            f"| `{name}` | {offload} | {'yes' if tiled else 'no'} | {'yes' if text else 'no'} | "
            f"{plan.tensors / GIB:.1f} | {plan.device / GIB:.1f} | {plan.fullest} |",
            flush=True,
        )
    print(
        "\n| encoding | planned, GiB | Table 6 | 10^12 operations | clips/s on four H20 | of their peak |\n"
        "|---|---|---|---|---|---|"
    )
    for encoding, memory, speed in TABLE_6:
        recipe = RECIPES[f"nuscenes-{encoding}"]
        config = replace(recipe(), gradient_checkpointing=False, global_batch=4)
        plan = plan_memory(recipe.base["transformer"], config, num_processes=4)
        flops = training_flops(recipe.base["transformer"], config)
        print(
            f"| {encoding} | {plan.tensors / GIB:.2f} | {memory} | {flops / 1e12:.1f} | {speed} | "
            f"{flops * speed / 4 / PEAKS['H20']:.1%} |",
            flush=True,
        )
    print("\n| run | 10^12 operations per clip | " + " | ".join(f"{gpu}, clips/s" for gpu in PEAKS) + " |")
    print("|---|---|" + "---|" * len(PEAKS))
    for name, trains, checkpointing in (
        ("nuscenes-merope", "all", False),
        ("nuscenes-merope", "all", True),
        ("nuscenes-merope", "branch", True),
        ("panshot-merope", "branch", True),
    ):
        recipe = RECIPES[name]
        config = replace(recipe(), trains=trains, gradient_checkpointing=checkpointing)
        flops = training_flops(recipe.base["transformer"], config)
        speeds = " | ".join(f"{UTILISATION * peak / flops:.2f}" for peak in PEAKS.values())
        how = f"{trains}, {'with' if checkpointing else 'without'} checkpointing"
        print(f"| `{name}`, {how} | {flops / 1e12:.1f} | {speeds} |")
    for name in ("nuscenes-merope", "panshot-merope"):
        recipe = RECIPES[name]
        config = recipe()
        branches = 15 if name.startswith("nuscenes") else 30
        flops = 100 * forward_flops(
            recipe.base["transformer"],
            config.spec,
            encoding=encoding_of(config),
            compression=config.compression,
            num_branches=branches,
        )
        speeds = " | ".join(f"{UTILISATION * peak / flops:.4f}" for peak in PEAKS.values())
        print(f"| `{name}`, sampling, 50 steps with guidance | {flops / 1e12:.0f} | {speeds} |")


UTILISATION = 0.46
"""Share of its peak that a GPU reaches, the one that Table 6 implies for MeRoPE's training."""


def encoding_of(config: Any) -> Any:
    """The encoding of a configuration."""
    from merope.encodings.registry import encoding_from_config

    return encoding_from_config(config.encoding)


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=sorted(SIZES), default=["small", "middle"])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument(
        "--table", action="store_true", help="print the tables of docs/wan.md and measure nothing"
    )
    options = parser.parse_args()
    if options.table:
        table()
        return
    if options.measure:
        asked = json.loads(options.measure)
        print(json.dumps(measure(asked["size"], asked["case"])))
        return
    compare(options.sizes)


if __name__ == "__main__":
    main()
