"""The plain folder of clips, which `merope worlds render` and `merope data convert` write, as a data set."""

from dataclasses import dataclass
from pathlib import Path

from merope.data.clips.clip import Clip
from merope.data.clips.folder import clip_ids, read_clip
from merope.data.datasets.clip_set import ClipSet, DataSet
from merope.data.foreign_files.contained_paths import below


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """Nothing: the files of a clip say everything."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FolderSet(ClipSet):
    """Clips that are folders with frames, poses, lens and caption."""

    root: Path

    def open_clip(self, clip_id: str) -> Clip:
        """The clip in the folder of this name."""
        return read_clip(below(self.root, clip_id))


def open_folder(root: Path, options: FolderOptions) -> FolderSet:
    """Every folder below ``root`` that holds a poses.json."""
    return FolderSet(source=root.resolve().name, ids=tuple(clip_ids(root)), root=root)


DATASETS = {
    "folder": DataSet(
        about="the plain folder of clips that this project writes",
        layout="CLIP_ID/poses.json with frames/ or video.mp4, and what else docs/data.md lists",
        options=FolderOptions,
        open=open_folder,
    ),
}
