"""Directions on the unit sphere: the minimum rotation onto a direction and the epipolar arc.

All functions take any leading batch shape, follow the dtype of their input, and have finite values and
gradients everywhere, the degenerate directions included.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

# Squared distance from the optical axis below which a backward direction counts as exactly backward.
# In float64 it is the noise of turned and subtracted centres within 100 m: a car that drives straight in any
# world frame then has one frame for the epipole, not the direction of its rounding. float32 sees
# finished directions, and its digits end before x and y vanish.
_POLE_RADIUS_SQ = {torch.float64: 1e-24, torch.float32: 1e-30}

# Metres. Below it two centres coincide: the gradient of a direction grows as one over the baseline and
# has to stay within float32.
_COINCIDENT = 1e-30

# Squared sine of the arc below which a ray points at the epipole or away from it. Centres within 100 m,
# turned and subtracted in float64, leave noise of 1e-14 in the sine.
_PARALLEL_SQ = {torch.float64: 1e-24, torch.float32: 1e-12}


def minrot_axis(dirs: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3"]:
    """The unit direction half-way between the optical axis and ``dirs``: all that `minrot` needs.

    With ``h`` this direction, the minimum rotation of Eq. 5 is ``(2 h h^T - I) diag(-1, -1, 1)``: a half
    turn about the axis followed by a half turn about ``h``. Three numbers instead of nine, orthogonal
    for any unit ``h``.

    Degenerate: at the backward direction -e_z every ``h`` perpendicular to e_z is half-way; the answer
    there is e_y, a half turn about the x axis, also within 1e-12 of it in float64. Directions around it
    turn quickly.
    """
    x, y, z = dirs.unbind(-1)
    radius_sq = x * x + y * y
    behind = z < 0
    at_pole = behind & (radius_sq < _POLE_RADIUS_SQ.get(dirs.dtype, 1e-30))
    # Behind, 1 + z cancels; it equals radius^2 / (1 - z) for a unit direction. Dividing by the radius
    # first keeps every intermediate near one.
    radius = torch.where(behind & ~at_pole, radius_sq, torch.ones_like(z)).sqrt()
    one = torch.ones_like(z)
    safe_z = torch.where(behind, z, -one)
    rise = torch.where(behind, radius / (1 - safe_z), 1 + z)
    axis = torch.stack([x / radius, y / radius, rise], dim=-1)
    e_y = torch.zeros_like(dirs)
    e_y[..., 1] = 1
    axis = torch.where(at_pole[..., None], e_y, axis)
    return axis / axis.norm(dim=-1, keepdim=True)


def minrot(dirs: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    """Rotations that carry the optical axis e_z onto unit ``dirs`` by the smallest angle (Eq. 5).

    Written as a product of two half turns (`minrot_axis`), which equals Rodrigues' formula everywhere
    and stays orthogonal to rounding at the backward pole, where Eq. 5 divides by zero. A camera that
    drives straight ahead sees every past camera in that direction.

    Degenerate: at -e_z the half turn about the x axis is returned. The map is discontinuous there:
    no continuous choice of frames exists on the whole sphere.
    """
    axis = minrot_axis(dirs)
    half_turn = 2 * axis[..., :, None] * axis[..., None, :]
    half_turn = half_turn - torch.eye(3, dtype=dirs.dtype, device=dirs.device)
    flip = torch.tensor([-1.0, -1.0, 1.0], dtype=dirs.dtype, device=dirs.device)
    return half_turn * flip


def epipolar_anchors(
    dirs_query: Float[Tensor, "*#batch 3"],
    offset_query: Float[Tensor, "*#batch 3"],
    fractions: Sequence[float],
    *,
    min_scene_depth: float = 0.0,
) -> Float[Tensor, "... anchor 3"]:
    """Directions a key ray's point can take, seen from the query camera (Eq. 9).

    ``dirs_query`` are unit key rays turned into the query camera's frame and ``offset_query`` the key
    camera's centre there, in metres (Δo_{j|i}, Eq. 2). As depth falls from infinity to zero the point
    sweeps the great circle from its far direction to the epipole. ``fractions`` pick angular places on
    that arc: 0 is infinitely far, 1 is at the key camera.

    ``min_scene_depth`` (metres) ends the arc at the nearest depth a point can have instead of zero; the
    arc then shrinks smoothly to nothing as the baseline does. Zero is the paper's arc.

    Degenerate: when the centres coincide, or the ray points at or away from the epipole, the arc has no
    direction and every anchor is exactly the far direction. At the epipole that is also the limit; at
    its antipode and, with ``min_scene_depth`` zero, at coincident centres the anchors jump.

    Raises:
        ValueError: if a fraction leaves [0, 1] or ``min_scene_depth`` is negative.
    """
    if any(not 0 <= fraction <= 1 for fraction in fractions):
        raise ValueError(
            f"fractions must lie in [0, 1]; got {tuple(fractions)}. 0 is the far direction, 1 the epipole."
        )
    if not min_scene_depth >= 0:
        raise ValueError(f"min_scene_depth must be >= 0 m; got {min_scene_depth}. Zero is the paper's arc.")
    dirs_query, offset_query = torch.broadcast_tensors(dirs_query, offset_query)
    # Scaling by the largest entry first keeps squares of tiny and of huge baselines in range. The
    # direction does not depend on the scale, so no gradient is lost by detaching it.
    largest = offset_query.detach().abs().amax(-1, keepdim=True)
    apart = largest > _COINCIDENT
    largest = torch.where(apart, largest, torch.ones_like(largest))
    e_x = torch.zeros_like(offset_query)
    e_x[..., 0] = 1
    scaled = torch.where(apart, offset_query / largest, e_x)
    length = scaled.norm(dim=-1, keepdim=True)
    epipole = scaled / length
    cos_arc = (epipole * dirs_query).sum(-1, keepdim=True)
    # |u x e| has full relative accuracy where 1 - cos^2 would cancel, and (u x e) x u stays at right
    # angles to u where e - (e . u) u is noise.
    normal = torch.linalg.cross(dirs_query, epipole)
    sin_sq = (normal * normal).sum(-1, keepdim=True)
    defined = apart & (sin_sq > _PARALLEL_SQ.get(dirs_query.dtype, 1e-12))
    sin_arc = torch.where(defined, sin_sq, torch.ones_like(sin_sq)).sqrt()
    tangent = torch.linalg.cross(normal / sin_arc, dirs_query)
    # atan2 rather than acos(dot): acos loses half the digits where the ray nears the epipole, which is
    # where forward-driving clips live.
    if min_scene_depth == 0:
        arc = torch.atan2(sin_arc, cos_arc)
    else:
        baseline = torch.where(apart, length * largest, torch.zeros_like(length))
        arc = torch.atan2(baseline * sin_arc, min_scene_depth + baseline * cos_arc)
    steps = torch.tensor(list(fractions), dtype=arc.dtype, device=arc.device)
    angles = (arc * steps)[..., None]
    anchors = angles.cos() * dirs_query[..., None, :] + angles.sin() * tangent[..., None, :]
    return torch.where(defined[..., None], anchors, dirs_query[..., None, :])


def transported_anchor_axes(
    dirs_query: Float[Tensor, "*batch 3"], anchors: Float[Tensor, "*batch anchor 3"]
) -> Float[Tensor, "*batch anchor 3 3"]:
    """Anchor frames carried along the arc from the far direction's minimum-rotation frame.

    Each frame is ``W A(u_inf)`` with ``W`` the smallest rotation from the far direction onto the anchor.
    Unlike ``minrot(anchor)`` it does not spin where the anchor passes behind the query camera; it jumps
    only when the far direction itself does, or when an anchor lies exactly opposite its far direction.
    """
    far = dirs_query[..., None, :]
    frame = minrot(dirs_query)[..., None, :, :]
    normal = torch.linalg.cross(far.expand_as(anchors), anchors)
    sin_sq = (normal * normal).sum(-1, keepdim=True)
    cos_arc = (far * anchors).sum(-1, keepdim=True)
    defined = sin_sq > _PARALLEL_SQ.get(dirs_query.dtype, 1e-12)
    sin_arc = torch.where(defined, sin_sq, torch.ones_like(sin_sq)).sqrt()
    arc = torch.where(defined, torch.atan2(sin_arc, cos_arc), math.pi * (cos_arc < 0).to(cos_arc.dtype))
    # Exactly opposite, any direction across the arc serves.
    across = torch.linalg.cross(normal / sin_arc, far.expand_as(anchors))
    across = torch.where(defined, across, frame[..., :, 1].expand_as(anchors))
    halfway = (arc / 2).cos() * far + (arc / 2).sin() * across
    halfway = halfway / halfway.norm(dim=-1, keepdim=True)
    # A half turn about the far direction, then one about the half-way direction: no division by
    # 1 + cos, which vanishes for a ray ahead seen from a camera that has driven past.
    half_turn = 2 * halfway[..., :, None] * halfway[..., None, :]
    half_turn = half_turn - torch.eye(3, dtype=anchors.dtype, device=anchors.device)
    flip = torch.tensor([-1.0, -1.0, 1.0], dtype=anchors.dtype, device=anchors.device)
    return half_turn @ (frame * flip)
