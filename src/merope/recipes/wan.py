"""The paper's training runs on pretrained Wan: one recipe per row of Tables 2, 3, 4 and 5.

A recipe is called with a base model's configurations (`merope.recipes.published`, or those of a folder) and gives a
`FinetuneConfig`. Sizes of heads follow the base, so that the same name trains a small Wan.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from merope.adapters.spec import wan_spec
from merope.encodings import LatitudeUpMap, MeRoPE
from merope.encodings.base import CameraEncoding
from merope.encodings.registry import default_encoding, encoding_to_config, input_map_to_config
from merope.encodings.scale import TranslationScale
from merope.recipes.published import PAPER_DRIVING_SIZES, WAN21_T2V_1_3B, WAN22_TI2V_5B
from merope.training.config import OptimizerConfig
from merope.training.finetune_config import FinetuneConfig, ParallelConfig

Schedule = Literal["alternate", "every"] | tuple[int, ...]
Change = Callable[[Any], CameraEncoding]
"""Takes an encoding with its defaults and gives the row's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One row of a table; call it for its configuration."""

    name: str
    rows: tuple[str, ...]
    """Rows of the paper that it trains, as "Table 2: MeRoPE"."""
    differs: str
    """What it has that `nuscenes-merope`, or `panshot-merope`, has not."""
    base: Mapping[str, Any]
    """The model that the paper starts from."""
    make: Callable[..., FinetuneConfig]

    def __call__(
        self, model: Mapping[str, Any] | None = None, *, scale: TranslationScale | None = None
    ) -> FinetuneConfig:
        """The configuration on ``model``, None for `base`: a mapping with its "transformer" and "vae" configurations.

        ``scale`` is the translation scale of an encoding in which metres enter linearly, the same for all rows of a
        table (Section 4.1). None leaves the encoding's own: training estimates it from its clips.

        Raises:
            ValueError: if the model's heads have a size that the encoding has no layout for, or sizes do not fit.
        """
        return self.make(self.name, self.base if model is None else model, scale)


