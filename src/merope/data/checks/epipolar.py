"""Do poses and video belong together? Matches between frames, measured against the epipolar geometry of the poses.

A point that is seen in two frames lies in one plane with both camera centres, and so do its two rays. How far matched rays
miss a common plane needs neither depth nor scale, works through any lens, and grows when poses are shifted against the
frames, inverted, or in other axes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm import tqdm

from merope.cameras import CameraModel
from merope.data.clips.footage import Footage
from merope.data.lenses.facts import angle_between
from merope.errors import MeropeError, MissingDependency, TrajectoryError
from merope.geometry.poses import Poses

Conclusion = Literal["agree", "other", "disagree", "unclear"]
AS_READ = "as read"
"""The reading under which poses are what their reader made of them."""

# Centres nearer than this share of the trajectory's extent have no direction from one to the other.
_NO_BASELINE = 1e-9
# A median this much above another counts as equal to it.
_EQUAL = 1.05
# Right poses missed by 0.1 to 1.3 pixels in the clips that were measured; matches are within 3 of what their two frames
# have in common, so poses that miss by more than this are not what the frames have in common.
MOST_PX = 2.0
# Matches that move less than this between frames are still, but for the noise of their places.
STILL_PX = 1.0
FEWEST_MATCHES = 30
_NUM_FEATURES = 4000
_RATIO = 0.75
# Fewer matches fit some epipolar geometry by chance.
_MIN_FOR_RANSAC = 15
# Rays further off axis (70 degrees) are left to be tested with the geometry of the others.
_MIN_FORWARD = 0.34


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameMatches:
    """Pixels of two frames that show the same point; (0, 0) is the centre of the first pixel."""

    first: int
    second: int
    pixels_first: Float[Tensor, "match 2"]
    pixels_second: Float[Tensor, "match 2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """How well the matches fit the poses under one shift and one reading."""

    shift: int
    """Frame i is taken to have pose i + shift."""
    reading: str
    """How the poses are taken: "as read", "inverted", "opengl" (y and z of the camera turned round), or both."""
    median_px: float
    """Median distance of matched pixels from their epipolar curves, pixels."""
    median_deg: float
    """Median angle of matched rays from their epipolar planes, degrees."""
    in_front: float
    """Share of the matches whose rays meet in front of both cameras, 0 to 1; 1 where there is no baseline."""
    num_matches: int
    num_pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResidual:
    """How well the matches of two frames fit the poses as read, without shift."""

    first: int
    second: int
    median_px: float
    num_matches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Residuals under every shift and reading, and which fits best."""

    residuals: tuple[Residual, ...]
    pairs: tuple[PairResidual, ...]
    """Each pair of frames with poses and matches, to see where in a video they part."""
    unturned_deg: float
    """Median angle between the two rays of a match, each in its own camera."""
    turned_deg: float
    """The same after the poses' rotations; parallax and errors of the rotations are left."""
    moved_px: float
    """``unturned_deg`` in pixels: how far a match moves between its frames."""
    parallax_px: float
    """``turned_deg`` in pixels: what is there to test the translations with."""

    @property
    def best(self) -> Residual:
        """The smallest median.

        A median that is less than 5 % above it counts as equal. Of equal ones those where points lie in front of the cameras
        come first (a path and its reverse have the same epipolar geometry), then the poses as read, then the least shift.
        """
        return min(
            self._near, key=lambda r: (r.in_front <= 0.5, r.reading != AS_READ, abs(r.shift), r.median_px)
        )

    @property
    def equals(self) -> tuple[Residual, ...]:
        """The others that fit as well as the best, with what is seen in front of the cameras: nothing tells them apart."""
        best = self.best
        return tuple(r for r in self._near if r is not best and (r.in_front > 0.5) == (best.in_front > 0.5))

    @property
    def conclusion(self) -> Conclusion:
        """Whether poses and frames belong together, as far as the matches can tell.

        "unclear": there are fewer than 30 matches, or they stand still, which any poses fit. "disagree": the best misses by
        more than 2 pixels. "agree": the best is as read without shift; "other": it is another one.
        """
        best = self.best
        if best.num_matches < FEWEST_MATCHES or self.moved_px < STILL_PX:
            return "unclear"
        if best.median_px > MOST_PX:
            return "disagree"
        return "agree" if (best.shift, best.reading) == (0, AS_READ) else "other"

    @property
    def _near(self) -> list[Residual]:
        least = min(r.median_px for r in self.residuals)
        return [r for r in self.residuals if r.median_px <= _EQUAL * least]

    def under(self, *, shift: int = 0, reading: str = AS_READ) -> Residual:
        """One of the residuals.

        Raises:
            KeyError: if it was not measured.
        """
        for residual in self.residuals:
            if (residual.shift, residual.reading) == (shift, reading):
                return residual
        raise KeyError(f"no residual for shift {shift}, {reading!r}")

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        found = {
            "conclusion": self.conclusion,
            "best": asdict(self.best),
            "equals": [*map(asdict, self.equals)],
        }
        return {**asdict(self), **found}


