"""From clips to features: frames decoded by threads ahead of the network, features kept on disk by what they came from."""

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from tqdm import tqdm

from merope.data.clips.video import Frames
from merope.errors import MeropeError
from merope.evaluation.fidelity.clips import ClipCollection, ComparedClip, require_uint8
from merope.evaluation.fidelity.features import FeatureSet
from merope.evaluation.fidelity.networks import FeatureNetwork
from merope.evaluation.fidelity.protocol import FidelityProtocol, Resize
from merope.files import atomic_path, write_text_atomically

_ABOUT = "network.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extracted:
    """The features of one set, by the name of the network, and a hash of the frames that they came from."""

    features: dict[str, FeatureSet]
    frames_sha256: str
    num_computed: int
    """Blocks of features that were not there yet."""


def extract(
    collection: ClipCollection,
    networks: Sequence[FeatureNetwork],
    protocol: FidelityProtocol,
    *,
    cache: Path | None = None,
    workers: int = 2,
    progress: bool = False,
) -> Extracted:
    """The features of every clip, one block for each, in the order of the clips.

    ``workers`` threads hash and decode ahead; the networks run in this thread, on the frames of one clip at a time in
    batches of a fixed size, so that the number of workers changes no digit and memory does not grow with the number of
    clips. With ``cache`` a block is kept as a file named by a hash of its frames, in a folder named by one of network
    and resize: what is there is not computed again, whichever run or real set it belongs to.

    Raises:
        ValueError: if two networks have one name, or there is not at least one worker.
        MeropeError: if a clip's frames cannot be read or are not of its size.
        TypeError: if they are not uint8.
    """
    names = [network.name for network in networks]
    if len(set(names)) < len(names):
        raise ValueError(
            f"networks must have names that differ, by which features are told apart; got {names}."
        )
    if workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}.")
    folders = [None if cache is None else _folder(cache, network, protocol.resize) for network in networks]
    blocks: list[list[Path | Float32[np.ndarray, "_ _"]]] = [[] for _ in networks]
    identity, computed = hashlib.sha256(), 0
    ahead = _read_ahead(collection.clips, protocol, folders, workers)
    for clip, (digest, frames) in tqdm(
        ahead, total=len(collection.clips), desc=collection.label, unit="clip", disable=not progress
    ):
        identity.update(digest.encode())
        for number, (network, folder) in enumerate(zip(networks, folders, strict=True)):
            path = None if folder is None else folder / f"{digest}.npy"
            if path is not None and _is_block(path):
                blocks[number].append(path)
                continue
            # Missing only between the look ahead and now, where somebody tidies the cache.
            frames = clip.read(protocol.frames_of(clip.num_frames)) if frames is None else frames
            block = features_of_clip(network, _checked(frames, clip, protocol), protocol.resize)
            computed += 1
            if path is None:
                blocks[number].append(block)
                continue
            with atomic_path(path) as unfinished:
                np.save(unfinished, block)
            blocks[number].append(path)
    return Extracted(
        features={network.name: _as_set(found) for network, found in zip(networks, blocks, strict=True)},
        frames_sha256=identity.hexdigest(),
        num_computed=computed,
    )


def features_of_clip(
    network: FeatureNetwork, frames: Frames, resize: Resize | None
) -> Float32[np.ndarray, "sample feature"]:
    """Features of the frames of one clip: one row for each of them, or one for all as a video."""
    pixels = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2)
    if resize is not None:
        pixels = resized(pixels, resize, network.input_size)
    if network.takes == "videos":
        pixels = pixels.permute(1, 0, 2, 3)[None]
    return network.features(pixels).numpy()


def resized(
    pixels: UInt8[Tensor, "frame 3 height width"], resize: Resize, input_size: tuple[int, int] | None
) -> UInt8[Tensor, "frame 3 new_height new_width"]:
    """Frames in another size, without corner alignment, rounded to uint8; ``input_size`` where ``resize`` has none.

    Raises:
        ValueError: if neither says a size.
    """
    size = input_size if resize.height is None or resize.width is None else (resize.height, resize.width)
    if size is None:
        raise ValueError("this network has no input size of its own: give the resize a height and a width.")
    # Frame by frame: a clip of large frames in float32 would be four times what decoding took.
    return torch.cat(
        [
            torch.nn.functional.interpolate(frame.float(), size, mode=resize.mode, antialias=resize.antialias)
            .round()
            .clamp(0, 255)
            .to(torch.uint8)
            for frame in pixels.split(1)
        ]
    )


def _read_ahead(
    clips: Sequence[ComparedClip],
    protocol: FidelityProtocol,
    folders: Sequence[Path | None],
    workers: int,
) -> Iterator[tuple[ComparedClip, tuple[str, Frames | None]]]:
    """Every clip with the hash of its frames and, unless all of its features are there, the frames."""

    def prepare(clip: ComparedClip) -> tuple[str, Frames | None]:
        numbers = protocol.frames_of(clip.num_frames)
        digest = clip.fingerprint(numbers)
        there = [folder is not None and _is_block(folder / f"{digest}.npy") for folder in folders]
        return digest, None if all(there) else clip.read(numbers)

    pending: deque[tuple[ComparedClip, Future[tuple[str, Frames | None]]]] = deque()
    waiting = iter(clips)
    with ThreadPoolExecutor(workers) as pool:
        try:
            while True:
                while len(pending) <= workers and (clip := next(waiting, None)) is not None:
                    pending.append((clip, pool.submit(prepare, clip)))
                if not pending:
                    return
                clip, future = pending.popleft()
                yield clip, future.result()
        finally:
            for _, future in pending:
                future.cancel()


def _checked(frames: Frames, clip: ComparedClip, protocol: FidelityProtocol) -> Frames:
    require_uint8(frames, clip.clip_id)
    wanted = (len(protocol.frames_of(clip.num_frames)), clip.height, clip.width)
    if frames.shape[:3] != wanted:
        raise MeropeError(
            f"{clip.clip_id}: frames of shape {frames.shape[:3]} (frame, height, width) came where {wanted} should be."
        )
    return frames


def _folder(cache: Path, network: FeatureNetwork, resize: Resize | None) -> Path:
    about = {
        **network.describe(),
        "takes": network.takes,
        "resize": None if resize is None else asdict(resize),
        "input_size": network.input_size,
    }
    text = json.dumps(about, sort_keys=True, indent=1)
    folder = cache / f"{network.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not (folder / _ABOUT).exists():
        write_text_atomically(folder / _ABOUT, text + "\n")
    return folder


def _is_block(path: Path) -> bool:
    """Whether a file of features is there; a damaged one is none, and is written again."""
    try:
        block = np.load(path, mmap_mode="r", allow_pickle=False)
    # numpy raises whatever damaged bytes lead it to: ValueError, tokenize.TokenError, zipfile.BadZipFile.
    except Exception:
        return False
    return block.ndim == 2 and block.dtype == np.float32 and block.size > 0


def _as_set(blocks: Sequence[Path | Float32[np.ndarray, "_ _"]]) -> FeatureSet:
    paths = [block for block in blocks if isinstance(block, Path)]
    if len(paths) == len(blocks):
        return FeatureSet.in_files(paths)
    return FeatureSet.in_memory([block for block in blocks if not isinstance(block, Path)])
