"""Table 1 as a measurement: yes and no for every encoding, with the number behind each, beside the paper's entry."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

from tqdm import tqdm

from merope.encodings.base import CameraEncoding, Claims, Facts
from merope.encodings.measures import (
    BASELINES,
    BOUNDED,
    FACTORS,
    KEEPS_NORMS,
    SEEN,
    UNCHANGED,
    Growth,
    Measured,
    Sensitivity,
    measure,
)
from merope.encodings.registry import ENCODINGS, encoding_kind
from merope.encodings.unambiguous import AXES, TranslationRange, translation_range

_PAPER = {
    "cape": "yyn",
    "gta": "yyn",
    "prope": "yyn",
    "ucpe": "yyn",
    "raynova": "nyy",
    "viewrope": "nyy",
    "urope": "nny",
    "rayrope": "nnn",
    "crepe": "nnn",
    "merope": "yny",
}

PAPER_TABLE_1: Mapping[str, Claims] = {
    name: Claims(**{word: letter == "y" for word, letter in zip(Claims.__slots__, letters, strict=True)})
    for name, letters in _PAPER.items()
}
"""The paper's entries, in its order."""

_DISPLACEMENT = (
    "its displacement band is that of Eq. 8 with other wavelengths and sees metres whatever the depth: (A) fails for the "
    "predicted depth in its other channels, not because image coordinates know translation only up to depth"
)
NOTES: Mapping[str, tuple[str, ...]] = {
    "rayrope": (_DISPLACEMENT,),
    "crepe": (_DISPLACEMENT, "all of it a reconstruction"),
    "scope": ("logits grow as the logarithm of the baseline; its injection also normalises and gates",),
}
"""What the numbers of an encoding do not say by themselves."""

