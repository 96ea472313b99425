"""The axioms, for every encoding of the library: on every standing scene at one size, at every size on one scene.

Identity where a token meets itself; no change under a rigid motion of the world; orthogonal if and only if norms are
claimed to be kept; logits bounded from 1 m to 10 km where they are; factored attention equals dense. Claims against
measurements are in test_testing.py, an encoding's own equations in its own file.
"""

import functools
import warnings
from dataclasses import dataclass

import pytest
import torch

from merope.attention import camera_attention
from merope.cameras.scenes import SCENES, moved_rigidly, random_drive, scene
from merope.encodings.base import FeatureEncoding
from merope.encodings.measures import BOUNDED, growth
from merope.encodings.pairwise import norm_ratios, without_warnings
from merope.encodings.raynova import RayNova
from merope.encodings.registry import ENCODINGS, default_encoding

SIZES = (64, 128, 192)
SCENES_AT = 64
DTYPES = (torch.float64, torch.float32)
HEADS = 5
ALL = tuple(SCENES)

VARIANTS = {"raynova, world frame": lambda size: RayNova(head_dim=size, frame="world")}
"""Encodings beside the registered ones, for what no default does."""

NAMES = (*ENCODINGS, *VARIANTS)


@dataclass(frozen=True, kw_only=True)
class Departure:
    """Where an axiom does not hold, and has to be seen not to hold."""

    axiom: str
    encodings: tuple[str, ...]
    scenes: tuple[str, ...]
    reason: str


EXCEPTIONS = (
    Departure(
        axiom="takes the scene",
        encodings=("crepe", "prope", "rayrope", "rerope", "urope"),
        scenes=("ray_at_antipode",),
        reason="they project into views, and no lens has this scene's rays",
    ),
    Departure(
        axiom="takes the scene",
        encodings=("prope", "rerope"),
        scenes=("fisheye_200deg",),
        reason="a 3 x 3 matrix describes pinholes alone",
    ),
    Departure(
        axiom="identity",
        encodings=("crepe", "rayrope"),
        scenes=ALL,
        reason="the phasor of a depth that is only known to lie in an interval is shorter than one",
    ),
    Departure(
        axiom="rigid motion",
        encodings=("raynova, world frame",),
        scenes=ALL,
        reason="coordinates of the world, by choice",
    ),
)


def departs(axiom, name, scene_name):
    """Whether the table has this case."""
    return any(
        axiom == found.axiom and name in found.encodings and scene_name in found.scenes
        for found in EXCEPTIONS
    )


CASES = [
    (name, scene_name, SCENES_AT)
    for name in NAMES
    for scene_name in SCENES
    if not departs("takes the scene", name, scene_name)
]
# A size is a layout of the head and knows nothing of where cameras stand: for the others one scene that turns, moves
# and is far from the origin.
CASES += [(name, "far_origin", size) for name in NAMES for size in SIZES if size != SCENES_AT]


@functools.cache
def made(name, size):
    if name in VARIANTS:
        return VARIANTS[name](size)
    return without_warnings(default_encoding(name, head_dim=size, num_heads=HEADS))


@functools.cache
def departure_from_norms(name, size):
    low, high = norm_ratios(made(name, size), scene("straight_drive"))
    return max(float(high.max()) - 1, 1 - float(low.min()))


@functools.cache
def operator(name, size, dtype, scene_name):
    return made(name, size).operator(scene(scene_name), dtype=dtype)


def limit(dtype, scene_name):
    """Rounding of finished factors, and of float64 geometry.

    At five million metres that has 1e-9 m, and the shortest wave of all is a millimetre long.
    """
    if dtype == torch.float32:
        return 2e-5
    return 1e-5 if scene_name == "far_origin" else 1e-9


def blocks(op):
    """Blocks of every band for all pairs of tokens, float64."""
    return [op.band_pairs(band).double() for band in op.bands]


def largest_entry(pairs_of_bands):
    return max(1.0, *(float(pairs.abs().max()) for pairs in pairs_of_bands))


def judged(error, bound, axiom, name, scene_name):
    """The axiom holds, or is on the table and does not."""
    if departs(axiom, name, scene_name):
        assert error > 10 * bound, f"{axiom} holds for {name} on {scene_name}: strike it from EXCEPTIONS"
    else:
        assert error <= bound, f"{axiom}: {error:.3g}, allowed {bound:.0e}"


