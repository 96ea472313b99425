"""`write_report`: one HTML file that can be mailed, with tables, plots, flags in words and the protocol."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from merope.evaluation.comparison import PairedComparison
from merope.evaluation.report.clip_table import clips_section, flags_section
from merope.evaluation.report.comparisons import comparisons_section
from merope.evaluation.report.figure_book import FigureBook
from merope.evaluation.report.figures import (
    overview_figures,
    run_colors,
    run_figures,
    runs_with_figures,
)
from merope.evaluation.report.frames_watch import FramesWatch
from merope.evaluation.report.in_short import short_section
from merope.evaluation.report.markup import data_uri, figure, section
from merope.evaluation.report.protocol_words import (
    metrics_section,
    protocol_section,
    settings_section,
    verdict_banner,
)
from merope.evaluation.report.script import SCRIPT
from merope.evaluation.report.style import STYLE
from merope.evaluation.report.tables import metric_sections
from merope.evaluation.results_files import Fidelity, write_results
from merope.evaluation.runs.run import ScoredRun
from merope.files import write_text_atomically

_MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".mp4": "video/mp4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportImage:
    """A picture for the report: a PNG, JPEG or SVG file, or an MP4, with its caption."""

    path: Path
    caption: str


def write_report(
    folder: str | Path,
    runs: Sequence[ScoredRun],
    *,
    title: str = "Camera control, measured",
    notes: Sequence[str] = (),
    history: Sequence[str] = (),
    images: Sequence[ReportImage] = (),
    comparisons: Sequence[PairedComparison] = (),
    fidelity: Fidelity | None = None,
) -> Path:
    """Write ``report.html``, the files of `write_results` and the folder ``figures`` into ``folder``; the page's path.

    A row of the tables for each run. References, such as a noise floor, do not compete for the best value. Figures
    come from the runs' clips; frames are read for the clips that are shown, one clip at a time. ``comparisons`` are
    those of `merope.evaluation.comparison.compare`, ``fidelity`` holds FID, KID, FVD and KVD by label. ``images`` and
    ``notes`` are shown as given; ``history`` says how the rows came about and stands with the settings. The page holds
    everything that it shows and asks no other machine for anything; its own pictures take at most 5 MB before they are
    written as text, those beyond that are in ``figures`` alone. ``figures/figures.json`` lists the figures with their
    captions; those that an earlier report wrote there and this one does not are removed. Clips whose frames can no
    longer be read are shown without them, and the page says so.

    Raises:
        ValueError: if there is no run, two carry the same label, or an image is of another kind.
        MissingDependency: if a run has clips to draw and matplotlib is not installed.
    """
    labels = [run.label for run in runs]
    if not runs or len(set(labels)) != len(labels):
        raise ValueError(f"runs must hold at least one run, each with its own label, got {labels}.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    given = [_inline_file(image) for image in images]
    write_results(
        folder,
        [run.result for run in runs],
        references=[run.label for run in runs if run.reference],
        comparisons=comparisons,
        fidelity=fidelity,
    )
    book, colors, watch = FigureBook(folder / "figures"), run_colors(runs), FramesWatch()
    drawn = watch.over(runs)
    overview = given + overview_figures(book, drawn)
    own = {run.label: run_figures(book, run, colors[run.label]) for run in runs_with_figures(drawn)}
    sections = [
        protocol_section(runs),
        *metric_sections(runs, fidelity),
        comparisons_section(comparisons),
        flags_section(runs),
        section("Pictures", _grid(overview), anchor="pictures"),
        section(
            "Clips in pictures",
            *(f"<h3>{escape(label)}</h3>{_grid(figures)}" for label, figures in own.items() if figures),
            anchor="shown",
        ),
        clips_section(runs),
        metrics_section(),
        settings_section(runs, history),
    ]
    page = _page(
        title,
        [*notes, *watch.notes()],
        verdict_banner(runs) + short_section(runs, comparisons),
        [part for part in sections if part],
    )
    write_text_atomically(folder / "report.html", page)
    # Last: until now the page that was there may show them.
    book.close()
    return folder / "report.html"


def _page(title: str, notes: Sequence[str], top: str, sections: Sequence[str]) -> str:
    # A browser runs this script and no other, and loads nothing from anywhere.
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    said = f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>' if notes else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head>\n'
        f"<body><main><h1>{escape(title)}</h1>\n{top}\n{said}\n{_contents(sections)}\n"
        + "\n".join(sections)
        + f"\n</main><script>{SCRIPT}</script></body></html>\n"
    )


def _contents(sections: Sequence[str]) -> str:
    """Links to the sections."""
    items = []
    for part in sections:
        anchor = part.split('id="', 1)[1].split('"', 1)[0]
        name = part.split("<h2>", 1)[1].split("</h2>", 1)[0]
        items.append(f'<li><a href="#{anchor}">{name}</a></li>')
    return f'<nav aria-label="Sections"><ul>{"".join(items)}</ul></nav>'


def _grid(figures: Sequence[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>' if figures else ""


def _inline_file(image: ReportImage) -> str:
    media = _MEDIA.get(image.path.suffix.lower())
    if media is None:
        raise ValueError(f"report images must end in {', '.join(_MEDIA)}, got {image.path.name}.")
    return figure(data_uri(image.path.read_bytes(), media), image.caption)
