"""Colours as eyes tell them apart, and the jump of colour where generation takes over from the given frames."""

import torch
from jaxtyping import Float
from torch import Tensor

# Linear sRGB to XYZ (IEC 61966-2-1), and the white point D65 that its rows add up to.
_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
_WHITE = (0.9505, 1.0, 1.089)


def lab_from_srgb(rgb: Float[Tensor, "*pixel 3"]) -> Float[Tensor, "*pixel 3"]:
    """CIE L*a*b* (D65) of sRGB in [0, 1]: L* from 0 to 100, a distance of 2.3 is just noticeable.

    Computed in float64; out-of-range colours are clipped, as a screen does.
    """
    rgb = rgb.double().clamp(0, 1)
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    relative = linear @ rgb.new_tensor(_XYZ).mT / rgb.new_tensor(_WHITE)
    # Below this the cube root is continued by a straight line.
    edge = 6 / 29
    bent = torch.where(
        relative > edge**3, relative.clamp_min(edge**3) ** (1 / 3), relative / (3 * edge**2) + 4 / 29
    )
    x, y, z = bent.unbind(-1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], dim=-1)


def prefix_color_jump(
    video: Float[Tensor, "clip 3 frame height width"], prefix_frames: int
) -> Float[Tensor, "clip"]:
    """Distance in L*a*b* between the mean colours of the last given and the first generated frame of ``video`` in [-1, 1].

    Of mean colours, not of pixels: the camera moves between the two frames.

    Raises:
        ValueError: if there is no frame on one of the two sides.
    """
    if not 0 < prefix_frames < video.shape[2]:
        raise ValueError(
            f"prefix_frames must lie between 1 and {video.shape[2] - 1}, the video has {video.shape[2]} frames; got "
            f"{prefix_frames}."
        )
    sides = video[:, :, prefix_frames - 1 : prefix_frames + 1].cpu().movedim(1, -1) / 2 + 0.5
    last, first = lab_from_srgb(sides).mean((2, 3)).unbind(1)
    return (last - first).norm(dim=-1)
