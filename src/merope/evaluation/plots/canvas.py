"""Figures without a display: the canvas, colours that colour-blind readers can tell apart, equal metres on both axes."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from merope.errors import MissingDependency

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito: distinct for colour-blind readers, and in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
COMMANDED = "#222222"
"""Colour of a commanded path."""
# What matplotlib calls things that were given no label.
_UNNAMED = re.compile(r"_child\d+|_nolegend_|")
# Inches that a letter of a legend takes on average, and its line and gaps.
_LETTER, _HANDLE = 0.075, 0.6


def equal_metres(axes: Any, *, narrowest: float = 0.2) -> None:
    """Equal scale, and limits that keep a straight road from becoming a hair: at least ``narrowest`` as wide as long."""
    axes.set_aspect("equal", adjustable="box")
    spans = np.array([axes.get_xlim(), axes.get_ylim()])
    lengths = spans[:, 1] - spans[:, 0]
    half = np.maximum(lengths, max(lengths.max() * narrowest, 1e-3)) / 2
    middle = spans.mean(axis=1)
    axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
    axes.set_ylim(middle[1] - half[1], middle[1] + half[1])


def png_bytes(figure: "Figure", *, dpi: int = 130) -> bytes:
    """A figure as PNG, for inlining."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    # Drawn once: savefig goes through the whole figure twice, the first time for its layout alone.
    with _quiet_about_letters():
        canvas.draw()
    buffer = io.BytesIO()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def pdf_bytes(figure: "Figure") -> bytes:
    """A figure as PDF, the same bytes every time, laid out as `png_bytes` left it."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    figure.set_layout_engine("none")
    buffer = io.BytesIO()
    # Conferences refuse Type 3 fonts, which are matplotlib's default.
    with _quiet_about_letters(), rc_context({"pdf.fonttype": 42}):
        # Not savefig, for the same reason as above.
        FigureCanvasPdf(figure).print_pdf(buffer, metadata={"CreationDate": None})
    return buffer.getvalue()


@contextmanager
def _quiet_about_letters() -> Iterator[None]:
    """Letters that the font lacks are boxes, and anybody sees them: not a warning for each of them each time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(width: float, height: float) -> "Figure":
    """A figure on the Agg canvas, whatever backend the process has chosen; pyplot is never touched."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency.for_extra("matplotlib", extra="plot", purpose="plotting") from None
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def cycle(num: int) -> list[str]:
    """One colour for each of ``num`` things, from the start again after six."""
    return [COLORS[index % len(COLORS)] for index in range(num)]


def grid_lines(axes: Any, *, which: str = "major") -> None:
    """Thin grey lines under everything that is drawn."""
    axes.grid(color="#dddddd", lw=0.6, which=which)
    axes.set_axisbelow(True)


def plain_text(text: str, length: int = 44) -> str:
    """Somebody's name as it stands in a figure: on one line, no mathematics in it, of a long one the start and the end."""
    line = " ".join(text.split())
    if len(line) > length:
        # Ends tell names apart more often than starts do.
        start = length // 3
        line = f"{line[:start]}…{line[start + 1 - length :]}"
    return line.replace("$", r"\$")


def legend_handles(*places: Any) -> dict[str, Any]:
    """What axes show, by its label, the first of each; also what matplotlib keeps out of legends for a label like _a."""
    found: dict[str, Any] = {}
    for axes in places:
        for artist in (*axes.lines, *axes.patches, *axes.collections):
            label = str(artist.get_label())
            if not _UNNAMED.fullmatch(label):
                found.setdefault(label, artist)
    return found


def add_legend(
    figure: "Figure",
    handles: Mapping[str, Any],
    *,
    loc: Any = "outside lower center",
    most: int = 4,
    length: int = 44,
) -> None:
    """A legend outside the axes, in as many columns as names of ``length`` letters leave room for, at most ``most``."""
    texts = [plain_text(label, length) for label in handles]
    widest = max((len(text) for text in texts), default=0)
    columns = int(figure.get_figwidth() / (_LETTER * widest + _HANDLE))
    figure.legend(
        list(handles.values()),
        # matplotlib leaves out what begins with an underscore.
        [f" {text}" if text.startswith("_") else text for text in texts],
        loc=loc,
        frameon=False,
        fontsize=9,
        ncols=max(1, min(most, columns, len(texts))),
    )
