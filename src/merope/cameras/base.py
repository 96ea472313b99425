"""What every lens shares: parameters per view, the pixel raster, resize and crop, and a JSON form.

A lens is split in two. The affine part, ``u = fx x + cx`` and ``v = fy y + cy``, lives here and is all that
resizing and cropping touch. The curved part, between the normalised plane (x, y) and rays, is one small file
per model: it implements ``_plane_to_rays`` and ``_points_to_plane`` and registers itself.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from merope.cameras.parameters import Parameter, align, to_tensor, within_raster

PixelOrigin = Literal["corner", "center"]

# A plane coordinate beyond this is 0.00006 degrees short of a pinhole's 90: no raster reaches it, and the
# squares of larger numbers would leave float32.
MAX_SLOPE = 1e6
# Points nearer to the centre than this (metres) have no direction worth a gradient of 1e12.
MIN_DISTANCE = 1e-12
# Pixel coordinates beyond this are treated like infinities.
MAX_PIXEL = 1e12

_MODELS: dict[str, type["CameraModel"]] = {}
_Model = TypeVar("_Model", bound="type[CameraModel]")


def camera_model(name: str) -> Callable[[_Model], _Model]:
    """Class decorator that files a lens under ``name``, the value of "model" in its JSON form."""

    def register(cls: _Model) -> _Model:
        cls.model = name
        _MODELS[name] = cls
        return cls

    return register


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CameraModel(ABC):
    """Maps pixels to unit rays in the camera frame and back, each with a mask of where that is possible.

    Camera axes are OpenCV's: x right, y down, z forward. Every parameter is a number shared by all views or
    a tensor of shape [*view]; pixels and points then lead with the same [*view]. Results follow the dtype of
    the pixels or points that come in (float64 or float32).

    ``valid`` tells whether the *lens* maps the input, not whether the pixel lies on the raster: see
    ``in_image``. Where it is False the ray is (0, 0, 1) and the pixel (0, 0). Neither values nor gradients
    are ever NaN or infinite; non-finite inputs are merely invalid.
    """

    model: ClassVar[str]

    fx: Parameter
    """Pixels per unit of the normalised plane, horizontally."""
    fy: Parameter
    """Pixels per unit of the normalised plane, vertically."""
    cx: Parameter
    """Principal point, pixels, in the raster's own ``pixel_origin``."""
    cy: Parameter
    """Principal point, pixels, in the raster's own ``pixel_origin``."""
    width: int
    """Raster width, pixels."""
    height: int
    """Raster height, pixels."""
    pixel_origin: PixelOrigin
    """Where (0, 0) is. "corner": the raster's corner, the first pixel's centre is (0.5, 0.5) (COLMAP).
    "center": the first pixel's centre (OpenCV, Kalibr)."""
    principal_point_outside: bool = False
    """True for a crop that does not contain its principal point. Otherwise that is an error: it is what
    swapped width and height look like."""

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive whole number of pixels, got {size!r}.")
        if self.pixel_origin not in ("corner", "center"):
            raise ValueError(
                f"pixel_origin must be 'corner' or 'center', got {self.pixel_origin!r}. "
                "COLMAP counts from the corner, OpenCV and Kalibr from the first pixel's centre."
            )
        self._check_parameters()
        self._check_lens()

    @abstractmethod
    def _plane_to_rays(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Unit rays [..., 3] and validity of plane points; x and y are finite and at most ``MAX_SLOPE``.

        Values where invalid may be anything, but no gradient may be NaN there.
        """

    @abstractmethod
    def _points_to_plane(self, points_cam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Plane x, y and validity of points whose largest coordinate is 1 in magnitude.

        Values where invalid may be anything finite, but no gradient may be NaN there.
        """

    def _check_lens(self) -> None:  # noqa: B027 - a hook, most lenses need none
        """Raises ValueError where a lens parameter has no meaning."""

    def unproject(
        self, pixels: Float[Tensor, "*batch 2"]
    ) -> tuple[Float[Tensor, "*batch 3"], Bool[Tensor, "*batch"]]:
        """Unit rays, in the camera frame, of the light that falls on ``pixels`` [*view, ..., 2].

        Raises:
            ValueError: if the leading axes of ``pixels`` are not this camera's views.
            TypeError: if ``pixels`` is neither float64 nor float32.
        """
        self._check_input("pixels", pixels, 2)
        valid = (pixels.detach().abs() < MAX_PIXEL).all(-1)
        u, v = torch.where(valid[..., None], pixels, 0).unbind(-1)
        x = (u - align(self.cx, u)) / align(self.fx, u)
        y = (v - align(self.cy, v)) / align(self.fy, v)
        valid = valid & _within_plane(x, y)
        dirs_cam, mapped = self._plane_to_rays(torch.where(valid, x, 0), torch.where(valid, y, 0))
        valid = valid & mapped
        return torch.where(valid[..., None], dirs_cam, dirs_cam.new_tensor([0.0, 0.0, 1.0])), valid

    def project(
        self, points_cam: Float[Tensor, "*batch 3"]
    ) -> tuple[Float[Tensor, "*batch 2"], Bool[Tensor, "*batch"]]:
        """Pixels that ``points_cam`` [*view, ..., 3] (metres, or directions) are seen at.

        Raises:
            ValueError: if the leading axes of ``points_cam`` are not this camera's views.
            TypeError: if ``points_cam`` is neither float64 nor float32.
        """
        self._check_input("points_cam", points_cam, 3)
        # A projection depends on direction alone, so dividing by a constant changes neither value nor
        # gradient, and squares can no longer overflow.
        scale = points_cam.detach().abs().amax(-1, keepdim=True)
        near = (scale >= MIN_DISTANCE) & torch.isfinite(scale)
        ahead = points_cam.new_tensor([0.0, 0.0, 1.0])
        points_cam = torch.where(near, points_cam, ahead) / torch.where(near, scale, 1)
        x, y, mapped = self._points_to_plane(points_cam)
        u = align(self.fx, x) * x + align(self.cx, x)
        v = align(self.fy, y) * y + align(self.cy, y)
        valid = near[..., 0] & mapped & _within_plane(x, y)
        return torch.where(valid[..., None], torch.stack((u, v), -1), 0), valid

    def in_image(self, pixels: Float[Tensor, "*batch 2"]) -> Bool[Tensor, "*batch"]:
        """Whether ``pixels`` lie on the raster, its outer pixels' far edges included."""
        edge = self._first_center - 0.5
        size = pixels.new_tensor([self.width, self.height])
        return ((pixels >= edge) & (pixels <= size + edge)).all(-1)

    def pixel_centers(self) -> Float[Tensor, "height width 2"]:
        """Coordinates of every pixel's centre, float64."""
        u = torch.arange(self.width, dtype=torch.float64) + self._first_center
        v = torch.arange(self.height, dtype=torch.float64) + self._first_center
        return torch.stack(torch.meshgrid(u, v, indexing="xy"), -1)

    def pixel_rays(self) -> tuple[Float[Tensor, "*view height width 3"], Bool[Tensor, "*view height width"]]:
        """The ray of every pixel's centre, and where there is one."""
        centers = self.pixel_centers()
        return self.unproject(centers.expand(*self.view_shape, *centers.shape))

    def resize(self, *, height: int, width: int) -> Self:
        """The same lens on a raster of another size; every physical point keeps its ray."""
        scale_x, scale_y = width / self.width, height / self.height
        # Only coordinates from the raster's corner scale plainly; from a pixel's centre they also shift.
        shift = 0.5 - self._first_center
        return replace(
            self,
            fx=self.fx * scale_x,
            fy=self.fy * scale_y,
            cx=self.cx * scale_x + shift * (scale_x - 1),
            cy=self.cy * scale_y + shift * (scale_y - 1),
            width=width,
            height=height,
        )

    def crop(self, *, top: int, left: int, height: int, width: int) -> Self:
        """The part of the raster that starts at pixel (left, top); every remaining pixel keeps its ray.

        Raises:
            ValueError: if the part is not inside the raster.
        """
        if not (min(left, top) >= 0 and left + width <= self.width and top + height <= self.height):
            raise ValueError(
                f"crop of height {height}, width {width} at top {top}, left {left} leaves the raster of "
                f"height {self.height}, width {self.width}. Resize first, or take a smaller part."
            )
        cx, cy = self.cx - left, self.cy - top
        outside = not (within_raster(cx, width) and within_raster(cy, height))
        return replace(self, cx=cx, cy=cy, width=width, height=height, principal_point_outside=outside)

    def zoomed(self, factor: Parameter) -> Self:
        """The lens with its image magnified about the principal point by ``factor``, a number or one per view [*view].

        Of a pinhole, that is ``factor`` times the focal length.
        """
        return replace(self, fx=self.fx * factor, fy=self.fy * factor)

    def with_pixel_origin(self, pixel_origin: PixelOrigin) -> Self:
        """The same lens and raster, counted from the other origin (a shift of half a pixel)."""
        shift = 0.0 if pixel_origin == self.pixel_origin else 0.5 if pixel_origin == "corner" else -0.5
        return replace(self, cx=self.cx + shift, cy=self.cy + shift, pixel_origin=pixel_origin)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form: "model" plus every field, tensors as nested lists."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {k: v.detach().tolist() if isinstance(v, Tensor) else v for k, v in values.items()}
        return {"model": self.model, **plain}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "CameraModel":
        """The camera that ``to_dict`` wrote; lists become float64 tensors.

        Raises:
            ValueError: if "model" is missing or unknown, or a field is missing or unknown.
        """
        model = data.get("model")
        cls = _MODELS.get(model) if isinstance(model, str) else None
        if cls is None:
            raise ValueError(f"camera 'model' must be one of {sorted(_MODELS)}, got {model!r}.")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(data) - known - {"model"}):
            raise ValueError(f"camera model {cls.model!r} has no field {unknown}; it has {sorted(known)}.")
        parameters = {field.name for field in fields(cls) if field.type == Parameter}
        values: dict[str, Any] = {
            name: _parameter(name, value) if name in parameters else value
            for name, value in data.items()
            if name != "model"
        }
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"camera model {cls.model!r} is not complete: {error}.") from error

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CameraModel):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    @property
    def view_shape(self) -> torch.Size:
        """Leading shape [*view] of the parameters; empty when all views share one lens."""
        return torch.broadcast_shapes(*(value.shape for _, value in self._tensors()))

    @property
    def _first_center(self) -> float:
        return 0.5 if self.pixel_origin == "corner" else 0.0

    def _tensors(self) -> list[tuple[str, Tensor]]:
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return [(name, value) for name, value in pairs if isinstance(value, Tensor)]

    def _check_parameters(self) -> None:
        tensors = self._tensors()
        shapes = {tuple(value.shape) for _, value in tensors if value.ndim}
        if len(shapes) > 1:
            named = {name: tuple(value.shape) for name, value in tensors}
            raise ValueError(f"tensor parameters must share one [*view] shape, got {named}.")
        for name in [field.name for field in fields(self)]:
            value = getattr(self, name)
            if isinstance(value, Tensor | float) and not bool(torch.isfinite(to_tensor(value)).all()):
                raise ValueError(f"{name} must be finite, got {value}.")
        for name in ("fx", "fy"):
            if not bool((to_tensor(getattr(self, name)) > 0).all()):
                raise ValueError(
                    f"{name} must be positive, got {getattr(self, name)}. Mirror the image instead."
                )
        for name, axis, size in (("cx", "width", self.width), ("cy", "height", self.height)):
            value = getattr(self, name)
            if not self.principal_point_outside and not within_raster(value, size):
                raise ValueError(
                    f"{name} must lie within the {axis} of {size} pixels, got {value}. Are height and width "
                    "swapped, or is the calibration for another image size? A crop whose principal point is "
                    "truly elsewhere says principal_point_outside=True."
                )

    def _check_input(self, name: str, value: Tensor, size: int) -> None:
        if value.dtype not in (torch.float64, torch.float32):
            raise TypeError(
                f"{name} must be float64 or float32, got {value.dtype}. Lens equations lose whole pixels in "
                "less: cast the result instead."
            )
        view = self.view_shape
        if value.shape[-1:] != (size,) or value.shape[:-1][: len(view)] != view:
            wanted = ", ".join([*map(str, view), "...", str(size)])
            raise ValueError(
                f"{name} must have shape [{wanted}] for this camera's view shape {tuple(view)}, "
                f"got {tuple(value.shape)}. Expand it over the views first."
            )


def _parameter(name: str, value: Any) -> Parameter:
    """A number as it is, lists of numbers as a float64 tensor."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        if isinstance(value, list):
            return torch.tensor(value, dtype=torch.float64)
    # Lists of other things, of several lengths, or of numbers beyond float64.
    except (ValueError, TypeError, RuntimeError, OverflowError):
        pass
    raise ValueError(f"{name} must be a number, or lists of numbers of one shape; got {value!r:.60}.")


def _within_plane(x: Tensor, y: Tensor) -> Tensor:
    # A little slack, so that what projects to the limit comes back from it.
    return torch.maximum(x.detach().abs(), y.detach().abs()) <= MAX_SLOPE * (1 + 1e-6)
