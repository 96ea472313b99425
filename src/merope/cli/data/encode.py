"""``merope data encode``: latents and text embeddings of clips, made once and read by training."""

import os
from pathlib import Path
from typing import Annotated, Literal

import tyro

from merope.cli.extras import require

# How many broken clips are named; all of them are in the cache's manifest.
_NAMED = 10


def encode(
    clips: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    model: str,
    out: Path,
    height: int = 288,
    width: int = 512,
    frames: int = 49,
    fps: float | None = None,
    stride_windows: int | None = None,
    crop: bool = False,
    source: str | None = None,
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
        clips: Folders of clips, as `merope worlds render` writes them.
        model: Wan pipeline in diffusers' layout: a folder or a hub name. Its transformer is not loaded.
        out: Folder of the cache.
        height: Rows of the encoded frames, pixels; frames and lens are resized.
        width: Columns of the encoded frames, pixels.
        frames: Frames per window, 1 + 4k.
        fps: Frames per second that faster clips are thinned to; by default each keeps its own.
        stride_windows: Frames from the start of a window to that of the next; by default windows share no frame.
        crop: Cut clips of another shape about the middle, where they would be left out.
        source: Name of the data set, by which clusters are kept apart; by default what the clips say.
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

    from merope.data.folder import clip_ids, read_clips, require_distinct
    from merope.files import require_folder
    from merope.recipes.encode import ClipEncoder, EncodeConfig, encode_clips

    config = EncodeConfig(
        height=height,
        width=width,
        num_frames=frames,
        fps=fps,
        window_stride=stride_windows,
        crop=crop,
        dtype=dtype,
        text_length=text_length,
        batch=batch,
    )
    if not clips:
        raise ValueError("CLIPS must name at least one folder of clips.")
    folders = [root / clip_id for root in clips for clip_id in clip_ids(root)]
    require_distinct(folders, source=source)
    require_folder(out)
    if device is None:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    encoder = ClipEncoder.from_pretrained(model, config, device=device, text_dtype=getattr(torch, text_dtype))
    own = folders[rank::world_size]
    report = encode_clips(
        read_clips(own, source=source, skip_broken=True),
        encoder,
        out,
        rank=rank,
        world_size=world_size,
        total=len(own),
        workers=workers,
        progress=rank == 0,
    )
    who = f"process {rank} of {world_size}: " if world_size > 1 else ""
    print(f"{who}{report.encoded} windows encoded, {report.there} were there")
    if report.without_caption:
        print(f"{who}{report.without_caption} of these without a caption, encoded with the empty prompt")
    for error in report.skipped[:_NAMED]:
        print(f"{who}left out: {error}")
    if len(report.skipped) > _NAMED:
        print(f"{who}left out: {len(report.skipped) - _NAMED} more, named in the cache's manifest.json")
    if report.cache is not None:
        print(f"{out}: {len(report.cache)} windows, {len(set(report.cache.clusters))} clusters")
