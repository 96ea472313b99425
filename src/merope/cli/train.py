"""``merope train``: train a preset, or go on training it."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from merope.data.latents import LinearCodec
    from merope.training.config import TrainConfig
    from merope.training.street_clips import StreetClips


def train(
    preset: Annotated[Literal["tiny-street", "tiny-street-estimator"], tyro.conf.Positional],
    *,
    encoding: str = "merope",
    steps: int | None = None,
    worlds: int | None = None,
    output: Path | None = None,
    clips: Path | None = None,
    workers: int = 2,
    threads: int | None = None,
    device: str = "cpu",
) -> None:
    """Train a preset; run the same command again to go on where it stopped.

    tiny-street is a Wan transformer with camera branches on rendered streets of 40 x 64 pixels;
    tiny-street-estimator is the network that reads camera motion off such frames, trained on the same clips.
    Clips are rendered first and kept. Ctrl-C or SIGTERM saves and stops; the estimator goes on from its last
    checkpoint, at most 250 steps back.

    Args:
        preset: What to train.
        encoding: Camera encoding by name, such as gta or ucpe (`merope encodings` lists them); native is the same model
            without camera encoding, none has no camera branch either.
        steps: Training steps; the default reproduces the shipped weights.
        worlds: Worlds to render, three clips each; the last 16 are kept aside for the held-out loss. By default one
            world for every three steps, from 64 to 1000.
        output: Folder of the run: state, log.jsonl and the model; default runs/PRESET-ENCODING-STEPS, and
            the number of worlds where it is given.
        clips: Folder of rendered clips, 0.7 MB a world, made if missing; default runs/street-clips-WORLDS.
        workers: Processes that render.
        threads: Threads that train; default all cores.
        device: Where the model trains, such as cuda; geometry stays on the CPU.
    """
    import torch

    from merope.data.latents import LinearCodec
    from merope.recipes.tiny_street import tiny_street, tiny_street_clips
    from merope.training.street_clips import CLIPS_PER_WORLD, render_street_clips

    if threads is not None:
        torch.set_num_threads(threads)
    is_estimator = preset == "tiny-street-estimator"
    if is_estimator and (encoding != "merope" or device != "cpu"):
        raise ValueError(
            "--encoding and --device are tiny-street's; the estimator has no camera encoding and trains on the CPU."
        )
    _require_device(device)
    config = (
        tiny_street(encoding=encoding)
        if steps is None or is_estimator
        else tiny_street(encoding=encoding, steps=steps)
    )
    if worlds is not None:
        config = replace(config, num_worlds=worlds)
    rendered = CLIPS_PER_WORLD * config.num_worlds
    needed = config.num_probe_clips + config.batch_size
    if rendered < needed:
        raise ValueError(
            f"--worlds {config.num_worlds} gives {rendered} clips; the held-out loss takes {config.num_probe_clips} and a "
            f"batch {config.batch_size}. Use --worlds {-(-needed // CLIPS_PER_WORLD)} or more."
        )
    folder = clips or Path("runs") / f"street-clips-{config.num_worlds}"
    print(f"clips: {config.num_worlds} worlds, three drives each, in {folder}")
    store = render_street_clips(folder, tiny_street_clips(config), workers=workers)
    codec_path = folder / "codec.safetensors"
    if not codec_path.exists():
        print("fitting the latent codec")
        LinearCodec.fit(
            store.sample_frames(300, config.spec.num_frames), channels=config.spec.latent_channels
        ).save(codec_path)
    codec = LinearCodec.load(codec_path)
    if is_estimator:
        _train_estimator(store, codec, config, steps, output or Path("runs") / preset)
        return
    from merope.cli.street import quiet_autocast
    from merope.training.loop import Trainer
    from merope.training.motion import with_motion_scale

    quiet_autocast()
    config = with_motion_scale(config, store)
    if "scale" in config.encoding:
        scale = config.encoding["scale"]
        print(
            f"translation scale: {scale['per_metre']:.4g} units per metre, from the clips' motion; their longest baseline: "
            f"{scale['reach']:.4g} m"
        )
    run = output or Path("runs") / "-".join(
        [config.name, str(config.steps), *([] if worlds is None else [f"{worlds}-worlds"])]
    )
    trainer = Trainer(run, config, clips=store, codec=codec, device=device)
    count = sum(parameter.numel() for parameter in trainer.parameters.values())
    print(
        f"{config.name}: {count / 1e6:.2f} M parameters train, {config.steps} steps of {config.batch_size} clips, in {run}"
    )
    trainer.run()
    state = "finished" if trainer.step == config.steps else "stopped; the same command goes on"
    print(f"{state} at step {trainer.step}; the model is in {run / 'model'}")
    if find_spec("matplotlib") is not None:
        from merope.evaluation.plots import plot_curves

        plot_curves(run / "curves.png", {config.name: run / "log.jsonl"})
        print(f"losses are drawn in {run / 'curves.png'}")


def _require_device(device: str) -> None:
    """Raise ValueError, before anything is rendered, unless tensors can be made there."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"--device {device} cannot be used: {reason}. `merope info` lists the devices here."
        ) from error


def _train_estimator(
    store: "StreetClips", codec: "LinearCodec", config: "TrainConfig", steps: int | None, output: Path
) -> None:
    from merope.adapters.command import spec_lens
    from merope.evaluation.estimators.motion_training import MotionTrainConfig, train_motion_network
    from merope.evaluation.estimators.network import NetworkEstimator

    spec = config.spec
    options = MotionTrainConfig() if steps is None else MotionTrainConfig(steps=steps)
    network = train_motion_network(output, store, codec, options, height=spec.height, width=spec.width)
    summary = {"steps": options.steps, "num_worlds": config.num_worlds}
    NetworkEstimator(network, camera=spec_lens(spec).to_dict(), fps=spec.fps, summary=summary).save(
        output / "estimator.safetensors"
    )
    print(f"the estimator is in {output / 'estimator.safetensors'}")
