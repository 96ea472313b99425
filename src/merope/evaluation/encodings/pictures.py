"""Pictures of one pair of tokens: MeRoPE's geometry (Figure 2), |U_ab| of any encoding (Figure 3), ray frames."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from merope.cameras.rays import ViewRays
from merope.encodings.base import CameraEncoding, FeatureEncoding
from merope.encodings.pairwise import operator_of, without_warnings
from merope.evaluation.encodings.pair_geometry import PairGeometry, frame_sweeps
from merope.evaluation.plots.canvas import COLORS, new_figure
from merope.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper's colours: ray frames blue, displacement green, disparity purple.
_FRAME, _DISPLACEMENT, _DISPARITY = "#0072B2", "#009E73", "#8E44AD"
_QUERY_RAY, _KEY_RAY = "#D55E00", "#444444"
# Metres: radius of the sphere of directions, length of drawn axes, how far rays are followed in space and from above.
_SPHERE, _AXIS = 1.0, 0.3
_IN_SPACE, _FROM_ABOVE = 2.2, 4.6
# Metres on the sphere between neighbouring anchors from which on each has room for its number.
_ROOM = 0.2


def described(
    encoding: CameraEncoding, view_rays: ViewRays, *, query_token: int, key_token: int
) -> dict[str, Any]:
    """Bands of the operator and the norm ratios of one pair, as JSON values; channels count from 0."""
    operator = operator_of(without_warnings(encoding), view_rays)
    values = torch.linalg.svdvals(operator.pair(query_token, view_rays.tokens_per_view + key_token).double())
    bands, start = [], 0
    for band in operator.bands:
        names = ("name", "size", "num_blocks", "copies", "grouped")
        bands.append({"first": start, "last": start + band.width - 1} | {n: getattr(band, n) for n in names})
        start += band.width
    return {
        "bands": bands,
        "norm_ratio_min": float(values.min()),
        "norm_ratio_max": float(values.max()),
    }


def plot_matrix(
    path: str | Path,
    name: str,
    encoding: CameraEncoding,
    view_rays: ViewRays,
    *,
    query_token: int,
    key_token: int,
) -> None:
    """Draw |U_ab| between a token of the first view and one of the second; ``name`` is the title's.

    Raises:
        ValueError: if the encoding does not take the rays.
        MissingDependency: if matplotlib is not installed.
    """
    figure = draw_matrix(name, encoding, view_rays, query_token=query_token, key_token=key_token)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130)


def draw_matrix(
    name: str, encoding: CameraEncoding, view_rays: ViewRays, *, query_token: int, key_token: int
) -> "Figure":
    """The figure that `plot_matrix` saves."""
    from matplotlib.colors import PowerNorm

    operator = operator_of(without_warnings(encoding), view_rays)
    values = operator.pair(query_token, view_rays.tokens_per_view + key_token)[0].double()
    heads = ""
    if values.ndim == 3:
        values, heads = values[0], f", the first of {len(values)} heads"
    if isinstance(encoding, FeatureEncoding):
        heads = f"; {encoding.num_features} features are added beside it"
    figure = new_figure(7.6, 7.0)
    axes = figure.add_subplot()
    top = max(1.0, float(values.abs().max()))
    # Small entries stay visible beside the metres of a homogeneous block.
    picture = axes.imshow(values.abs().numpy(), cmap="magma_r", norm=PowerNorm(0.5, vmin=0, vmax=top))
    figure.colorbar(picture, ax=axes, label="|entry|", shrink=0.85)
    start, places, labels = 0, [], []
    for band in operator.bands:
        places.append(start + band.width / 2 - 0.5)
        labels.append(f"{band.name}\n{band.width}" + ("\nper query view" if band.grouped else ""))
        start += band.width
        if start < operator.head_dim:
            for line in (axes.axhline, axes.axvline):
                line(start - 0.5, color="#888888", lw=0.7)
    axes.set_yticks(places, labels, fontsize=8)
    axes.set_xticks([])
    centers = view_rays.center_world[0]
    baseline = float((centers[1] - centers[0]).norm())
    axes.set_title(
        f"|U| of {name}: {operator.head_dim} channels, baseline {baseline:.3g} m{heads}", fontsize=11
    )
    return figure


def plot_geometry(path: str | Path, geometry: PairGeometry) -> None:
    """Draw the frames, the displacement, the arc and its anchors, in metres, in the query camera's frame.

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    with atomic_path(path) as temporary:
        draw_geometry(geometry).savefig(temporary, dpi=130)


