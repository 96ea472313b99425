"""``merope train tiny-street`` and its estimator: train the small preset, or go on training it."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merope.data.caches.latents import LinearCodec
    from merope.training.config import TrainConfig
    from merope.training.street_clips import StreetClips


def tiny_street(
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
    """Train the small preset: a Wan transformer with camera branches on rendered streets of 40 x 64 pixels.

    Clips are rendered first and kept. Run the same command again to go on where it stopped; Ctrl-C or SIGTERM saves
    and stops.

    Args:
        encoding: Camera encoding by name, such as gta or ucpe (`merope encodings` lists them); native is the same model
            without camera encoding, none has no camera branch either.
        steps: Training steps; the default reproduces the shipped weights.
        worlds: Worlds to render, three clips each; the last 16 are kept aside for the held-out loss. By default one
            world for every three steps, from 64 to 1000.
        output: Folder of the run: state, log.jsonl and the model; default runs/tiny-street-ENCODING-STEPS, and
            the number of worlds where it is given.
        clips: Folder of rendered clips, 0.7 MB a world, made if missing; default runs/street-clips-WORLDS.
        workers: Processes that render.
        threads: Threads that train; default all cores.
        device: Where the model trains, such as cuda; geometry stays on the CPU.
    """
    from merope.recipes.tiny_street import tiny_street as preset

    _require_device(device)
    config = preset(encoding=encoding) if steps is None else preset(encoding=encoding, steps=steps)
    config, store, codec = _street_clips(config, worlds, clips, workers, threads)
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
        from merope.evaluation.plots.curves import plot_curves

        plot_curves(run / "curves.png", {config.name: run / "log.jsonl"})
        print(f"losses are drawn in {run / 'curves.png'}")


def tiny_street_estimator(
    *,
    steps: int | None = None,
    worlds: int | None = None,
    output: Path | None = None,
    clips: Path | None = None,
    workers: int = 2,
    threads: int | None = None,
) -> None:
    """Train the network that reads camera motion off tiny-street's frames, on the same clips.

    Clips are rendered first and kept. Run the same command again to go on from the last checkpoint, at most 250 steps
    back.

    Args:
        steps: Training steps; the default reproduces the shipped weights.
        worlds: Worlds to render, three clips each, by default 1000.
        output: Folder of the run: checkpoint, log.jsonl and the estimator; default runs/tiny-street-estimator.
        clips: Folder of rendered clips, 0.7 MB a world, made if missing; default runs/street-clips-WORLDS.
        workers: Processes that render.
        threads: Threads that train; default all cores.
    """
    from merope.recipes.tiny_street import tiny_street as preset

    config, store, codec = _street_clips(preset(), worlds, clips, workers, threads)
    _train_estimator(store, codec, config, steps, output or Path("runs") / "tiny-street-estimator")


def _street_clips(
    config: "TrainConfig", worlds: int | None, clips: Path | None, workers: int, threads: int | None
) -> "tuple[TrainConfig, StreetClips, LinearCodec]":
    """The configuration with its number of worlds, its rendered clips, and the codec fitted to them."""
    import torch

    from merope.data.caches.latents import LinearCodec
    from merope.recipes.tiny_street import tiny_street_clips
    from merope.training.street_clips import CLIPS_PER_WORLD, render_street_clips

    if threads is not None:
        torch.set_num_threads(threads)
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
    return config, store, LinearCodec.load(codec_path)


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
    from merope.evaluation.estimators.motion_network.estimator import NetworkEstimator
    from merope.evaluation.estimators.motion_network.training import MotionTrainConfig, train_motion_network

    spec = config.spec
    options = MotionTrainConfig() if steps is None else MotionTrainConfig(steps=steps)
    network = train_motion_network(output, store, codec, options, height=spec.height, width=spec.width)
    summary = {"steps": options.steps, "num_worlds": config.num_worlds}
    NetworkEstimator(network, camera=spec_lens(spec).to_dict(), fps=spec.fps, summary=summary).save(
        output / "estimator.safetensors"
    )
    print(f"the estimator is in {output / 'estimator.safetensors'}")
