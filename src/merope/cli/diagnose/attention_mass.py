"""``merope diagnose attention-mass``: Figure 1 for any trained or fresh model."""

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merope.cli.extras import require

if TYPE_CHECKING:
    from torch import Tensor

    from merope.adapters.spec import VideoSpec
    from merope.data.caches.latents import LatentCodec
    from merope.evaluation.encodings.attention_mass import DriveMass
    from merope.generation import VideoModel

_FRESH = ("merope", "ucpe", "gta")
_SCALE_WORLDS = 32


def attention_mass(
    *,
    weights: tuple[Path, ...] = (),
    encoding: tuple[str, ...] = (),
    steps: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    sigma: float = 0.7,
    clips: int = 8,
    seed: int = 0,
    output: Path = Path("out/attention-mass"),
    json: bool = False,
) -> None:
    """Where the last latent frame looks as a straight drive grows longer in metres.

    The weights of the query in the middle of the last latent frame are summed over each key frame, for one set of
    latents under straight drives of growing step length. By default the two shipped models, and fresh ones under
    MeRoPE, UCPE and GTA, which differ in nothing but the encoding. Writes attention-mass.json and attention-mass.png.

    Args:
        weights: Folders of trained models, as `merope train` writes into OUTPUT/model.
        encoding: Names of encodings for fresh models of the tiny-street size, untrained, with seeded weights.
        steps: Metres per latent frame.
        sigma: Noise level of the latents, 0 to 1; the given frames stay clean.
        clips: Rendered straight drives that the latents come from; masses are their mean.
        seed: Seed of the fresh weights and of the noise.
        output: Folder for the numbers and the plot.
        json: Print one JSON object instead of a table.
    """
    require("matplotlib", purpose="the plot of attention masses")
    import warnings

    from tqdm import tqdm

    from merope.cli import street
    from merope.encodings.registry import encoding_kind, encoding_to_config
    from merope.encodings.scale import ScaleWarning
    from merope.evaluation.encodings.attention_mass import mass_along_drive, plot_attention_mass
    from merope.files import require_folder, write_text_atomically
    from merope.generation import load_video_model

    if not 0 <= sigma <= 1:
        raise ValueError(f"--sigma must lie in [0, 1]; got {sigma}.")
    if clips < 1 or not steps:
        raise ValueError("--clips must be at least 1, and --steps must name at least one length in metres.")
    for name in encoding:
        if encoding_kind(name)().facts.placement == "none":
            raise ValueError(
                f"{name} has no camera attention to look at; for one that sees no cameras use native."
            )
    chosen = dict.fromkeys(weights)
    fresh = tuple(dict.fromkeys(encoding))
    if not weights and not encoding:
        chosen = dict.fromkeys([street.WEIGHTS / "merope", street.WEIGHTS / "native"])
        fresh = _FRESH
    models: dict[str, VideoModel] = {_label(folder): load_video_model(folder) for folder in chosen}
    if fresh:
        codec = load_video_model(street.WEIGHTS / "merope").codec
        models.update({f"{name}, untrained": _fresh(name, codec, seed) for name in fresh})
    require_folder(output)
    # To leave the reach of a translation scale is what this command is for.
    warnings.filterwarnings("ignore", category=ScaleWarning)
    results: dict[str, DriveMass] = {}
    known: dict[str, tuple[Tensor, Tensor]] = {}
    for label, model in tqdm(models.items(), desc="models", unit="model"):
        # Models of one size see the same frames; each codec has its own latents.
        key = repr((model.spec, id(model.codec)))
        if key not in known:
            known[key] = _latents(model.spec, model.codec, clips=clips, seed=seed)
        clean, noise = known[key]
        results[label] = mass_along_drive(
            model.adapter, clean, noise, sigma=sigma, spec=model.spec, steps=steps
        )
    content: dict[str, Any] = {
        "sigma": sigma,
        "clips": clips,
        "seed": seed,
        "models": {
            label: {"encoding": encoding_to_config(models[label].adapter.encoding), **result.to_dict()}
            for label, result in results.items()
        },
    }
    written = jsonlib.dumps(content, indent=1)
    write_text_atomically(output / "attention-mass.json", written)
    plot_attention_mass(output / "attention-mass.png", results)
    if json:
        print(written)
        return
    print(table(results))
    print(f"\nwritten to {output}: attention-mass.json, attention-mass.png")


def table(results: "dict[str, DriveMass]") -> str:
    """How far back the mass lies by model and step length, and the shares of the first and the previous frame."""
    width = max(len(label) for label in results)
    steps = next(iter(results.values())).steps
    lines = ["metres per latent frame ".rjust(width + 12) + "".join(f"{step:>8g}" for step in steps)]
    for label, result in results.items():
        for words, values in (
            ("frames back", result.age),
            ("first", result.first),
            ("previous", result.previous),
        ):
            lines.append(f"{label:<{width}} {words:<12}" + "".join(f"{value:>7.3f} " for value in values))
            label = ""
    lines.append(
        "\nof the mass on the frames before the query's own: mean age in latent frames, and two shares"
    )
    return "\n".join(lines)


def _label(folder: Path) -> str:
    """OUTPUT/model is named after the run, other folders after themselves."""
    name = folder.resolve().name
    return folder.resolve().parent.name if name == "model" else name


def _fresh(name: str, codec: "LatentCodec", seed: int) -> "VideoModel":
    from dataclasses import replace

    from merope.encodings.registry import default_encoding, encoding_to_config
    from merope.generation import VideoModel
    from merope.recipes.tiny_street import tiny_street
    from merope.training.system import build_model

    config = replace(tiny_street(encoding=name), seed=seed)
    scaled = default_encoding(name, head_dim=128, num_heads=1, scale=_motion_scale(config))
    config = replace(config, encoding=encoding_to_config(scaled))
    transformer, adapter = build_model(config)
    transformer.eval().requires_grad_(False)
    return VideoModel(transformer=transformer, adapter=adapter, codec=codec, spec=config.spec)


def _motion_scale(config: Any) -> Any:
    """The translation scale that training on tiny-street's first worlds would have."""
    from merope.adapters.command import latent_matrices
    from merope.encodings.scale import TranslationScale
    from merope.recipes.tiny_street import tiny_street_clips
    from merope.training.street_clips import world_paths

    spec, clips = config.spec, tiny_street_clips(config)
    paths = [path[: spec.num_frames] for seed in range(_SCALE_WORLDS) for path in world_paths(seed, clips)]
    return TranslationScale.from_motion(list(latent_matrices(paths, spec)[:, :, :3, 3]))


def _latents(spec: "VideoSpec", codec: "LatentCodec", *, clips: int, seed: int) -> "tuple[Tensor, Tensor]":
    """Latents of rendered straight drives through held-out worlds, and noise of their shape."""
    import numpy as np
    import torch

    from merope.cli import street
    from merope.data.caches.latents import video_from_frames
    from merope.worlds.drives import drive
    from merope.worlds.seeds import HELD_OUT_SEED

    frames = []
    for world in range(HELD_OUT_SEED, HELD_OUT_SEED + clips):
        poses = drive("straight", seed=world, num_frames=spec.num_frames, fps=spec.fps)
        (clip,) = street.render_commands("straight", {"original": poses}, spec, seed=world)
        frames.append(clip.truth)
    clean = codec.encode(video_from_frames(torch.from_numpy(np.stack(frames))))
    noise = torch.randn(clips, *spec.latent_shape, generator=torch.Generator().manual_seed(seed))
    return clean, noise