def nuscenes(
    name: str,
    model: Mapping[str, Any],
    scale: TranslationScale | None,
    *,
    encoding: str = "merope",
    change: Change | None = None,
    compression: int = 4,
    schedule: Schedule = "alternate",
) -> FinetuneConfig:
    """A driving model (Section 4.1, B.1): 49 frames of 288 x 512, nine given; 20 k steps of 64 clips on all weights."""
    sizes: dict[str, Any] = dict(PAPER_DRIVING_SIZES)
    spec = wan_spec(model["transformer"], model["vae"], **sizes, fps=12.0, shift=5.0)
    heads, head_dim = _heads(model)
    made = default_encoding(encoding, head_dim=head_dim, num_heads=max(1, heads // compression), scale=scale)
    return FinetuneConfig(
        name=name,
        spec=spec,
        encoding=encoding_to_config(made if change is None else change(made)),
        compression=compression,
        schedule=schedule,
        trains="all",
        steps=20_000,
        global_batch=64,
        parallel=ParallelConfig(mode="hsdp", shard_size=4),
        optimizer=OptimizerConfig(learning_rate=1e-5),
    )


def panshot(
    name: str,
    model: Mapping[str, Any],
    scale: TranslationScale | None,
    *,
    encoding: str = "merope",
    change: Change | None = None,
    latitude_up: bool = False,
    near_depth: bool = True,
) -> FinetuneConfig:
    """A PanShot model (Section 4.3): 81 frames of 480 x 832, none given; 10 k steps of 8 clips on the branches.

    C = 8 with one head, 192 channels on the 1.3 B backbone (Table 4). ``near_depth`` says whether the clips' translations
    are over their near depth, (a) of the table; (b) takes metres.
    """
    spec = wan_spec(
        model["transformer"],
        model["vae"],
        height=480,
        width=832,
        num_frames=81,
        prefix_frames=0,
        fps=16.0,
        shift=5.0,
    )
    heads, head_dim = _heads(model)
    made = default_encoding(encoding, head_dim=heads * head_dim // 8, num_heads=1, scale=scale)
    return FinetuneConfig(
        name=name,
        spec=spec,
        pose_unit="normalized" if near_depth else "m",
        encoding=encoding_to_config(made if change is None else change(made)),
        input_map=input_map_to_config(LatitudeUpMap()) if latitude_up else None,
        compression=8,
        schedule="every",
        trains="branch",
        steps=10_000,
        global_batch=8,
        parallel=ParallelConfig(mode="replicate"),
        optimizer=OptimizerConfig(learning_rate=1e-4),
    )


def _heads(model: Mapping[str, Any]) -> tuple[int, int]:
    return model["transformer"]["num_attention_heads"], model["transformer"]["attention_head_dim"]


def _without(*components: str) -> Change:
    """MeRoPE with components switched off, whose channels stay and are left as they are (Table 3)."""
    return lambda made: replace(made, components=made.components - set(components))


def _single_wavelength(made: MeRoPE) -> MeRoPE:
    return MeRoPE.single_wavelength(head_dim=made.head_dim)


def _pretend_pinhole(made: Any) -> CameraEncoding:
    changed: CameraEncoding = replace(made, pretend_pinhole=True)
    return changed


def _nuscenes(name: str, rows: tuple[str, ...], differs: str, **options: Any) -> Recipe:
    make = partial(nuscenes, **options)
    return Recipe(name=f"nuscenes-{name}", rows=rows, differs=differs, base=WAN22_TI2V_5B, make=make)


def _panshot(name: str, title: str, differs: str, **options: Any) -> tuple[Recipe, Recipe]:
    """A method's rows with near-depth normalisation and without."""
    made = []
    for panel, suffix, near_depth in (("a", "", True), ("b", "-metres", False)):
        metres = "" if near_depth else "raw metres in place of near-depth normalisation"
        made.append(
            Recipe(
                name=f"panshot-{name}{suffix}",
                rows=(f"Table 4 ({panel}): {title}",),
                differs="; ".join(part for part in (differs, metres) if part) or "the base recipe",
                base=WAN21_T2V_1_3B,
                make=partial(panshot, near_depth=near_depth, **options),
            )
        )
    return made[0], made[1]


_ALL: tuple[Recipe, ...] = (
    _nuscenes(
        "merope",
        ("Table 2: MeRoPE", "Table 3: MeRoPE", "Table 5: C=4 (ours)", "Table 5: Default (ours)"),
        "the base recipe",
    ),
    _nuscenes("none", ("Table 2: No camera PE",), "no camera encoding and no branch", encoding="none"),
    *(
        _nuscenes(name, (f"Table 2: {title}",), f"encoding {name}", encoding=name)
        for name, title in (
            ("rayrope", "RayRoPE"),
            ("prope", "PRoPE"),
            ("raynova", "RayNova"),
            ("cameractrl", "CameraCtrl-style"),
            ("urope", "URoPE"),
            ("gta", "GTA"),
            ("ucpe", "UCPE"),
        )
    ),
    *(
        _nuscenes(
            f"merope-{name}", (f"Table 3: {title}",), f"without {' and '.join(off)}", change=_without(*off)
        )
        for name, title, off in (
            ("rot-trans", "Rot. + trans.", ("disp",)),
            ("disp-trans", "Disparity + trans.", ("rot",)),
            ("disp-rot", "Disparity + rot.", ("trans",)),
            ("disp", "Disparity only", ("rot", "trans")),
            ("rot", "Rotation only", ("disp", "trans")),
            ("trans", "Translation only", ("disp", "rot")),
        )
    ),
    _nuscenes("merope-c2", ("Table 5: C=2",), "C = 2", compression=2),
    _nuscenes("merope-c8", ("Table 5: C=8",), "C = 8", compression=8),
    _nuscenes(
        "merope-single", ("Table 5: Single f",), "one translation wavelength", change=_single_wavelength
    ),
    _nuscenes("merope-every", ("Table 5: Every block",), "a branch in every block", schedule="every"),
    _nuscenes(
        "merope-peak", ("Table 5: Peak 11, 13",), "branches in blocks 11 and 13 alone", schedule=(11, 13)
    ),
    _nuscenes(
        "rerope",
        ("Table 5: ReRoPE",),
        "carved into the backbone's own attention, no branch",
        encoding="rerope-merope",
    ),
    *_panshot("gta", "GTA", "encoding gta, latitude and up map", encoding="gta", latitude_up=True),
    *_panshot(
        "prope",
        "PRoPE",
        "encoding prope on lenses read as pinholes, latitude and up map",
        encoding="prope",
        change=_pretend_pinhole,
        latitude_up=True,
    ),
    *_panshot("ucpe", "UCPE", "encoding ucpe", encoding="ucpe"),
    *_panshot("merope", "MeRoPE", ""),
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
"""Every recipe by the name that ``merope train finetune`` takes."""


def find_recipe(name: str) -> Recipe:
    """The recipe of this name.

    Raises:
        ValueError: if there is none; the message lists those there are.
    """
    if name not in RECIPES:
        close = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown recipe {name!r}.{hint} Known are {', '.join(sorted(RECIPES))}.")
    return RECIPES[name]


def describe_recipes() -> str:
    """One line per recipe: its name, the rows that it trains, what it has of its own."""
    width = max(len(name) for name in RECIPES)
    return "\n".join(
        f"{recipe.name:<{width}}  {', '.join(recipe.rows)}: {recipe.differs}" for recipe in RECIPES.values()
    )
