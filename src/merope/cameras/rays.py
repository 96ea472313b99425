"""`ViewRays`: all that a camera encoding may see of a set of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras.base import CameraModel
from merope.cameras.parameters import to_tensor

# A lens whose rays differ by more than this from the tokens' (radians) is another lens.
_SAME_RAY = 1e-4
# The fields that have an axis of views; the others are the grid's, and the lens.
_PER_VIEW = ("R_world_cam", "center_world", "dirs_cam", "valid", "time")
# A lens's fields that are no parameters of its curve.
_RASTER = ("width", "height", "pixel_origin", "principal_point_outside")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ViewRays:
    """Camera poses and one unit viewing ray per token, tokens ordered camera by camera.

    Token ``n`` of the flattened sequence belongs to view ``n // tokens_per_view``. Geometry is float64
    on the CPU; an encoding turns it into a `CameraOperator` in the working precision.

    Raises:
        ValueError: if shapes disagree, a value is not finite, or a ray is not of unit length.
    """

    R_world_cam: Float[Tensor, "batch view 3 3"]
    """Rotations from camera to world coordinates."""
    center_world: Float[Tensor, "batch view 3"]
    """Optical centres in world coordinates, metres."""
    dirs_cam: Float[Tensor, "batch view token 3"]
    """Unit rays in camera coordinates (d^c of the paper); e_z where the token has no ray."""
    valid: Bool[Tensor, "batch view token"]
    """False where the lens gives a token no ray."""
    time: Float[Tensor, "batch view"]
    """Time coordinate of the native rotary band, in latent frames."""
    row: Float[Tensor, "token"]
    """Row of each token in its view's grid."""
    col: Float[Tensor, "token"]
    """Column of each token in its view's grid."""
    lens: CameraModel | None = None
    """The lens on a raster of one pixel per token, counted from the corner; None where only rays are known.
    Encodings that project into a view need it."""

    def __post_init__(self) -> None:
        batch, views, tokens, _ = self.dirs_cam.shape
        for name, value, shape in (
            ("R_world_cam", self.R_world_cam, (batch, views, 3, 3)),
            ("center_world", self.center_world, (batch, views, 3)),
            ("valid", self.valid, (batch, views, tokens)),
            ("time", self.time, (batch, views)),
            ("row", self.row, (tokens,)),
            ("col", self.col, (tokens,)),
        ):
            if tuple(value.shape) != shape:
                raise ValueError(
                    f"{name} must have shape {list(shape)} to match dirs_cam {list(self.dirs_cam.shape)}; "
                    f"got {list(value.shape)}."
                )
        for name in ("R_world_cam", "center_world", "dirs_cam"):
            value = getattr(self, name)
            if value.dtype != torch.float64 or value.device.type != "cpu":
                raise ValueError(
                    f"{name} must be float64 on the CPU: float32 loses centimetres of map coordinates; got "
                    f"{value.dtype} on {value.device}. ViewRays.from_poses converts."
                )
        for name in ("time", "row", "col"):
            if not torch.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite; got {getattr(self, name).tolist()}.")
        for name in ("R_world_cam", "center_world", "dirs_cam"):
            if not torch.isfinite(getattr(self, name)).all():
                raise ValueError(
                    f"{name} must be finite. Tokens without a ray are marked by valid=False and carry any "
                    "unit direction; CameraModel.unproject returns both."
                )
        length = self.dirs_cam.norm(dim=-1)
        off = (length - 1).abs()
        # float32 rays that were normalised in float32 are off by about 1e-7.
        if (off > 1e-5).any():
            index = int(off.flatten().argmax())
            raise ValueError(
                f"dirs_cam must have unit length; the worst is {float(length.flatten()[index]):.6f} (ray {index}). "
                "Pass the output of CameraModel.unproject, or normalise first."
            )
        if self.lens is not None:
            self._check_lens(self.lens)

    def _check_lens(self, lens: CameraModel) -> None:
        batch, views, tokens, _ = self.dirs_cam.shape
        if lens.height * lens.width != tokens or lens.pixel_origin != "corner":
            raise ValueError(
                f"lens must lie on a raster of one pixel per token, counted from the corner: {tokens} pixels; got "
                f"{lens.height} x {lens.width} from the {lens.pixel_origin}. ViewRays.from_poses(camera=) resizes."
            )
        if lens.view_shape not in ((), (batch, views)):
            raise ValueError(
                f"the lens's parameters must be numbers or have shape [batch, view] = {[batch, views]}; got "
                f"{list(lens.view_shape)}."
            )
        expected, has_ray = lens.pixel_rays()
        expected, has_ray = expected.flatten(-3, -2), has_ray.flatten(-2)
        both = self.valid & has_ray
        off = (self.dirs_cam - expected).norm(dim=-1)[both]
        if off.numel() and off.max() > _SAME_RAY:
            raise ValueError(
                f"camera and dirs_cam disagree by up to {float(off.max()):.3g} rad. Take both from one camera: "
                "TokenGrid.token_rays(camera). Are height and width, or rows and columns, swapped?"
            )

    @classmethod
    def from_poses(
        cls,
        T_world_cam: Float[Tensor, "batch view 4 4"],
        dirs_cam: Float[Tensor, "batch view token 3"],
        *,
        valid: Bool[Tensor, "batch view token"] | None = None,
        grid: tuple[int, int] | None = None,
        time: Tensor | None = None,
        camera: CameraModel | None = None,
    ) -> Self:
        """Rays of cameras given by camera-to-world matrices, metres, OpenCV axes.

        Rotations that carry the rounding of float32 or of a file (up to 1e-4) are brought back to
        orthonormal: attention under them must keep norms.

        ``valid`` says which tokens have a ray; without it all have, or those that ``camera`` gives one.
        ``grid`` is (rows, columns) of each view's tokens in row-major order; without it the tokens lie in
        one row. ``time`` is the native temporal coordinate, [view] or [batch, view]; without it views
        count 0, 1, 2, .... ``camera`` is the lens of the frames that the tokens come from, of any size, and needs a
        ``grid``; encodings that project points into a view (PRoPE, URoPE, RayRoPE, CRePE) need it.

        Raises:
            ValueError: if shapes disagree, a value is not finite, a matrix is transposed, left-handed, or
                further than 1e-4 from a rotation, or the camera's rays are not the tokens'.
        """
        matrices = torch.as_tensor(T_world_cam)
        dirs = torch.as_tensor(dirs_cam)
        if matrices.ndim != 4 or matrices.shape[-2:] != (4, 4):
            raise ValueError(f"T_world_cam must have shape [batch, view, 4, 4]; got {list(matrices.shape)}.")
        if dirs.ndim != 4 or dirs.shape[-1] != 3 or dirs.shape[:2] != matrices.shape[:2]:
            raise ValueError(
                f"dirs_cam must have shape [batch, view, token, 3] with batch, view = {list(matrices.shape[:2])}; "
                f"got {list(dirs.shape)}."
            )
        matrices, dirs = matrices.to("cpu", torch.float64), dirs.to("cpu", torch.float64)
        if not torch.isfinite(matrices).all():
            raise ValueError("T_world_cam must be finite. Drop the views that have no pose.")
        last = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
        if (matrices[..., 3, :] - last).abs().max() > 1e-6:
            raise ValueError(
                "T_world_cam must end in the row [0, 0, 0, 1]. A translation in the last row means the "
                "matrices are transposed: pass T.mT."
            )
        rotations = matrices[..., :3, :3]
        identity = torch.eye(3, dtype=torch.float64)
        error = (rotations.mT @ rotations - identity).abs().max()
        if error > 1e-4:
            raise ValueError(
                f"T_world_cam must hold rotations; R^T R is off by {float(error):.3g} where 1e-4 is allowed. "
                "Read pose files with merope.data.read_poses, which projects and diagnoses."
            )
        left_handed = torch.det(rotations) < 0
        if left_handed.any():
            clip, view = left_handed.nonzero()[0].tolist()
            raise ValueError(
                f"T_world_cam must hold right-handed rotations; the one of batch {clip}, view {view} has determinant -1: "
                "its world or its camera is left-handed, not both. Convert the axes of both together; for a file "
                "whose world is left-handed, merope.data.read_poses does that with ReadOptions(mirror=)."
            )
        if error > 1e-14:
            # Two Newton steps towards the nearest rotation leave 1e-16 of 1e-4. Unlike an SVD they have a
            # gradient where singular values are equal.
            for _ in range(2):
                rotations = 1.5 * rotations - 0.5 * rotations @ rotations.mT @ rotations
        batch, views, tokens, _ = dirs.shape
        if camera is not None and grid is None and tokens > 1:
            raise ValueError(
                f"camera needs to know which of the {tokens} tokens sees which part of its frame: pass grid=(rows, columns)."
            )
        rows, cols = grid if grid is not None else (1, tokens)
        if rows * cols != tokens:
            raise ValueError(
                f"grid {rows} x {cols} has {rows * cols} tokens; dirs_cam has {tokens} per view."
            )
        clock = torch.arange(views) if time is None else torch.as_tensor(time)
        if clock.shape not in ((views,), (batch, views)):
            raise ValueError(
                f"time must have shape [{views}] or [{batch}, {views}]; got {list(clock.shape)}."
            )
        lens = None if camera is None else camera.with_pixel_origin("corner").resize(height=rows, width=cols)
        if valid is None:
            has_ray = (
                torch.ones(tokens, dtype=torch.bool) if lens is None else lens.pixel_rays()[1].flatten(-2)
            )
            valid = has_ray.expand(batch, views, tokens)
        return cls(
            R_world_cam=rotations,
            center_world=matrices[..., :3, 3],
            dirs_cam=dirs,
            valid=valid.cpu(),
            time=clock.to("cpu", torch.float64).expand(batch, views),
            row=torch.arange(rows, dtype=torch.float64).repeat_interleave(cols),
            col=torch.arange(cols, dtype=torch.float64).repeat(rows),
            lens=lens,
        )

    @classmethod
    def cat(cls, runs: Sequence["ViewRays"]) -> Self:
        """The views of all runs, one run after the other, in the world coordinates and the clock that they share.

        Lenses that differ between runs, a zoom, become one lens with parameters per view.

        Raises:
            ValueError: if there is no run, or batches, token grids or kinds of lens differ.
        """
        if not runs:
            raise ValueError("runs must hold at least one ViewRays; got none.")
        first = runs[0]
        for place, run in enumerate(runs):
            if run.batch != first.batch:
                raise ValueError(
                    f"runs must have one batch; run 0 has {first.batch} clips, run {place} has {run.batch}."
                )
            if not (torch.equal(run.row, first.row) and torch.equal(run.col, first.col)):
                raise ValueError(
                    f"runs must have one token grid; run 0 has {first.tokens_per_view} tokens per view on a grid of "
                    f"{first.grid}, run {place} has {run.tokens_per_view} on {run.grid}."
                )
        joined = {name: torch.cat([getattr(run, name) for run in runs], dim=1) for name in _PER_VIEW}
        return cls(**joined, row=first.row, col=first.col, lens=_lens_of_runs(runs))

    def for_views(self, first: int, last: int) -> Self:
        """The views ``first`` to ``last`` - 1 alone.

        Raises:
            ValueError: if there are no such views.
        """
        if not 0 <= first < last <= self.num_views:
            raise ValueError(
                f"views {first} to {last} are no run of the {self.num_views} views; "
                "give 0 <= first < last <= num_views."
            )
        chosen = {name: getattr(self, name)[:, first:last] for name in _PER_VIEW}
        lens = None if self.lens is None else lens_of_views(self.lens, first, last)
        return replace(self, **chosen, lens=lens)

    @property
    def batch(self) -> int:
        """Number of independent clips."""
        return self.dirs_cam.shape[0]

    @property
    def num_views(self) -> int:
        """Cameras per clip."""
        return self.dirs_cam.shape[1]

    @property
    def tokens_per_view(self) -> int:
        """Tokens of each camera."""
        return self.dirs_cam.shape[2]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of each view's tokens."""
        rows = len(self.row.unique())
        return rows, self.tokens_per_view // rows

    @property
    def num_tokens(self) -> int:
        """Tokens per clip, cameras times tokens of each."""
        return self.num_views * self.tokens_per_view


