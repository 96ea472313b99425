"""``merope diagnose claims``: Table 1, measured."""

import json as jsonlib
from pathlib import Path

from merope.cli.extras import require

# Beyond it the default folder counts encodings instead of naming them.
_MOST_NAMES = 3


def claims(
    *,
    encoding: tuple[str, ...] = (),
    output: Path | None = None,
    markdown: bool = False,
    json: bool = False,
) -> None:
    """Measure Table 1: metric relative pose (A), factors per token (B), norms kept (C), for every encoding.

    Every yes and no comes with the number behind it and, where the paper's Table 1 has the encoding, with the paper's
    entry. Beside them: how the largest logit grows from 1 m to 10 km, and how far the translation code is unambiguous.
    Encodings are measured at their defaults in raw metres. Writes claims.json, claims.md and growth.png. About half a
    minute on one core.

    Args:
        encoding: Names of encodings, as `merope encodings` lists them; all of them without.
        output: Folder for the numbers and the plot; by default out/claims, or out/claims-NAMES when encodings are named.
        markdown: Print the table as Markdown and write nothing.
        json: Print one JSON object and write nothing.
    """
    if not (markdown or json):
        require("matplotlib", purpose="the plot of growth")
    from merope.encodings.registry import encoding_kind
    from merope.evaluation.encodings.claims import claims_table
    from merope.evaluation.encodings.growth_plot import plot_growth
    from merope.files import require_folder, write_text_atomically

    names = tuple(dict.fromkeys(encoding))
    for name in names:
        encoding_kind(name)
    if output is None:
        output = _folder(names)
    if not (markdown or json):
        require_folder(output)
    table = claims_table(names, progress=True)
    written = jsonlib.dumps(table.to_dict(), indent=1)
    if json:
        print(written)
    elif markdown:
        print(table.to_markdown())
    else:
        write_text_atomically(output / "claims.json", written + "\n")
        write_text_atomically(output / "claims.md", table.to_markdown() + "\n")
        plot_growth(output / "growth.png", table)
        print(table.to_text())
        print(f"\nwritten to {output}: claims.json, claims.md, growth.png")


def _folder(names: tuple[str, ...]) -> Path:
    """A table of some encodings does not take the place of the whole one."""
    if not names:
        return Path("out/claims")
    if len(names) > _MOST_NAMES:
        names = (*names[:_MOST_NAMES], f"and-{len(names) - _MOST_NAMES}-more")
    return Path("out") / "-".join(("claims", *names))
