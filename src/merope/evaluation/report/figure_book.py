"""The folder of a report's figures: written one by one, listed with their captions, those of an earlier report removed."""

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from merope.evaluation.plots.canvas import pdf_bytes, png_bytes
from merope.evaluation.report.markup import data_uri, figure
from merope.files import atomic_path, write_text_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_INLINE_BYTES = 5_000_000
"""Pictures in the page; what comes after is in the folder alone."""
LIST = "figures.json"
"""Names the figures of the report, with their captions."""
_FILE = re.compile(r"[a-z0-9-]+\.(?:png|pdf)")


class FigureBook:
    """Figures in the order in which they are added: files in ``folder``, and HTML until the page is full.

    ``figures.json`` lists them. Files that it names before the first figure is added are an earlier report's, which
    `close` removes unless they were written anew; files that no report wrote stay.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inlined = 0
        self._earlier = _listed(folder / LIST)
        self._own: dict[str, dict[str, Any]] = {}

    def add(
        self, name: str, drawn: "Figure", caption: str, *, photos: bool = False, wide: bool = True
    ) -> str:
        """Write ``name``.png and .pdf and return the figure's HTML; photographs go into the page as JPEG."""
        name = self._free(name)
        files = {f"{name}.png": png_bytes(drawn), f"{name}.pdf": pdf_bytes(drawn)}
        self._own[name] = {"files": list(files), "caption": caption}
        # Before the files: one that a report has left behind is always listed.
        self._write_list({**self._earlier, **self._own})
        for file, written in files.items():
            with atomic_path(self.folder / file) as temporary:
                temporary.write_bytes(written)
        content, media = files[f"{name}.png"], "image/png"
        if photos:
            packed = io.BytesIO()
            Image.open(io.BytesIO(content)).convert("RGB").save(
                packed, format="JPEG", quality=85, optimize=True
            )
            content, media = packed.getvalue(), "image/jpeg"
        if self.inlined + len(content) > MAX_INLINE_BYTES:
            return f"<p>{name}.png, in the folder figures: the page is full.</p>"
        self.inlined += len(content)
        return figure(data_uri(content, media), caption, wide=wide)

    def close(self) -> None:
        """Remove what an earlier report wrote and this one did not, and list this one's figures alone."""
        kept = {file for entry in self._own.values() for file in entry["files"]}
        for entry in self._earlier.values():
            for file in entry["files"]:
                if file not in kept:
                    (self.folder / file).unlink(missing_ok=True)
        if self._own or self._earlier:
            self._write_list(self._own)

    def _write_list(self, entries: dict[str, dict[str, Any]]) -> None:
        write_text_atomically(self.folder / LIST, json.dumps(entries, indent=1, ensure_ascii=False) + "\n")

    def _free(self, name: str) -> str:
        """A file name that says what it is and that no other figure has."""
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80].strip("-") or "figure"
        free, number = plain, 2
        while free in self._own:
            free, number = f"{plain}-{number}", number + 1
        return free


def _listed(path: Path) -> dict[str, dict[str, Any]]:
    """The figures that a list names; nothing where there is none or it is something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    found = {}
    for name, entry in content.items():
        files = entry.get("files") if isinstance(entry, dict) else None
        # A name with a folder in it could reach files that are none of ours.
        if isinstance(files, list) and all(isinstance(file, str) and _FILE.fullmatch(file) for file in files):
            found[name] = entry
    return found