def lens_of_views(lens: CameraModel, first: int, last: int) -> CameraModel:
    """The lens of the views ``first`` to ``last`` - 1 alone; numbers that serve all views stay."""
    zoomed = {name: value for name, value in _parameters(lens).items() if to_tensor(value).ndim}
    return replace(lens, **{name: value[:, first:last] for name, value in zoomed.items()})


def _parameters(lens: CameraModel) -> dict[str, Any]:
    """The lens's numbers, each for all views or [batch, view]."""
    values = {field.name: getattr(lens, field.name) for field in fields(lens) if field.name not in _RASTER}
    return {name: value for name, value in values.items() if not isinstance(value, str)}


def _kind(lens: CameraModel) -> tuple[str, ...]:
    """The model, the choices of it that are no numbers, and the raster."""
    values = [getattr(lens, field.name) for field in fields(lens) if field.name not in _RASTER]
    choices = [value for value in values if isinstance(value, str)]
    return type(lens).__name__, *choices, f"{lens.height} x {lens.width}"


def _lens_of_runs(runs: Sequence[ViewRays]) -> CameraModel | None:
    """The lens of views from several runs; numbers that are not the same for all become [batch, view]."""
    lenses = [run.lens for run in runs]
    first = lenses[0]
    kinds = {None if lens is None else _kind(lens) for lens in lenses}
    if len(kinds) > 1:
        raise ValueError(
            f"runs must have one kind of lens on one raster, or none at all; got {sorted(map(str, kinds))}. Pass the same "
            "camera= to every ViewRays.from_poses."
        )
    if first is None:
        return None
    known = [lens for lens in lenses if lens is not None]
    changed: dict[str, Any] = {}
    for name in _parameters(first):
        values = [to_tensor(getattr(lens, name)) for lens in known]
        if all(value.ndim == 0 and bool(value == values[0]) for value in values):
            continue
        changed[name] = torch.cat(
            [value.expand(run.batch, run.num_views) for value, run in zip(values, runs, strict=True)], dim=1
        )
    outside = any(lens.principal_point_outside for lens in known)
    return replace(first, **changed, principal_point_outside=outside)
