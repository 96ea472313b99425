"""Which ray belongs to which token."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from merope.cameras.base import CameraModel


@dataclass(frozen=True, slots=True)
class TokenGrid:
    """The grid of patches, one token each, that a transformer cuts a frame into; tokens are row-major."""

    rows: int
    """Patches from top to bottom."""
    cols: int
    """Patches from left to right."""

    def __post_init__(self) -> None:
        if self.rows < 1 or self.cols < 1:
            raise ValueError(f"rows and cols must be at least 1, got {self.rows} and {self.cols}.")

    @property
    def num_tokens(self) -> int:
        """Tokens of one view."""
        return self.rows * self.cols

    def rows_cols(self) -> tuple[Int[Tensor, " token"], Int[Tensor, " token"]]:
        """Row and column of every token."""
        token = torch.arange(self.num_tokens)
        return token // self.cols, token % self.cols

    def token_rays(
        self, camera: CameraModel
    ) -> tuple[Float[Tensor, "*view token 3"], Bool[Tensor, "*view token"]]:
        """The ray through the centre of each token's patch, in the camera frame, and where there is one.

        The centre of a patch of even size lies between pixels: it is not the ray of any pixel.

        Raises:
            ValueError: if the camera's raster does not divide into the grid.
        """
        if camera.height % self.rows or camera.width % self.cols:
            raise ValueError(
                f"a raster of height {camera.height}, width {camera.width} does not divide into {self.rows} "
                f"rows and {self.cols} columns of patches. Are rows and cols swapped? Otherwise resize or "
                "crop the camera to the frames that the tokens come from."
            )
        # On a raster of one pixel per patch the pixel centres are the patch centres.
        dirs_cam, valid = camera.resize(height=self.rows, width=self.cols).pixel_rays()
        return dirs_cam.flatten(-3, -2), valid.flatten(-2)