def frame_pairs(num_frames: int, *, gap: int, at_most: int | None = None) -> list[tuple[int, int]]:
    """Frames ``gap`` apart: all such pairs, or ``at_most`` of them spread evenly.

    Raises:
        ValueError: if the gap or the number is not positive.
        TrajectoryError: if there are too few frames for one pair.
    """
    if gap < 1 or (at_most is not None and at_most < 1):
        raise ValueError(f"gap and at_most must be at least 1, got {gap} and {at_most}.")
    count = num_frames - gap
    if count < 1:
        raise TrajectoryError(
            f"{num_frames} frames have no two that are {gap} apart. Use a gap of {max(num_frames - 1, 1)} or less (--gap)."
        )
    firsts = list(range(count))
    if at_most is not None and at_most < count:
        firsts = sorted({round(place) for place in np.linspace(0, count - 1, at_most)})
    return [(first, first + gap) for first in firsts]


def match_frames(
    footage: Footage, pairs: Sequence[tuple[int, int]], *, progress: bool = False
) -> list[FrameMatches]:
    """The 4000 strongest SIFT features of each frame, matched where each is the other's nearest in the other frame.

    The first one's nearest has to be nearer than 0.75 times its second nearest.

    Raises:
        MissingDependency: if OpenCV is not installed.
        MeropeError: if a frame cannot be read.
    """
    try:
        import cv2
    except ModuleNotFoundError:
        raise MissingDependency.for_extra("cv2", extra="data", purpose="matching frames") from None
    size: tuple[int, ...] = ()
    sift = cv2.SIFT_create(nfeatures=_NUM_FEATURES)  # type: ignore[attr-defined]
    numbers = sorted({number for pair in pairs for number in pair})
    places: dict[int, np.ndarray] = {}
    features: dict[int, np.ndarray] = {}
    frames = footage.frames(numbers)
    for number, frame in tqdm(
        zip(numbers, frames, strict=True),
        desc="features",
        total=len(numbers),
        unit="frame",
        disable=not progress,
    ):
        size = size or frame.shape
        if frame.shape != size:
            raise MeropeError(
                f"{footage.path}: frame {number} has {frame.shape[1]} x {frame.shape[0]} pixels, the first one compared has "
                f"{size[1]} x {size[0]}. One lens is for frames of one size: take them from one folder of one camera."
            )
        points, found = sift.detectAndCompute(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), None)
        places[number] = np.array([point.pt for point in points], dtype=np.float64).reshape(-1, 2)
        features[number] = np.zeros((0, 128), np.float32) if found is None else found

    matches = []
    for first, second in tqdm(pairs, desc="matches", unit="pair", disable=not progress):
        rows = _mutual(features[first], features[second])
        matches.append(
            FrameMatches(
                first=first,
                second=second,
                pixels_first=torch.from_numpy(places[first][rows[:, 0]]),
                pixels_second=torch.from_numpy(places[second][rows[:, 1]]),
            )
        )
    return matches


