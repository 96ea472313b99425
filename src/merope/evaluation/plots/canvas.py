"""Figures without a display: the canvas, colours that colour-blind readers can tell apart, equal metres on both axes."""

import io
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
    canvas.draw()
    buffer = io.BytesIO()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def pdf_bytes(figure: "Figure") -> bytes:
    """A figure as PDF, the same bytes every time, laid out as `png_bytes` left it."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    figure.set_layout_engine("none")
    buffer = io.BytesIO()
    # Not savefig, for the same reason as above.
    FigureCanvasPdf(figure).print_pdf(buffer, metadata={"CreationDate": None})
    return buffer.getvalue()


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