def draw_geometry(geometry: PairGeometry) -> "Figure":
    """The figure that `plot_geometry` saves."""
    figure = new_figure(13.0, 6.4)
    space = figure.add_subplot(1, 2, 1, projection="3d")
    above = figure.add_subplot(1, 2, 2)
    _draw_pair(space, _in_space, geometry, _IN_SPACE)
    _draw_pair(above, _from_above, geometry, _FROM_ABOVE)
    _draw_sphere(space)
    above.add_artist(_circle())
    _equal(space, geometry)
    space.view_init(elev=24, azim=-112)
    above.set_aspect("equal", adjustable="datalim")
    above.margins(0.12)
    above.grid(color="#dddddd", lw=0.6)
    above.set_axisbelow(True)
    above.set_xlabel("right of the query camera (m)")
    above.set_ylabel("ahead of the query camera (m)")
    space.set_xlabel("right (m)")
    space.set_ylabel("ahead (m)")
    # Reads upwards, and keeps clear of the numbers.
    space.zaxis.set_rotate_label(False)
    space.set_zlabel("up (m)", rotation=90, labelpad=18)
    space.tick_params(axis="z", pad=8)
    space.set_title("sphere of directions drawn with a radius of 1 m", fontsize=10)
    above.set_title("from above: every anchor looks at one point of the key ray", fontsize=10)
    handles, labels = above.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=5, fontsize=9)
    return figure


def _draw_pair(axes: Any, place: Any, geometry: PairGeometry, followed: float) -> None:
    origin = torch.zeros(3, dtype=torch.float64)
    center, far = geometry.offset_query, geometry.dir_key_query
    eye = torch.eye(3, dtype=torch.float64)
    for where, frame in ((origin, eye), (center, geometry.R_query_key)):
        _triad(axes, place, where, frame, "#999999", 1.6 * _AXIS)
    _line(axes, place, [origin, center], color=_DISPLACEMENT, lw=2.6, label="displacement Δo, metres")
    _line(axes, place, [origin, followed * geometry.dir_query], color=_QUERY_RAY, lw=1.2, label="query ray")
    _line(axes, place, [center, center + followed * far], color=_KEY_RAY, lw=1.2, label="key ray")
    _triad(axes, place, _SPHERE * geometry.dir_query, geometry.frame_query, _FRAME, _AXIS)
    _triad(axes, place, center + _SPHERE * far, geometry.frame_key_query, _FRAME, _AXIS, label="ray frames A")
    arc = _arc(geometry)
    _line(
        axes,
        place,
        list(_SPHERE * arc),
        color=_DISPARITY,
        lw=2.2,
        label="epipolar arc, far direction to epipole",
    )
    labelled = -math.inf
    for fraction, anchor, frame, depth in zip(
        geometry.fractions,
        geometry.anchors,
        geometry.anchor_frames,
        geometry.anchor_depths.tolist(),
        strict=True,
    ):
        at = _SPHERE * anchor
        _dot(axes, place, at, _DISPARITY, "o")
        if fraction in (0.0, 1.0):
            _triad(axes, place, at, frame, _DISPARITY, 0.8 * _AXIS)
        if (fraction - labelled) * geometry.arc > _ROOM:
            labelled = fraction
            words = {0.0: "far, ρ = 0", 1.0: "epipole, ρ = 1"}.get(fraction, f"{fraction:g}")
            # The ends outside the arc, the numbers between them inside.
            beside, side = {0.0: (1.14 * at, "right"), 1.0: (at + 0.12 * frame[:, 0], "left")}.get(
                fraction, (0.86 * at, "center")
            )
            axes.text(*place(beside), words, color=_DISPARITY, fontsize=8, ha=side, va="top")
        if depth < followed:
            point = center + depth * far
            _line(axes, place, [at, point], color=_DISPARITY, lw=0.8, ls=":")
            _dot(axes, place, point, _DISPARITY, "x")
    # Named in the legend once, and whether or not one of them lies in the picture.
    nowhere: dict[str, Any] = {"color": _DISPARITY, "lw": 0.8}
    axes.plot([], [], ls="none", marker="o", ms=5, label="anchors, with ρ", **nowhere)
    axes.plot([], [], ls=":", label="line of sight of an anchor", **nowhere)
    axes.plot([], [], ls="none", marker="x", ms=5, label="point of the key ray that it meets", **nowhere)
    axes.plot([], [], color="#999999", lw=1.8, label="camera frames")
    for where, name in ((origin, "query camera i"), (center, "key camera j")):
        _dot(axes, place, where, "#111111", "o")
        beside = where + torch.tensor([0.12, 0.15, -0.12], dtype=torch.float64)
        axes.text(*place(beside), name, fontsize=9, ha="left", va="top")