every_case = pytest.mark.parametrize(("name", "scene_name", "size"), CASES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


@every_dtype
@every_case
def test_a_token_meets_itself_through_the_identity(name, scene_name, size, dtype):
    before, has_ray = blocks(operator(name, size, dtype, scene_name)), scene(scene_name).valid.flatten(1)
    error = 0.0
    for pairs in before:
        itself = pairs.diagonal(dim1=2, dim2=3).movedim((1, -1), (2, 1)).expand(2, *[-1] * 5)[has_ray]
        error = max(error, float((itself - torch.eye(pairs.shape[-1], dtype=torch.float64)).abs().max()))
    judged(error / largest_entry(before), limit(dtype, scene_name), "identity", name, scene_name)


@every_dtype
@every_case
def test_the_world_s_coordinates_do_not_show(name, scene_name, size, dtype):
    here = scene(scene_name)
    there = moved_rigidly(here, torch.tensor([0.3, -1.1, 0.7]), torch.tensor([12.0, -30.0, 4.0]).double())
    encoding = made(name, size)
    before = blocks(operator(name, size, dtype, scene_name))
    after = blocks(encoding.operator(there, dtype=dtype))
    error = max(float((two - one).abs().max()) for one, two in zip(before, after, strict=True))
    error = error / largest_entry(before)
    if isinstance(encoding, FeatureEncoding):
        before, after = (encoding.features(rays, dtype=dtype).double() for rays in (here, there))
        error = max(error, float((after - before).abs().max() / before.abs().max()))
    judged(error, limit(dtype, scene_name), "rigid motion", name, scene_name)


@every_dtype
@every_case
def test_maps_are_orthogonal_where_norms_are_claimed_to_be_kept(name, scene_name, size, dtype):
    if not made(name, size).claims.norm_preserving:
        # Not on every scene, but on one that moves.
        assert departure_from_norms(name, size) > 0.01
        return
    error = 0.0
    for pairs in blocks(operator(name, size, dtype, scene_name)):
        identity = torch.eye(pairs.shape[-1], dtype=torch.float64)
        error = max(error, float((pairs.mT @ pairs - identity).abs().max()))
    judged(error, limit(dtype, scene_name), "orthogonal", name, scene_name)


# Where logits go as cameras part is a matter of the blocks, which check_encoding measures at its own size.
@pytest.mark.parametrize("size", [64, 192])
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_bounded_where_norms_are_kept_and_grow_only_where_a_scale_is_asked_for(name, size):
    encoding = made(name, size)
    slope = growth(encoding).logit_slope
    if encoding.claims.norm_preserving:
        assert abs(slope) < BOUNDED
    elif slope > BOUNDED:
        assert encoding.facts.needs_scale


@every_dtype
@every_case
def test_factored_attention_equals_dense(name, scene_name, size, dtype):
    # The oracle holds every U_ab, so larger heads meet it with few tokens.
    few = random_drive(1, views=2, grid=(1, 2))
    op = (
        operator(name, size, dtype, scene_name)
        if size == SCENES_AT
        else made(name, size).operator(few, dtype=dtype)
    )
    draw = torch.Generator().manual_seed(1)
    heads = op.num_heads if op.num_heads > 1 else 2
    # Even where logits reach hundreds, a softmax of theirs must not decide what is compared.
    q, k, v = (
        0.1 * torch.randn(2, heads, op.num_queries, size, generator=draw, dtype=torch.float64).to(dtype)
        for _ in "qkv"
    )
    dense, factored = (camera_attention(q, k, v, op, backend=backend) for backend in ("reference", "chunked"))
    error = float((factored - dense).abs().max() / dense.abs().max())
    assert error < (1e-12 if dtype == torch.float64 else 1e-5)


# The table of exceptions


def test_exceptions_name_what_exists():
    for found in EXCEPTIONS:
        assert set(found.encodings) <= set(NAMES)
        assert set(found.scenes) <= set(SCENES)
        assert found.axiom in ("takes the scene", "identity", "rigid motion")
        assert found.reason


@pytest.mark.parametrize(
    ("name", "scene_name"),
    [(n, s) for n in NAMES for s in SCENES if departs("takes the scene", n, s)],
)
def test_a_scene_that_is_not_taken_is_refused_in_words(name, scene_name):
    with pytest.raises(ValueError, match=r"lens|pinhole"):
        made(name, 128).operator(scene(scene_name))


def test_an_exception_that_is_not_needed_fails(monkeypatch):
    needless = Departure(axiom="identity", encodings=("merope",), scenes=ALL, reason="none")
    monkeypatch.setitem(globals(), "EXCEPTIONS", (*EXCEPTIONS, needless))
    with pytest.raises(AssertionError, match=r"identity holds for merope.*strike it from EXCEPTIONS"):
        test_a_token_meets_itself_through_the_identity("merope", "straight_drive", 64, torch.float64)


def test_no_scene_warns_of_a_scale_that_reaches():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in NAMES:
            made(name, 64).operator(scene("straight_drive"))
