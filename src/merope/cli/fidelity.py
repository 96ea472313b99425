"""``merope fidelity``: FID, KID, FVD and KVD of generated clips against real ones."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from merope.cli.data.reader_options import Reader, reader_options
from merope.cli.telling import tell_first
from merope.cli.usage import UsageError

FramesNetwork = Literal["inception", "inception-tf1", "inception-torchscript", "torchscript", "none"]
VideosNetwork = Literal["i3d-torchscript", "i3d-cdfvd", "none"]
MeasureName = Literal["fid", "kid", "fvd", "kvd"]


def fidelity(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    real: Path,
    out: Path,
    reader: Reader = "folder",
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    labels: tuple[str, ...] = (),
    preset: Literal["nuscenes-512"] | None = None,
    exclude_prefix: int | None = None,
    frames: int | None = None,
    frame_step: int = 1,
    clips: int | None = None,
    measures: tuple[MeasureName, ...] = ("fid", "kid", "fvd", "kvd"),
    fid_features: FramesNetwork = "inception",
    fid_weights: str | None = None,
    fvd_features: VideosNetwork = "i3d-torchscript",
    fvd_weights: str | None = None,
    resize: Literal["none", "nearest", "area", "bilinear", "bicubic"] = "none",
    antialias: bool = False,
    resize_height: int | None = None,
    resize_width: int | None = None,
    kernel_subsets: int | None = None,
    kernel_subset_size: int = 1000,
    seed: int = 0,
    allow_small: bool = False,
    allow_fewer: bool = False,
    cache: Path | None = None,
    device: str = "cpu",
    workers: int = 2,
    json: bool = False,
) -> None:
    """Measure how far generated clips are from real ones, and say under which protocol.

    Writes OUT/fidelity.json, which `merope evaluate --fidelity` shows beside the camera metrics. Features are kept in
    OUT/features, so that an added run costs its own clips alone and an interrupted command goes on where it stopped.
    Weights are a path or hf://OWNER/REPOSITORY/FILE; with MEROPE_OFFLINE=1 nothing is fetched. See docs/fidelity.md.

    Args:
        runs: Folders of generated clips, as `merope generate --out` writes them.
        real: The real clips: a folder as `merope data convert` writes it, or any data set with --reader.
        out: Folder that results and features are written to.
        reader: Kind of data set that REAL is.
        option: An option of the reader, as NAME=VALUE; may be given several times.
        labels: Names of the runs in the table, by default those of their folders.
        preset: The paper's protocol: 512 clips of 49 frames, the 9 given ones excluded, 40 frames of each.
        exclude_prefix: Leading frames of every clip that do not count; by default those that the generated clips were given.
        frames: Frames of each clip; by default all behind the prefix.
        frame_step: 1 takes every frame behind the prefix, 2 every second, and so on.
        clips: Clips of each set, the first ones by name; by default as many as the smallest set has.
        measures: Distances to measure.
        fid_features: Feature network of FID and KID: inception resizes antialiased as torchmetrics does, inception-tf1 not;
            inception-torchscript is StyleGAN's file, torchscript any file of yours; none leaves both out.
        fid_weights: Its weight file, which docs/fidelity.md names; for inception by default where torch-fidelity leaves it.
        fvd_features: Feature network of FVD and KVD: StyleGAN-V's TorchScript file, or cd-fvd's; none leaves both out.
        fvd_weights: Its weight file, which docs/fidelity.md names.
        resize: Bring frames to the network's input size so, in place of its own way; by default the network alone resizes.
        antialias: Resize with antialiasing (bilinear and bicubic).
        resize_height: Rows to resize to, in place of the network's input size.
        resize_width: Columns to resize to.
        kernel_subsets: Take KID and KVD over this many random subsets; by default over all pairs.
        kernel_subset_size: Samples of a subset.
        seed: Seed of the subsets.
        allow_small: Compute FID and FVD from no more samples than features too, marked as unstable.
        allow_fewer: Accept fewer clips than asked for, marked as incomplete.
        cache: Folder of features, to share them between outputs; by default OUT/features.
        device: Device of the networks, such as cuda.
        workers: Threads that read and decode ahead; their number changes no digit.
        json: Print fidelity.json and nothing else.
    """
    if not runs:
        raise UsageError("name at least one folder of generated clips.")
    if labels and len(labels) != len(runs):
        raise UsageError(f"--labels must name every run: {len(runs)} runs, {len(labels)} labels.")
    if (antialias or resize_height is not None or resize_width is not None) and resize == "none":
        raise UsageError("--antialias, --resize-height and --resize-width go with --resize MODE.")
    if preset is not None and not (exclude_prefix is frames is clips is None and frame_step == 1):
        raise UsageError(
            f"--preset {preset} says which frames and clips count; drop --exclude-prefix, --frames, --frame-step, --clips."
        )
    if workers < 1:
        raise UsageError(f"--workers must be at least 1; got {workers}.")
    wanted_frames = fid_features != "none" and bool({"fid", "kid"} & set(measures))
    wanted_videos = fvd_features != "none" and bool({"fvd", "kvd"} & set(measures))
    if not wanted_frames and not wanted_videos:
        raise UsageError("no distance is left: --measures names none whose features are not 'none'.")
    from dataclasses import replace

    from merope.evaluation.fidelity.clips import generated_collection, real_collection
    from merope.evaluation.fidelity.libraries import build_network
    from merope.evaluation.fidelity.measuring import measure
    from merope.evaluation.fidelity.protocol import PRESETS, FidelityProtocol, Resize
    from merope.evaluation.fidelity.results import FILE, fidelity_table, write_fidelity
    from merope.files import require_folder

    names = labels or tuple(run.resolve().name for run in runs)
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two runs would be called {doubled[0]!r}; name each (--labels).")
    try:
        shrink = (
            None
            if resize == "none"
            else Resize(mode=resize, height=resize_height, width=resize_width, antialias=antialias)
        )
        settings: dict[str, Any] = {
            "resize": shrink,
            "kernel_subsets": kernel_subsets,
            "kernel_subset_size": kernel_subset_size,
            "seed": seed,
        }
        chosen = (
            replace(PRESETS[preset], **settings)
            if preset is not None
            else FidelityProtocol(
                exclude_prefix=exclude_prefix or 0,
                num_frames=frames,
                frame_step=frame_step,
                num_clips=clips,
                **settings,
            )
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    require_folder(out)
    generated = [generated_collection(run, label=name) for run, name in zip(runs, names, strict=True)]
    true_clips = real_collection(real, reader=reader, **reader_options(reader, option))
    if true_clips.label in names:
        true_clips = replace(true_clips, label=f"real {true_clips.label}")
    if preset is None and exclude_prefix is None:
        given = sorted({clip.prefix_frames for each in generated for clip in each.clips})
        chosen = replace(chosen, exclude_prefix=given[-1])
        if not json:
            words = f"{given[0]} to {given[-1]}" if len(given) > 1 else f"{given[0]}"
            print(f"clips were given {words} frames; the first {given[-1]} of every clip do not count")
    presized = shrink is not None and shrink.height is None
    results = measure(
        true_clips,
        generated,
        protocol=chosen,
        frames_network=build_network(
            fid_features, weights=fid_weights, flag="--fid-weights", presized=presized, device=device
        )
        if wanted_frames
        else None,
        videos_network=build_network(
            fvd_features, weights=fvd_weights, flag="--fvd-weights", presized=presized, device=device
        )
        if wanted_videos
        else None,
        measures=measures,
        allow_small=allow_small,
        allow_fewer=allow_fewer,
        cache=out / "features" if cache is None else cache,
        workers=workers,
        progress=True,
    )
    write_fidelity(out / FILE, results, real=true_clips.label)
    if json:
        print((out / FILE).read_text(encoding="utf-8"), end="")
        return
    print(fidelity_table(results, real=true_clips.label))
    tell_first("real clip that cannot be opened", true_clips.missing)
    print(f"\nwritten to {out / FILE}")