CONVENTIONS = (
    "Encodings are at their defaults, in float64; translation is in raw metres, whatever scale an encoding would be "
    "given for use.",
    "(A) is yes where U_ab is a function of the relative pose alone (the first view of the clip, the world's origin and "
    "axes and predicted depths may do what they like) and sees all of it in metres: the length of a translation in six "
    "directions when the scene's depth grows with it, its direction, and rotation.",
    "(B) is yes where the matrix of all U_ab between four query and four key cameras has rank d at most.",
    "(C) is yes where all singular values of U_ab are one, on random cameras and on the standing scenes.",
    "A yes has to hold among cameras kilometres apart too ((B): hundreds of metres); the columns are those near by.",
    "Additive encodings count as maps of [q; 1] and [k; 1], their features through fixed random projections; predicted "
    "depths are given as 1.5 m.",
)
"""What stands behind the numbers, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One encoding."""

    name: str
    facts: Facts
    paper: Claims | None
    """The paper's entry; None for encodings that its Table 1 does not have."""
    stated: Claims
    """What the encoding's own class claims."""
    measured: Measured
    reach: TranslationRange
    """Along ``axis``."""
    axis: str = "ahead"
    """The first of `AXES` along which the encoding sees translation; the first one if it sees none."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why (A) is a no, and what else the yes and no do not say."""
        depends = self.measured.dependence
        found = []
        size = max(1.0, depends.largest_entry)
        if depends.clip_moved / size > UNCHANGED:
            found.append("depends on the world's coordinates")
        elif depends.pair_moved / size > UNCHANGED:
            found.append("depends on where the clip's first view is")
        if depends.depth_doubled / size > UNCHANGED:
            found.append("depends on predicted depths")
        found += _unseen(self.measured.sensitivity)
        if self.reach.saturated is not None:
            found.append(f"tells no distances apart beyond {self.reach.saturated:.0f} m")
        if self.paper is not None and self.paper != self.measured.claims:
            found.append(f"the paper has {_letters(self.paper)}")
        return (*found, *NOTES.get(self.name, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsTable:
    """All rows, the paper's first and in its order."""

    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: conventions, thresholds, and for every encoding all that was measured."""
        return {
            "conventions": list(CONVENTIONS),
            "thresholds": {
                "largest change of an entry that is none": UNCHANGED,
                "least change of logits that is seen": SEEN,
                "largest sigma_{d+1} / sigma_1 that is none": FACTORS,
                "largest departure of norm ratios that is none": KEEPS_NORMS,
                "largest exponent of growth that is bounded": BOUNDED,
            },
            "baselines_m": list(BASELINES),
            "encodings": [_row_to_dict(row) for row in self.rows],
        }

    def to_markdown(self) -> str:
        """The table for a page, with the conventions below it."""
        header = (
            "encoding", "(A)", "(B)", "(C)", "paper", "beside the pose", "metres", "rank", "norms", "logits, 10 km",
            "comes back at", "notes",
        )  # fmt: skip
        lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
        lines += [f"| {' | '.join(_cells(row))} |" for row in self.rows]
        return "\n".join([*lines, "", *(f"- {line}" for line in _legend())])

    def to_text(self) -> str:
        """The table for a terminal."""
        header = (
            "encoding",
            "A B C",
            "paper",
            "beside",
            "metres",
            "rank",
            "norms",
            "logits, 10 km",
            "back at",
        )
        lines: list[tuple[str, ...]] = [header]
        for row in self.rows:
            _, a, b, c, *numbers, _ = _cells(row)
            lines.append((row.name, f"{a[0]} {b[0]} {c[0]}", *numbers))
        widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
        table = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        notes = [f"{row.name}: {'; '.join(row.notes)}." for row in self.rows if row.notes]
        words = [fill(text, 110, subsequent_indent="  ") for text in (*notes, "", *_legend())]
        return "\n".join([*table, "", *words])


def claims_table(names: Sequence[str] = (), *, progress: bool = False) -> ClaimsTable:
    """Measure encodings of the registry at their defaults; all of them if none is named.

    ``progress`` draws a bar on stderr where that is a terminal.

    Raises:
        ValueError: if a name is not in the registry.
    """
    shown = tqdm(
        names or encoding_names(), desc="encodings", unit="encoding", disable=None if progress else True
    )
    return ClaimsTable(rows=tuple(_row(name) for name in shown))


def encoding_names() -> tuple[str, ...]:
    """All encodings of the registry, those of the paper's Table 1 first and in its order."""
    return (*PAPER_TABLE_1, *(name for name in ENCODINGS if name not in PAPER_TABLE_1))


def _row(name: str) -> Row:
    encoding = encoding_kind(name)()
    axis, reach = _first_seen(encoding)
    return Row(
        name=name,
        facts=encoding.facts,
        paper=PAPER_TABLE_1.get(name),
        stated=encoding.claims,
        measured=measure(encoding),
        reach=reach,
        axis=axis,
    )


def _first_seen(encoding: CameraEncoding) -> tuple[str, TranslationRange]:
    """An axis along which the encoding sees translation, if there is one, and how far."""
    ranges = {}
    for axis in AXES:
        ranges[axis] = translation_range(encoding, axis=axis)
        if ranges[axis].sees:
            return axis, ranges[axis]
    return next(iter(ranges.items()))


def _unseen(sees: Sensitivity) -> list[str]:
    """What of the relative pose changes no logit."""
    found = []
    gone = [way for way, change in sees.depth_kept.items() if change <= SEEN]
    lost = [way for way, change in sees.depth_scaled.items() if change <= SEEN and way not in gone]
    still = [axis for axis, change in sees.turned_about.items() if change <= SEEN]
    no_translation = len(gone) == len(sees.depth_kept)
    no_rotation = len(still) == len(sees.turned_about)
    if no_translation and no_rotation:
        return ["no pose"]
    if no_translation:
        found.append("no translation")
    elif gone:
        found.append(f"sees no translation {', '.join(gone)}")
    if lost:
        ways = "" if len(lost) == len(sees.depth_scaled) else f" {', '.join(lost)}"
        found.append(f"translation{ways} vanishes when the scene's depth grows with it")
    if not gone and not lost and sees.apart <= SEEN:
        found.append("no direction of translation")
    if no_rotation:
        found.append("no rotation")
    elif still:
        found.append(f"sees no rotation about {', '.join(still)}")
    return found


def _row_to_dict(row: Row) -> dict[str, Any]:
    measured = row.measured
    return {
        "name": row.name,
        "title": row.facts.title,
        "source": row.facts.source,
        "measured": asdict(measured.claims),
        "stated": asdict(row.stated),
        "paper": None if row.paper is None else asdict(row.paper),
        "notes": list(row.notes),
        "dependence": asdict(measured.dependence),
        "sensitivity": asdict(measured.sensitivity),
        "sigma_ratio": measured.factorisation,
        "norm_deviation": asdict(measured.norm),
        "growth": asdict(measured.growth)
        | {"logit_slope": measured.growth.logit_slope, "norm_slope": measured.growth.norm_slope},
        "translation_range_m": asdict(row.reach) | {"axis": row.axis},
    }


def _cells(row: Row) -> tuple[str, ...]:
    measured = row.measured
    claims, sees = measured.claims, measured.sensitivity
    return (
        f"`{row.name}` ({row.facts.title})",
        _word(claims.metric),
        _word(claims.per_token),
        _word(claims.norm_preserving),
        "-" if row.paper is None else _letters(row.paper),
        _number(measured.dependence.largest, UNCHANGED),
        _number(min(sees.depth_scaled.values()), 1e-9),
        _number(measured.factorisation, FACTORS),
        _number(measured.norm.largest, KEEPS_NORMS),
        _logits(measured.growth),
        _range(row.reach, row.axis),
        "; ".join(row.notes),
    )  # fmt: skip


def _legend() -> list[str]:
    return [
        "beside the pose: largest change of U_ab, relative to its largest entry, when the pair moves in the clip, the "
        "clip in the world, or predicted depths double. metres: least change of logits, in their own standard deviations, "
        "when 2.1 m become up to 1.83 times as many and the scene's depth with them. rank: sigma_{d+1} / sigma_1. norms: "
        "largest departure of |U x| / |x| from one. logits: the largest at a baseline of 10 km. comes back: metres at "
        "which the translation code is what it was (kappa >= 0.95), ahead, or else right or down where that is the first "
        f"that is seen. 0 is below {UNCHANGED:.0e}.",
        *CONVENTIONS,
    ]


def _word(holds: bool) -> str:
    return "Yes" if holds else "No"


def _letters(claims: Claims) -> str:
    return " ".join(_word(getattr(claims, word))[0] for word in Claims.__slots__)


def _number(value: float, zero: float) -> str:
    return "0" if value <= zero else f"{value:.2g}"


def _logits(growth: Growth) -> str:
    if growth.logit_slope < BOUNDED:
        return _number(growth.logits[-1], 1e-3)
    return f"{growth.logits[-1]:,.0f}, as b^{growth.logit_slope:.2f}"


def _range(reach: TranslationRange, axis: str) -> str:
    if not reach.sees:
        return "blind"
    along = "" if axis == "ahead" else f" {axis}"
    if reach.unambiguous is not None:
        return f"{reach.unambiguous:.3g} m{along}"
    never = "never" if reach.followed >= BASELINES[-1] else f"not within {reach.followed:.0f} m"
    return never + along