def _dot(axes: Any, place: Any, where: Tensor, color: str, marker: str) -> None:
    axes.plot(*[[value] for value in place(where)], marker, color=color, ms=5)


def _arc(geometry: PairGeometry) -> Tensor:
    """The arc from the far direction to the epipole, finely."""
    far, end, arc = geometry.dir_key_query, geometry.epipole, geometry.arc
    steps = torch.linspace(0, 1, 60, dtype=torch.float64)[:, None]
    if math.sin(arc) < 1e-9:
        return far.expand(60, 3)
    return (((1 - steps) * arc).sin() * far + (steps * arc).sin() * end) / math.sin(arc)


def _triad(
    axes: Any, place: Any, where: Tensor, frame: Tensor, color: str, length: float, label: str | None = None
) -> None:
    """The axes of a frame, the z axis longest."""
    for column, stretch in ((0, 0.8), (1, 0.8), (2, 1.25)):
        ends = [where, where + stretch * length * frame[:, column]]
        _line(
            axes,
            place,
            ends,
            color=color,
            lw=1.8 if column == 2 else 1.1,
            label=label if column == 2 else None,
        )


def _line(axes: Any, place: Any, points: list[Tensor], **style: Any) -> None:
    axes.plot(*np.array([place(point) for point in points]).T, **style)


def _in_space(point: Tensor) -> tuple[float, float, float]:
    """Right, ahead, up: OpenCV's y points down."""
    x, y, z = point.tolist()
    return x, z, -y


def _from_above(point: Tensor) -> tuple[float, float]:
    x, _, z = point.tolist()
    return x, z


def _circle() -> Any:
    from matplotlib.patches import Circle

    return Circle((0, 0), _SPHERE, fill=False, color="#bbbbbb", lw=0.8)


def _draw_sphere(space: Any) -> None:
    azimuth, height = np.meshgrid(np.linspace(0, 2 * np.pi, 37), np.linspace(-np.pi / 2, np.pi / 2, 19))
    x, y = np.cos(height) * np.cos(azimuth), np.cos(height) * np.sin(azimuth)
    space.plot_wireframe(_SPHERE * x, _SPHERE * y, _SPHERE * np.sin(height), color="#cccccc", lw=0.3)


def _equal(space: Any, geometry: PairGeometry) -> None:
    """A metre is as long in every direction."""
    center = geometry.offset_query
    ends = (_IN_SPACE * geometry.dir_query, center, center + _IN_SPACE * geometry.dir_key_query)
    shown = [_in_space(point) for point in (*ends, -_SPHERE * torch.ones(3), _SPHERE * torch.ones(3))]
    low, high = np.min(shown, axis=0) - 0.1, np.max(shown, axis=0) + 0.1
    space.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    space.set_box_aspect(high - low)


def plot_ray_frames(path: str | Path, *, azimuth_deg: float = 40.0) -> None:
    """Draw UCPE's ray frames against the minimum rotation as a ray goes up to the vertical.

    Raises:
        MissingDependency: if matplotlib is not installed.
    """
    with atomic_path(path) as temporary:
        draw_ray_frames(azimuth_deg=azimuth_deg).savefig(temporary, dpi=130)


def draw_ray_frames(*, azimuth_deg: float = 40.0) -> "Figure":
    """The figure that `plot_ray_frames` saves."""
    from_vertical = torch.logspace(math.log10(90), -7, 400, dtype=torch.float64)
    figure = new_figure(12.0, 4.4)
    panels = figure.subplots(1, 3)
    quantities = (
        ("orthonormality", "largest entry of BᵀB - I", "log"),
        ("roll_deg", "roll against the minimum rotation (deg)", "linear"),
        ("turn_rate", "turn of the frame per turn of the ray", "log"),
    )
    for axes, (field, words, scale) in zip(panels, quantities, strict=True):
        for sweep, color, style in zip(
            frame_sweeps(from_vertical, azimuth_deg=azimuth_deg), COLORS, ("-", "--", ":"), strict=False
        ):
            values = (
                getattr(sweep, field).clamp(min=1e-17) if field == "orthonormality" else getattr(sweep, field)
            )
            axes.plot(from_vertical, values, style, color=color, lw=1.8, label=sweep.label)
        axes.set_xscale("log")
        axes.set_yscale(scale)
        axes.invert_xaxis()
        axes.set_xlabel("90° - vertical angle of the ray (deg)")
        axes.set_title(words, fontsize=10)
        axes.grid(color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3, fontsize=9)
    figure.suptitle(
        f"Ray frames B towards the vertical, {azimuth_deg:g}° beside the optical axis", fontsize=11
    )
    return figure
