"""``merope data encode``: latents and text embeddings of clips, made once and read by training."""

import os
from pathlib import Path
from typing import Annotated, Literal

import tyro

from merope.cli.data.reader_options import Reader, reader_options, tell_notes
from merope.cli.extras import require
from merope.cli.telling import tell_first


def encode(
    clips: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    model: str,
    out: Path,
    reader: Reader = "folder",
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    height: int = 288,
    width: int = 512,
    frames: int = 49,
    fps: float | None = None,
    stride_windows: int | None = None,
    allow_gaps: bool = False,
    crop: bool = False,
    source: str | None = None,
    split: Path | None = None,
    dtype: Literal["float16", "bfloat16", "float32"] = "float16",
    text_length: int = 512,
    text_dtype: Literal["bfloat16", "float32"] = "bfloat16",
    device: str | None = None,
    batch: int = 1,
    workers: int = 4,
) -> None:
    """Encode folders of clips with a Wan pipeline's autoencoder and text encoder, into a cache of latents.

    Run it again to go on where it was stopped, or to add clips. Under torchrun the clips are shared out over the
    processes, each on a GPU of its own. A clip that is broken, too short or of another shape is named and left
    out; the rest goes on. The formats of clips and cache are docs/data.md.

    Args:
        clips: Folders of clips, as `merope worlds render` writes them, or roots of another data set with --reader.
        model: Wan pipeline in diffusers' layout: a folder or a hub name. Its transformer is not loaded.
        out: Folder of the cache.
        reader: Kind of data set; `merope data readers` lists them.
        option: An option of the reader, as NAME=VALUE; may be given several times.
        height: Rows of the encoded frames, pixels; frames and lens are resized.
        width: Columns of the encoded frames, pixels.
        frames: Frames per window, 1 + 4k.
        fps: Frames per second that faster clips are thinned to; by default each keeps its own.
        stride_windows: Frames from the start of a window to that of the next; by default windows share no frame.
        allow_gaps: Let windows reach over missing frames (steps of more than 1.5 frame periods).
        crop: Cut clips of another shape about the middle, where they would be left out.
        source: Name of the data set, by which clusters are kept apart; by default what the clips say.
        split: Encode only the windows that this file names, as `merope data prototypes` writes it, with its clusters.
        dtype: In which latents are stored.
        text_length: Words that prompts are padded to, as in generation.
        text_dtype: In which the text encoder computes; the autoencoder computes in float32.
        device: Such as cuda or cpu; by default a GPU where there is one.
        batch: Windows that are encoded together.
        workers: Threads that decode frames.
    """
    require("transformers", purpose="encoding captions")
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    import torch

    from merope.data.clips.folder import require_distinct
    from merope.data.datasets import open_dataset, opened_clips, require_distinct_clips
    from merope.data.selection.motion_statistics import MOTION_FILE, SCALE, read_motion, write_motion
    from merope.data.selection.splits import read_split
    from merope.files import require_folder
    from merope.recipes.encode import ClipEncoder, EncodeConfig, encode_clips

    config = EncodeConfig(
        height=height,
        width=width,
        num_frames=frames,
        fps=fps,
        window_stride=stride_windows,
        allow_gaps=allow_gaps,
        crop=crop,
        dtype=dtype,
        text_length=text_length,
        batch=batch,
    )
    if not clips:
        raise ValueError("CLIPS must name at least one folder of clips.")
    chosen = None if split is None else read_split(split)
    measured = None
    if split is not None and chosen is not None and SCALE in chosen.statistics:
        measured = read_motion(split)
    options = reader_options(reader, option)
    sets = [open_dataset(reader, root, **options) for root in clips]
    if rank == 0:
        tell_notes(sets)
    if reader == "folder":
        folders = [root / name for root, found in zip(clips, sets, strict=True) for name in found.ids]
        require_distinct(folders, source=source)
    else:
        require_distinct_clips(sets, source=source)
    require_folder(out)
    if device is None:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    encoder = ClipEncoder.from_pretrained(model, config, device=device, text_dtype=getattr(torch, text_dtype))
    own = [(found, number) for found in sets for number in range(len(found))][rank::world_size]
    report = encode_clips(
        opened_clips(own, source=source),
        encoder,
        out,
        rank=rank,
        world_size=world_size,
        split=chosen,
        total=len(own),
        workers=workers,
        progress=rank == 0,
    )
    who = f"process {rank} of {world_size}: " if world_size > 1 else ""
    print(f"{who}{report.encoded} windows encoded, {report.there} were there")
    if report.without_caption:
        print(f"{who}{report.without_caption} of these without a caption, encoded with the empty prompt")
    if report.not_in_split:
        print(f"{who}{report.not_in_split} are not in the split")
    tell_first(f"{who}left out", report.skipped, rest="more, named in the cache's manifest.json")
    if report.cache is not None:
        if chosen is not None and measured is not None:
            # Training finds it there; it is of the split's clips, whichever of them this cache holds.
            write_motion(out / MOTION_FILE, measured, made={"command": "data encode", "split": chosen.name})
            print(f"{out / MOTION_FILE}: the translation scale of the split")
        print(f"{out}: {len(report.cache)} windows, {len(set(report.cache.clusters))} clusters")