def _mutual(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Pairs of rows [match, 2] that are each other's nearest, the first one's nearest clearly nearer than its second."""
    if len(one) == 0 or len(other) < 2:
        return np.zeros((0, 2), np.int64)
    # SIFT's numbers are whole and below 256, so all of this is exact in float32.
    a, b = torch.from_numpy(one), torch.from_numpy(other)
    apart_sq = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.mT
    nearest_sq, there = apart_sq.min(1)
    index = torch.arange(len(a))
    apart_sq[index, there] = torch.inf
    clear = nearest_sq < _RATIO**2 * apart_sq.amin(1)
    apart_sq[index, there] = nearest_sq
    index, there = index[clear], there[clear]
    mutual = apart_sq[:, there].argmin(0) == index
    return torch.stack((index, there), 1)[mutual].numpy()


def consistent(
    matches: Sequence[FrameMatches], lens: CameraModel, *, threshold_px: float = 3.0
) -> list[FrameMatches]:
    """The matches that fit one epipolar geometry of their two frames, whichever that is, to ``threshold_px`` in both frames.

    It is found by RANSAC and knows nothing of the poses. What is left out are wrong matches and things that move by
    themselves. Of pairs with fewer than 15 matches all are kept.

    Raises:
        MissingDependency: if OpenCV is not installed.
    """
    try:
        import cv2
    except ModuleNotFoundError:
        raise MissingDependency.for_extra("cv2", extra="data", purpose="matching frames") from None
    kept = []
    for match in matches:
        rays = _rays(match, lens)
        ahead = (rays.dirs_first[:, 2] > _MIN_FORWARD) & (rays.dirs_second[:, 2] > _MIN_FORWARD)
        fundamental = None
        if int(ahead.sum()) >= _MIN_FOR_RANSAC:
            # The plane of a pinhole with as many pixels per radian as this lens has on average.
            focal_px = float(_pixels_per_radian(rays.slopes_first).median())
            first, second = (
                (focal_px * dirs[ahead, :2] / dirs[ahead, 2:]).numpy()
                for dirs in (rays.dirs_first, rays.dirs_second)
            )
            try:
                fundamental, _ = cv2.findFundamentalMat(first, second, cv2.FM_RANSAC, threshold_px, 0.999)
            except cv2.error:
                # No sample of eight gave a model.
                fundamental = None
        if fundamental is None or fundamental.shape != (3, 3):
            kept.append(match)
            continue
        scale = torch.tensor([focal_px, focal_px, 1.0], dtype=torch.float64)
        between = scale[:, None] * torch.from_numpy(fundamental) * scale
        normal_first, normal_second = rays.dirs_second @ between, rays.dirs_first @ between.mT
        miss = (rays.dirs_first * normal_first).sum(-1)
        fits = rays.valid.clone()
        fits[rays.valid] = (
            torch.stack(_distances_px(rays, miss, normal_first, normal_second)).amax(0) <= threshold_px
        )
        kept.append(
            FrameMatches(
                first=match.first,
                second=match.second,
                pixels_first=match.pixels_first[fits],
                pixels_second=match.pixels_second[fits],
            )
        )
    return kept


def readings(poses: Poses) -> dict[str, Poses]:
    """The same file taken in other ways: matrices the other way round, and camera axes of OpenGL for OpenCV's or back."""
    inverse = Poses(
        R_world_cam=poses.R_world_cam.mT, center_world=poses.T_cam_world[:, :3, 3], unit=poses.unit
    )
    turn = torch.diag(torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64))
    zero = torch.zeros(3, dtype=torch.float64)
    return {
        AS_READ: poses,
        "inverted": inverse,
        "opengl": poses.mounted(turn, zero),
        "inverted, opengl": inverse.mounted(turn, zero),
    }


