"""Pieces of HTML that the sections are made of; whatever comes from outside is escaped here."""

import base64
from collections.abc import Sequence
from html import escape

from merope.evaluation.protocol import MetricSpec

_ARROWS = {
    "lower": ("↓", "lower is better"),
    "higher": ("↑", "higher is better"),
    "one": ("→ 1", "1 is best"),
    "none": ("", ""),
}


def section(title: str, *parts: str, anchor: str) -> str:
    """A section under its heading; empty where there is nothing to say."""
    content = "\n".join(part for part in parts if part)
    if not content:
        return ""
    return f'<section id="{escape(anchor)}"><h2>{escape(title)}</h2>\n{content}\n</section>'


def paragraph(text: str) -> str:
    """Text as a paragraph."""
    return f"<p>{escape(text)}</p>"


def bullets(items: Sequence[str]) -> str:
    """A list of items that are HTML already; empty where there is none."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>" if items else ""


def table(
    caption: str,
    head: Sequence[str],
    bodies: Sequence[Sequence[str]],
    *,
    kind: str = "",
) -> str:
    """A table that scrolls inside itself: header cells and rows are HTML already, ``bodies`` are groups of rows."""
    groups = "".join(f"<tbody>{''.join(rows)}</tbody>" for rows in bodies if rows)
    attribute = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"<table{attribute}><caption>{escape(caption)}</caption><thead><tr>{''.join(head)}</tr></thead>{groups}</table></div>"
    )


def column(name: str, small: str = "", *, words: bool = False) -> str:
    """The head of a column, with its unit below; over ``words`` it stands at the left, over numbers at the right."""
    below = f"<small>{escape(small)}</small>" if small else ""
    kind = ' class="words"' if words else ""
    return f'<th scope="col"{kind}>{escape(name)}{below}</th>'


def metric_column(spec: MetricSpec) -> str:
    """The head of a metric's column: name, arrow, unit; its protocol where the pointer rests."""
    arrow, words = _ARROWS[spec.better]
    shown = (
        f' <span class="arrow" aria-hidden="true">{arrow}</span><span class="unseen"> ({words})</span>'
        if arrow
        else ""
    )
    return (
        f'<th scope="col" title="{escape(spec.protocol)}">{escape(spec.label)}{shown}'
        f"<small>{escape(spec.unit)}</small></th>"
    )


def row_head(text: str) -> str:
    """The head of a row."""
    return f'<th scope="row">{escape(text)}</th>'


def data_uri(content: bytes, media: str) -> str:
    """Bytes as an address that asks nobody."""
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def figure(uri: str, caption: str, *, alt: str | None = None, wide: bool = False) -> str:
    """A picture, or a film, under which its caption stands."""
    kind = ' class="wide"' if wide else ""
    if uri.startswith("data:video"):
        shown = f'<video src="{uri}" controls loop muted playsinline aria-label="{escape(alt or caption)}"></video>'
    else:
        shown = f'<img src="{uri}" alt="{escape(alt or caption)}">'
    return f"<figure{kind}>{shown}<figcaption>{escape(caption)}</figcaption></figure>"
