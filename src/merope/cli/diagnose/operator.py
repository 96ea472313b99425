"""``merope diagnose operator``: one pair of tokens, drawn (Figures 2 and 3)."""

import math
from json import dumps
from pathlib import Path
from typing import Any

from merope.cli.extras import require

# Metres; farther away a drawing has no digits left for the rays.
_FARTHEST = 1e6


def operator(
    *,
    encoding: tuple[str, ...] = ("merope", "ucpe"),
    offset: tuple[float, float, float] = (1.6, -0.4, 2.4),
    yaw_deg: float = -55.0,
    query_token: int = 1,
    key_token: int = 7,
    output: Path = Path("out/operator"),
    json: bool = False,
) -> None:
    """Draw one pair of tokens: the matrix |U_ab| of encodings, and the geometry that MeRoPE reads.

    A query camera looks along +z from the origin, a key camera stands at an offset and is turned; both are pinholes with
    3 x 5 tokens. Writes operator-NAME.png for every encoding; for merope also geometry.png, with ray frames,
    displacement, epipolar arc and anchors; for ucpe also ray-frames.png, its frames against the minimum rotation as a
    ray goes up to the vertical.

    Args:
        encoding: Names of encodings, as `merope encodings` lists them.
        offset: Key camera in the query camera's frame: right, down, ahead, in metres.
        yaw_deg: Turn of the key camera about the vertical axis, to the right, in degrees.
        query_token: Token of the query camera, counted row by row from 0.
        key_token: Token of the key camera, counted row by row from 0.
        output: Folder for the pictures.
        json: Print one JSON object instead of a table.
    """
    require("matplotlib", purpose="drawing a pair of tokens")
    from merope.encodings.base import FeatureEncoding
    from merope.encodings.merope import MeRoPE
    from merope.encodings.registry import encoding_kind
    from merope.evaluation.encodings import pictures
    from merope.evaluation.encodings.pair_geometry import pair_geometry, require_tokens, two_cameras

    if not encoding:
        raise ValueError("--encoding must name at least one; `merope encodings` lists them.")
    if not all(abs(metres) <= _FARTHEST for metres in offset) or not math.isfinite(yaw_deg):
        raise ValueError(
            f"--offset must lie within {_FARTHEST:.0e} m and --yaw-deg be finite; got {offset} and {yaw_deg}."
        )
    chosen = {name: encoding_kind(name)() for name in encoding}
    view_rays = two_cameras(offset, yaw_deg)
    tokens = {"query_token": query_token, "key_token": key_token}
    # Before anything is written; cameras on one spot have matrices all the same.
    require_tokens(view_rays, **tokens)
    geometry = (
        pair_geometry(view_rays, **tokens, fractions=MeRoPE().fractions) if "merope" in chosen else None
    )
    found: dict[str, Any] = {}
    for name, made in chosen.items():
        found[name] = pictures.described(made, view_rays, **tokens)
        pictures.plot_matrix(output / f"operator-{name}.png", name, made, view_rays, **tokens)
        found[name]["pictures"] = [f"operator-{name}.png"]
        if name == "merope" and geometry is not None:
            pictures.plot_geometry(output / "geometry.png", geometry)
            found[name]["pictures"].append("geometry.png")
        if name == "ucpe":
            pictures.plot_ray_frames(output / "ray-frames.png")
            found[name]["pictures"].append("ray-frames.png")
    if json:
        print(dumps(found, indent=2))
        return
    for name, entry in found.items():
        if isinstance(chosen[name], FeatureEncoding):
            # The matrix alone says nothing of norms: what is added changes them.
            print(
                f"{name}: {chosen[name].num_features} features of the camera are added to q and k, beside the matrix; "
                "its norm ratio is not shown here, see `merope diagnose claims`"
            )
        else:
            print(f"{name}: norm ratios {entry['norm_ratio_min']:.4g} to {entry['norm_ratio_max']:.4g}")
        for band in entry["bands"]:
            repeats = f" x {band['copies']}" if band["copies"] > 1 else ""
            per = ", per query camera" if band["grouped"] else ""
            blocks = f"{band['num_blocks']}{repeats} blocks of {band['size']} x {band['size']}{per}"
            print(f"  {band['first']:>3} - {band['last']:>3}  {band['name']:<10} {blocks}")
    names = [name for entry in found.values() for name in entry["pictures"]]
    print(f"\nwritten to {output}: {', '.join(names)}")
