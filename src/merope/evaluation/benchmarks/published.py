"""The paper's own numbers: Tables 2, 3, 4, 5 and 7, as printed, to stand beside runs of the same protocol."""

from dataclasses import dataclass

from merope.evaluation.benchmarks.registry import find_benchmark

DRIVING_COLUMNS = ("rot_deg", "tr_percent", "auc_3", "auc_10", "cammc", "fid", "fvd")
PANSHOT_COLUMNS = ("rot_err_rad", "trans_err", "cammc")

_Row = tuple[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """One table of the paper. Its numbers are means over the benchmark's clips, without intervals."""

    title: str
    source: str
    """Table and section."""
    columns: tuple[str, ...]
    """Keys of `SPECS`, and "fid" and "fvd"."""
    rows: dict[str, dict[str, float]]
    """Values by label and column, in the order of the print."""


def _table(title: str, source: str, columns: tuple[str, ...], rows: tuple[_Row, ...]) -> PublishedTable:
    return PublishedTable(
        title=title,
        source=source,
        columns=columns[: len(rows[0][1])],
        rows={label: dict(zip(columns[: len(values)], values, strict=True)) for label, values in rows},
    )


_DRIVING = (
    _table(
        "camera encodings on one backbone",
        "Table 2, Section 4.2",
        DRIVING_COLUMNS,
        (
            ("No camera PE", (5.57, 5.94, 17.21, 52.05, 7.96, 21.06, 153.31)),
            ("RayRoPE", (1.83, 2.97, 36.56, 76.62, 2.78, 21.21, 150.26)),
            ("PRoPE", (1.53, 3.10, 42.11, 78.58, 2.67, 20.40, 142.16)),
            ("RayNova", (1.56, 3.02, 41.19, 78.42, 2.66, 20.15, 144.91)),
            ("CameraCtrl-style", (1.54, 3.07, 42.57, 78.90, 2.63, 20.13, 142.23)),
            ("URoPE", (1.66, 2.67, 44.41, 79.92, 2.53, 19.98, 135.63)),
            ("GTA", (1.44, 3.03, 40.53, 77.72, 2.49, 20.00, 141.84)),
            ("UCPE", (1.39, 2.95, 41.21, 78.38, 2.45, 20.20, 136.40)),
            ("MeRoPE", (1.37, 2.84, 42.11, 79.47, 2.32, 19.82, 134.15)),
        ),
    ),
    _table(
        "components of the encoding",
        "Table 3, Section 4.2",
        DRIVING_COLUMNS,
        (
            ("MeRoPE", (1.37, 2.84, 42.11, 79.47, 2.32)),
            ("Rot. + trans.", (1.36, 3.09, 38.82, 77.50, 2.40)),
            ("Disparity + trans.", (1.66, 2.88, 40.60, 78.82, 2.56)),
            ("Disparity + rot.", (1.48, 4.31, 44.42, 79.78, 3.66)),
            ("Disparity only", (1.59, 4.01, 43.19, 79.53, 3.56)),
            ("Rotation only", (1.41, 4.01, 42.52, 78.33, 3.35)),
            ("Translation only", (2.59, 3.09, 30.64, 73.50, 3.50)),
        ),
    ),
    _table(
        "architecture and injection",
        "Table 5, Appendix C.1",
        DRIVING_COLUMNS,
        (
            ("C=2", (1.37, 2.68, 45.28, 80.62, 2.26)),
            ("C=4 (ours)", (1.37, 2.84, 42.11, 79.47, 2.32)),
            ("C=8", (1.47, 2.83, 41.85, 79.11, 2.42)),
            ("Single f", (1.49, 3.58, 43.34, 79.61, 3.01)),
            ("Every block", (1.38, 2.65, 43.60, 79.90, 2.27)),
            ("Peak 11, 13", (1.37, 2.97, 45.00, 80.27, 2.43)),
            ("ReRoPE", (1.67, 2.67, 42.98, 79.71, 2.53)),
        ),
    ),
    _table(
        # The row without history has the FID and FVD of Table 2's MeRoPE and other pose figures; the paper does not say why.
        "retrieved history; poses of its first row are not those of Table 2, and the paper does not say why",
        "Table 7, Appendix C.3",
        DRIVING_COLUMNS,
        (
            ("MeRoPE (no history)", (0.82, 2.21, 48.76, 83.24, 1.60, 19.82, 134.15)),
            ("MeRoPE + History CA", (0.78, 2.13, 52.01, 84.17, 1.52, 19.59, 130.27)),
            ("MeRoPE + History SA", (0.74, 2.11, 51.65, 84.22, 1.48, 18.21, 104.41)),
        ),
    ),
)

_PANSHOT = _table(
    "near-depth normalisation on",
    "Table 4 (a), Section 4.3",
    PANSHOT_COLUMNS,
    (
        ("GTA", (5.14, 19.85, 22.59)),
        ("PRoPE", (5.10, 20.38, 23.02)),
        ("UCPE", (4.22, 15.15, 17.50)),
        ("MeRoPE", (4.57, 10.99, 13.88)),
    ),
)
_PANSHOT_METRES = _table(
    "near-depth normalisation off",
    "Table 4 (b), Section 4.3",
    PANSHOT_COLUMNS,
    (
        ("GTA", (5.30, 22.70, 25.34)),
        ("PRoPE", (5.11, 23.04, 25.58)),
        ("UCPE", (4.40, 17.91, 20.13)),
        ("MeRoPE", (4.82, 12.66, 15.56)),
    ),
)

_TABLES = {
    "nuscenes-384": _DRIVING,
    "panshot-272": (_PANSHOT,),
    "panshot-272-metres": (_PANSHOT_METRES,),
}


def published_tables(benchmark: str) -> tuple[PublishedTable, ...]:
    """The paper's tables of a benchmark, the main one first; none for one that is not the paper's.

    Raises:
        ValueError: if there is no such benchmark.
    """
    return _TABLES.get(find_benchmark(benchmark).name, ())


def published_rows(benchmark: str) -> dict[str, dict[str, float]]:
    """Values by label and column of the paper's main table of a benchmark (Table 2, Table 4); empty where it has none.

    Raises:
        ValueError: if there is no such benchmark.
    """
    tables = published_tables(benchmark)
    return {label: dict(values) for label, values in tables[0].rows.items()} if tables else {}