def agreement(
    matches: Sequence[FrameMatches],
    poses: Poses,
    lens: CameraModel,
    *,
    start: int = 0,
    shifts: Sequence[int] = (-2, -1, 0, 1, 2),
) -> Agreement:
    """Residuals of matches under the poses, as read and in the other `readings`, with the poses shifted against the frames.

    ``start`` is the number of the pose that belongs to frame 0 without shift.

    The residual of a match is the distance of each of its pixels from the epipolar curve that the other one gives, to first
    order, averaged over both. Where two centres coincide there is no such curve, and the residual is how far apart the rays
    are. Medians are over all matches of the pairs that have poses under every shift, so that all shifts are judged by the
    same matches; where there are no such pairs, each shift is by those it has.

    Raises:
        MeropeError: if there are no matches with rays, or no pair has poses.
    """
    seen = [_rays(match, lens) for match in matches]
    for_all = [r for r in seen if all(_has_poses(r, start + shift, len(poses)) for shift in shifts)]
    residuals = []
    for name, taken in readings(poses).items():
        for shift in shifts:
            used = for_all or [r for r in seen if _has_poses(r, start + shift, len(poses))]
            parts = [_residuals(r, taken, r.first + start + shift, r.second + start + shift) for r in used]
            parts = [part for part in parts if part.shape[1] > 0]
            if parts:
                merged = torch.cat(parts, dim=1)
                residuals.append(
                    Residual(
                        shift=shift,
                        reading=name,
                        median_px=float(merged[0].quantile(0.5)),
                        median_deg=float(torch.rad2deg(merged[1]).quantile(0.5)),
                        in_front=float((merged[2] > 0).double().mean()),
                        num_matches=merged.shape[1],
                        num_pairs=len(parts),
                    )
                )
    if not any(r.shift == 0 and r.reading == AS_READ for r in residuals):
        raise MeropeError(
            "no two frames with matches have poses. Are there as many poses as frames, does the lens see the pixels, and is "
            "there texture to match? Frames nearer to each other share more: --gap."
        )
    turned = [r for r in seen if _has_poses(r, start, len(poses))]
    angle_unturned = torch.cat([angle_between(r.dirs_first, r.dirs_second) for r in turned])
    px_per_rad = torch.cat([_pixels_per_radian(r.slopes_first) for r in turned])
    angle_turned = torch.cat(
        [
            angle_between(
                r.dirs_first, r.dirs_second @ poses.relative(r.first + start, r.second + start)[0].mT
            )
            for r in turned
        ]
    )
    pairs = [
        PairResidual(
            first=r.first,
            second=r.second,
            median_px=float(_residuals(r, poses, r.first + start, r.second + start)[0].quantile(0.5)),
            num_matches=len(r.dirs_first),
        )
        for r in turned
        if len(r.dirs_first)
    ]
    return Agreement(
        residuals=tuple(residuals),
        pairs=tuple(pairs),
        unturned_deg=float(torch.rad2deg(angle_unturned).quantile(0.5)),
        turned_deg=float(torch.rad2deg(angle_turned).quantile(0.5)),
        moved_px=float((angle_unturned * px_per_rad).quantile(0.5)),
        parallax_px=float((angle_turned * px_per_rad).quantile(0.5)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rays:
    """Rays of the matches of two frames, each in its own camera, and their derivatives by the pixel."""

    first: int
    second: int
    dirs_first: Float[Tensor, "match 3"]
    dirs_second: Float[Tensor, "match 3"]
    slopes_first: Float[Tensor, "match 3 2"]
    slopes_second: Float[Tensor, "match 3 2"]
    valid: Bool[Tensor, "all"]
    """Which of the matches have rays in both frames; the others are left out above."""


def _has_poses(rays: _Rays, offset: int, num_poses: int) -> bool:
    return rays.first + offset >= 0 and rays.second + offset < num_poses


def _rays(match: FrameMatches, lens: CameraModel) -> _Rays:
    lens = lens.with_pixel_origin("center")
    dirs_first, slopes_first, valid_first = _unproject(lens, match.pixels_first)
    dirs_second, slopes_second, valid_second = _unproject(lens, match.pixels_second)
    both = valid_first & valid_second
    return _Rays(
        first=match.first,
        second=match.second,
        dirs_first=dirs_first[both],
        dirs_second=dirs_second[both],
        slopes_first=slopes_first[both],
        slopes_second=slopes_second[both],
        valid=both,
    )


def _unproject(
    lens: CameraModel, pixels: Float[Tensor, "match 2"]
) -> tuple[Float[Tensor, "match 3"], Float[Tensor, "match 3 2"], Bool[Tensor, "match"]]:
    """Rays, their derivatives by the pixel, and where there are any."""
    pixels = pixels.clone().requires_grad_()
    dirs_cam, valid = lens.unproject(pixels)
    slopes = [
        torch.autograd.grad(dirs_cam[:, axis].sum(), pixels, retain_graph=axis < 2)[0] for axis in range(3)
    ]
    return dirs_cam.detach(), torch.stack(slopes, 1), valid


def _residuals(rays: _Rays, poses: Poses, first: int, second: int) -> Float[Tensor, "3 match"]:
    """Residuals in pixels and in radians of one pair, and 1 where the rays meet in front of both cameras."""
    R_first_second, offset_first = poses.relative(first, second)
    extent = float((poses.center_world - poses.center_world[0]).norm(dim=-1).max())
    seen_first = rays.dirs_second @ R_first_second.mT
    if float(offset_first.norm()) <= _NO_BASELINE * extent or extent == 0:
        return _without_baseline(rays, seen_first)
    # The plane of the second ray and the baseline, by its normal; and the same for the first ray, in the second camera.
    normal_first = torch.linalg.cross(offset_first.expand_as(seen_first), seen_first)
    normal_second = torch.linalg.cross(rays.dirs_first, offset_first.expand_as(seen_first)) @ R_first_second
    miss = (rays.dirs_first * normal_first).sum(-1)
    across = torch.linalg.cross(rays.dirs_first, seen_first)
    # The rays come nearest to each other at depths with these signs.
    depth_first = (normal_first * across).sum(-1)
    depth_second = (torch.linalg.cross(offset_first.expand_as(seen_first), rays.dirs_first) * across).sum(-1)
    ahead = ((depth_first > 0) & (depth_second > 0)).double()
    one_px, other_px = _distances_px(rays, miss, normal_first, normal_second)
    angles = [
        torch.asin(_over(miss, normal.norm(dim=-1)).clamp(max=1)) for normal in (normal_first, normal_second)
    ]
    return torch.stack(((one_px + other_px) / 2, (angles[0] + angles[1]) / 2, ahead))


def _distances_px(
    rays: _Rays,
    miss: Float[Tensor, "match"],
    normal_first: Float[Tensor, "match 3"],
    normal_second: Float[Tensor, "match 3"],
) -> tuple[Float[Tensor, "match"], Float[Tensor, "match"]]:
    """Distances of the pixels of both frames from their epipolar curves, to first order."""
    sides = ((normal_first, rays.slopes_first), (normal_second, rays.slopes_second))
    one, other = (_over(miss, (normal[:, :, None] * slopes).sum(1).norm(dim=-1)) for normal, slopes in sides)
    return one, other


def _pixels_per_radian(slopes: Float[Tensor, "match 3 2"]) -> Float[Tensor, "match"]:
    """What an angle is on the raster, from the solid angle that a pixel sees."""
    return 1 / torch.sqrt(torch.linalg.cross(slopes[:, :, 0], slopes[:, :, 1]).norm(dim=-1))


def _over(miss: Float[Tensor, "match"], length: Float[Tensor, "match"]) -> Float[Tensor, "match"]:
    """``|miss| / length``; zero where a ray runs along the baseline and every plane holds it."""
    return torch.where(length > 0, miss.abs() / torch.where(length > 0, length, 1), 0)


def _without_baseline(rays: _Rays, seen_first: Float[Tensor, "match 3"]) -> Float[Tensor, "3 match"]:
    angle = angle_between(rays.dirs_first, seen_first)
    return torch.stack((angle * _pixels_per_radian(rays.slopes_first), angle, torch.ones_like(angle)))
