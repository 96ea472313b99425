"""``merope diagnose trilemma``: Theorem 1 in numbers."""

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING

from merope.cli.extras import require

if TYPE_CHECKING:
    from merope.evaluation.encodings.trilemma import Trilemma


def trilemma(
    *,
    output: Path = Path("out/trilemma"),
    seeds: int = 5,
    dims: tuple[int, int, int] = (4, 8, 16),
    translation_range: float = 20.0,
    steps: int = 600,
    quick: bool = False,
    json: bool = False,
) -> None:
    """Look for the operator that Theorem 1 forbids, and place every encoding on the same axes.

    Gradient descent trains orthogonal per-token operators to depend on relative pose alone. The violation falls, and
    the sensitivity to translation falls with it; rotation stays. Then a sensitivity to translation is demanded, at
    several levels, and the violation that remains is the price. Writes trilemma.json and trilemma.png.

    Args:
        output: Folder for the numbers and the plot.
        seeds: Random starts per dimension.
        dims: Three dimensions of the operators, multiples of 4.
        translation_range: Translations are drawn from a ball of this radius, in metres.
        steps: Steps of gradient descent.
        quick: Two starts and 30 steps, to see the files; the numbers mean little.
        json: Print one JSON object instead of tables.
    """
    require("matplotlib", purpose="the plot of the trilemma")
    from merope.evaluation.encodings.trilemma import TrilemmaConfig, run_trilemma
    from merope.evaluation.encodings.trilemma_plot import plot_trilemma
    from merope.files import require_folder, write_text_atomically

    config = TrilemmaConfig(
        seeds=min(seeds, 2) if quick else seeds,
        dims=dims,
        translation_range=translation_range,
        steps=min(steps, 30) if quick else steps,
    )
    require_folder(output)
    result = run_trilemma(config)
    written = jsonlib.dumps(result.to_dict(), indent=1)
    write_text_atomically(output / "trilemma.json", written)
    plot_trilemma(output / "trilemma.png", result)
    if json:
        print(written)
        return
    print(table(result))
    print(f"\nwritten to {output}: trilemma.json, trilemma.png")


def table(result: "Trilemma") -> str:
    """The results in three tables, medians over starts."""
    from statistics import median

    config = result.config
    lines = [
        f"orthogonal per-token operators, translations to {config.translation_range:g} m, "
        f"medians over {config.seeds} starts",
        "",
        f"{'d':>3} {'demanded':>9}  {'violation':>20}  {'translation':>20}  {'rotation':>16}",
    ]
    groups = dict.fromkeys((d.dim, d.demanded) for d in result.descents)
    for dim, demanded in groups:
        runs = [d for d in result.descents if (d.dim, d.demanded) == (dim, demanded)]

        def change(quantity: str, digits: int, runs: list = runs) -> str:
            ends = [median(getattr(run.places[at], quantity) for run in runs) for at in (0, -1)]
            return f"{ends[0]:.{digits}f} -> {ends[1]:.{digits}f}"

        wanted = "-" if demanded is None else f"{demanded:g}"
        lines.append(
            f"{dim:>3} {wanted:>9}  {change('violation', 5):>20}  {change('translation', 5):>20}  "
            f"{change('rotation', 3):>16}"
        )
    lines += [
        "",
        f"{'encoding':<16} {'violation':>10} {'translation':>12} {'at 10x':>8} {'rotation':>9} {'norms':>9} "
        f"{'per token':>10}",
    ]
    for entry in result.encodings:
        place = entry.place
        lines.append(
            f"{entry.name:<16} {_number(place.violation):>10} {_number(place.translation):>12} "
            f"{_number(entry.far_translation):>8} {_number(place.rotation):>9} {_number(place.norm):>9} "
            f"{_number(entry.factor_residual):>10}"
        )
    lines += [
        "",
        "violation: of U(Ti, Tj) = U(I, Ti^-1 Tj). translation, rotation: how far U moves from I under one alone.",
        "norms: |U^T U - I|. per token: distance to every form L(Ti)^T K(Tj). 0 is below 1e-9.",
    ]
    return "\n".join(lines)


def _number(value: float) -> str:
    return "0" if value < 1e-9 else f"{value:.3f}"
