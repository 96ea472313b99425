"""A cache of raw keys and values: chunk by chunk it is frame-causal attention over the whole clip."""

import itertools
import pickle
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from merope.adapters.cache import KeyValueCache
from merope.attention import camera_attention
from merope.cameras.scenes import random_drive, scene
from merope.encodings.base import Claims, DepthEncoding, Facts, assemble, key_rays
from merope.encodings.measures import without_warnings
from merope.encodings.merope import MeRoPE
from merope.encodings.raynova import RayNova
from merope.encodings.registry import ENCODINGS, default_encoding
from merope.operators import Band, Rotate2
from tests.support.memory import LiveBytes
from tests.support.streams import (
    BATCH,
    CHUNKS,
    DIM,
    GRID,
    HEADS,
    PER_CAMERA,
    PER_CLIP,
    append,
    depths,
    features,
    filled,
    streamed,
    tokens,
    whole_operator,
)

# Chunks equal the whole clip


@pytest.mark.parametrize("chunks", [CHUNKS, [(0, 7)], [(n, n + 1) for n in range(7)]], ids=["3", "1", "7"])
@pytest.mark.parametrize("name", ENCODINGS)
def test_chunk_by_chunk_is_frame_causal_attention_over_the_clip(name, chunks):
    encoding = without_warnings(default_encoding(name, head_dim=DIM, num_heads=HEADS))
    clip = random_drive(1, views=7, grid=GRID)
    given = features(clip)
    whole = camera_attention(*given, whole_operator(encoding, clip, depths(clip)), frame_causal=True)
    out = streamed(KeyValueCache(encoding), clip, given, chunks)
    scale = max(1.0, whole.abs().max().item())
    torch.testing.assert_close(out / scale, whole / scale, rtol=0, atol=1e-12)


def test_a_chunk_generated_as_a_whole_sees_all_of_itself():
    clip = random_drive(1, views=7, grid=GRID)
    given = features(clip)
    encoding = MeRoPE(head_dim=DIM)
    out = streamed(KeyValueCache(encoding), clip, given, CHUNKS, frame_causal=False)
    for first, last in CHUNKS:
        operator = encoding.operator(
            clip.for_views(first, last), clip.for_views(0, last), dtype=torch.float64
        )
        expected = camera_attention(
            tokens(given[0], first, last), *(tokens(x, 0, last) for x in given[1:]), operator
        )
        torch.testing.assert_close(tokens(out, first, last), expected, rtol=0, atol=1e-12)
        causal = camera_attention(
            tokens(given[0], first, last),
            *(tokens(x, 0, last) for x in given[1:]),
            operator,
            frame_causal=True,
        )
        assert (last - first > 1) == bool((causal - expected).abs().max() > 0.01)


def test_tokens_without_a_ray_are_no_keys():
    clip = scene("fisheye_200deg")
    assert not clip.valid.all()
    given = features(clip)
    encoding = MeRoPE(head_dim=DIM)
    whole = camera_attention(*given, encoding.operator(clip, dtype=torch.float64), frame_causal=True)
    out = streamed(KeyValueCache(encoding), clip, given, [(0, 2), (2, 3)])
    torch.testing.assert_close(out, whole, rtol=0, atol=1e-12)


def test_the_last_camera_of_a_chunk_may_ask_alone():
    cache, _, given = filled()
    both = cache.attend(tokens(given[0], 5, 7))
    torch.testing.assert_close(cache.attend(tokens(given[0], 6, 7)), tokens(both, 1, 2), rtol=0, atol=1e-12)


def test_raynova_in_a_window_keeps_the_frame_of_a_first_view_that_is_gone():
    encoding = RayNova(head_dim=DIM)
    cache, clip, given = filled(encoding, chunks=CHUNKS[:2], max_cameras=4)
    append(cache, clip, given, 3, 7)
    assert cache.num_cameras == 4
    operator = encoding.operator(clip, dtype=torch.float64)
    mask = torch.ones(BATCH, 7 * PER_CAMERA, dtype=torch.bool)
    mask[:, : 3 * PER_CAMERA] = False
    expected = camera_attention(*given, operator, key_mask=mask, frame_causal=True)
    torch.testing.assert_close(
        cache.attend(tokens(given[0], 3, 7)), tokens(expected, 3, 7), rtol=0, atol=1e-12
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BySpread:
    """Phases of displacements over the spread of all query centres: no encoding of ours does that."""

    facts: ClassVar[Facts] = Facts(title="by spread", source="a test")
    head_dim: int = DIM
    acts_on: str = "qkvo"
    claims: ClassVar[Claims] = Claims(metric=False, per_token=True, norm_preserving=True)

    def operator(self, queries, keys=None, *, dtype=torch.float32, device="cpu"):
        keys = key_rays(queries, keys)
        spread = queries.center_world.std()
        blocks = []
        for rays in (queries, keys):
            phases = (rays.center_world / spread)[..., :1].repeat_interleave(rays.tokens_per_view, 1)[:, None]
            blocks.append(Rotate2(phases.cos(), phases.sin()))
        band = Band(name="spread", width=DIM, size=2, left=blocks[0], right=blocks[1])
        return assemble((band,), queries, keys, acts_on=self.acts_on, dtype=dtype, device=device)


def test_an_encoding_that_looks_at_all_cameras_at_once_is_refused_by_name():
    with pytest.raises(ValueError, match=r"BySpread relates two cameras through others.*cannot be streamed"):
        KeyValueCache(BySpread())


# The window, and taking back


@pytest.mark.parametrize("chunks", [[(n, n + 1) for n in range(7)], [(0, 2), (2, 3), (3, 6), (6, 7)]])
def test_a_window_is_attention_over_the_newest_cameras(chunks):
    clip = random_drive(2, views=7, grid=GRID)
    given = features(clip)
    encoding = MeRoPE(head_dim=DIM)
    cache = KeyValueCache(encoding, max_cameras=3)
    allocated = set()
    for first, last in chunks:
        out = streamed(cache, clip, given, [(first, last)])
        start = max(0, last - 3)
        assert cache.num_cameras == last - start
        assert torch.equal(cache.views.center_world, clip.center_world[:, start:last])
        operator = encoding.operator(
            clip.for_views(first, last), clip.for_views(start, last), dtype=torch.float64
        )
        expected = camera_attention(
            tokens(given[0], first, last),
            *(tokens(x, start, last) for x in given[1:]),
            operator,
            frame_causal=True,
        )
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
        allocated |= {kept.storage.data_ptr() for kept in cache._kept.values()}
    # One allocation each for keys and values.
    assert len(allocated) == 2


def test_evicted_cameras_are_gone():
    cache, clip, given = filled()
    cache.evict(3)
    assert cache.num_cameras == 4
    other = KeyValueCache(cache.encoding)
    append(other, clip, given, 3, 7)
    query = tokens(given[0], 4, 7)
    torch.testing.assert_close(cache.attend(query), other.attend(query), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"leave one of the 4 cameras held; got 4.*reset\(\)"):
        cache.evict(4)


@pytest.mark.parametrize("max_cameras", [None, 5])
def test_a_chunk_is_taken_back_and_appended_anew_in_every_denoising_step(max_cameras):
    cache, clip, given = filled(chunks=CHUNKS[:2], max_cameras=max_cameras)
    noisy = features(clip, seed=8)
    append(cache, clip, noisy, 3, 7)
    during = cache.attend(tokens(noisy[0], 3, 7))
    cache.rewind(4)
    append(cache, clip, given, 3, 7)
    expected, _, _ = filled(max_cameras=max_cameras)
    query = tokens(given[0], 3, 7)
    assert torch.equal(cache.attend(query), expected.attend(query))
    assert (during - expected.attend(query)).abs().max() > 0.1


def test_a_first_chunk_that_is_taken_back_leaves_no_first_view():
    encoding = RayNova(head_dim=DIM)
    clip, other = (random_drive(seed, views=2, grid=GRID) for seed in (1, 2))
    given = features(clip)
    cache = KeyValueCache(encoding)
    append(cache, other, given, 0, 2)
    cache.rewind(2)
    out = streamed(cache, clip, given, [(0, 1), (1, 2)])
    whole = camera_attention(*given, encoding.operator(clip, dtype=torch.float64), frame_causal=True)
    torch.testing.assert_close(out, whole, rtol=0, atol=1e-12)


def test_reset_forgets_batch_size_and_clock():
    cache, _, _ = filled()
    cache.reset()
    assert (cache.num_cameras, cache.num_tokens, cache.nbytes) == (0, 0, 0)
    clip = random_drive(3, views=2, grid=(1, 4))
    one = replace(clip, **{name: getattr(clip, name)[:1] for name in PER_CLIP})
    query, key, value = features(one, heads=3)
    cache.append(key, value, one)
    expected = camera_attention(
        query, key, value, cache.encoding.operator(one, dtype=torch.float64), frame_causal=True
    )
    torch.testing.assert_close(cache.attend(query), expected, rtol=0, atol=1e-12)


# Memory


def test_bytes_do_not_grow_with_the_number_of_query_cameras():
    held = {}
    for num_query_cameras in (1, 8):
        cache, _, given = filled(views=12, chunks=[(0, 12)])
        assert cache.num_cameras == 12
        query = tokens(given[0], 12 - num_query_cameras, 12)
        before = len(pickle.dumps(cache))
        with LiveBytes() as live:
            out = cache.attend(query)
            del out
        # Nothing that attention made is still there.
        assert live.peak > 0
        assert live.current == 0
        held[num_query_cameras] = (len(pickle.dumps(cache)), cache.nbytes)
        assert held[num_query_cameras][0] == before
    assert held[1] == held[8]
    features_alone = 2 * BATCH * HEADS * 12 * PER_CAMERA * DIM * 8
    assert features_alone < held[8][1] < 1.1 * features_alone


def test_memory_doubles_rather_than_grows_with_every_append():
    clip = random_drive(views=33, grid=GRID)
    given = features(clip)
    cache = KeyValueCache(MeRoPE(head_dim=DIM))
    places = []
    for camera in range(33):
        append(cache, clip, given, camera, camera + 1)
        places.append(cache._kept["key"].storage.data_ptr())
    moves = sum(ours != theirs for ours, theirs in itertools.pairwise(places))
    # 1, 2, 4, ..., 64 cameras.
    assert moves == 6
    assert torch.equal(cache._kept["key"].tokens(), given[1])


def test_without_gradients_the_kept_keys_are_read_in_place(monkeypatch):
    cache, _, given = filled()
    seen = []

    def record(query, key, value, operator, **call):
        seen.append((key.data_ptr(), value.data_ptr()))
        return camera_attention(query, key, value, operator, **call)

    monkeypatch.setattr("merope.adapters.cache.camera_attention", record)
    cache.attend(tokens(given[0], 5, 7))
    assert seen == [tuple(cache._kept[name].storage.data_ptr() for name in ("key", "value"))]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_cache_keeps_its_own_precision(dtype):
    clip = random_drive(1, views=3, grid=GRID)
    query, key, value = features(clip, dtype=torch.float32)
    cache = KeyValueCache(MeRoPE(head_dim=DIM), dtype=dtype)
    cache.append(key, value, clip)
    assert cache._kept["key"].storage.dtype == dtype
    out = cache.attend(query)
    assert out.dtype == torch.float32
    expected = camera_attention(
        query,
        key.to(dtype).float(),
        value.to(dtype).float(),
        cache.encoding.operator(clip),
        frame_causal=True,
    )
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)


def test_inference_mode_and_training_may_take_turns():
    cache, clip, given = filled(chunks=[], max_cameras=7)
    with torch.inference_mode():
        append(cache, clip, given, 0, 3)
        cache.attend(tokens(given[0], 1, 3))
    query = tokens(given[0], 3, 4).clone().requires_grad_()
    append(cache, clip, given, 3, 4)
    cache.attend(query).sum().backward()
    assert query.grad.abs().max() > 0
    with torch.inference_mode():
        append(cache, clip, given, 4, 7)
        out = cache.attend(tokens(given[0], 4, 7))
    whole = camera_attention(*given, cache.encoding.operator(clip, dtype=torch.float64), frame_causal=True)
    torch.testing.assert_close(out.clone(), tokens(whole, 4, 7), rtol=0, atol=1e-12)


def test_a_cache_moves_between_devices_and_its_cameras_stay():
    cache, _, _ = filled()
    assert cache.to("meta") is cache
    assert {kept.storage.device.type for kept in cache._kept.values()} == {"meta"}
    assert cache.views.center_world.device.type == "cpu"


# Gradients


@pytest.mark.parametrize("name", ["merope", "rayrope", "raynova"])
def test_gradients_reach_queries_and_the_newest_keys_and_are_those_of_the_whole_clip(name):
    encoding = without_warnings(default_encoding(name, head_dim=DIM, num_heads=HEADS))
    clip = random_drive(1, views=5, grid=GRID)
    given = features(clip)
    depth = depths(clip)
    weights = torch.randn(BATCH, HEADS, 2 * PER_CAMERA, DIM, dtype=torch.float64)

    leaves = [x.clone().requires_grad_() for x in (*given, depth)]
    whole = camera_attention(*leaves[:3], whole_operator(encoding, clip, leaves[3]), frame_causal=True)
    used = leaves if isinstance(encoding, DepthEncoding) else leaves[:3]
    wanted = torch.autograd.grad((tokens(whole, 3, 5) * weights).sum(), used)

    cache = KeyValueCache(encoding)
    append(cache, clip, given, 0, 3)
    newest = [tokens(x, 3, 5, axis=2 if x.ndim == 4 else 1).clone().requires_grad_() for x in (*given, depth)]
    extra = {"depth": newest[3]} if isinstance(encoding, DepthEncoding) else {}
    cache.append(newest[1], newest[2], clip.for_views(3, 5), **extra)
    out = cache.attend(newest[0])
    # What is appended before the backward pass does not disturb it.
    later = random_drive(9, views=1, grid=GRID)
    later = replace(later, time=later.time + 5)
    _, key, value = features(later)
    cache.append(key, value, later, **({"depth": depths(later)} if extra else {}))
    found = torch.autograd.grad((out * weights).sum(), newest[: len(used)])
    for ours, theirs in zip(found, wanted, strict=True):
        expected = tokens(theirs, 3, 5, axis=2 if theirs.ndim == 4 else 1)
        assert expected.abs().max() > 1e-6
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-11)


def test_earlier_chunks_are_constants():
    clip = random_drive(1, views=3, grid=GRID)
    given = [x.clone().requires_grad_() for x in features(clip)]
    cache = KeyValueCache(MeRoPE(head_dim=DIM))
    append(cache, clip, given, 0, 2)
    append(cache, clip, given, 2, 3)
    out = cache.attend(tokens(given[0], 2, 3))
    grad = torch.autograd.grad(out.square().sum(), given[1])[0]
    assert torch.equal(tokens(grad, 0, 2), torch.zeros_like(tokens(grad, 0, 2)))
    assert tokens(grad, 2, 3).abs().max() > 0


def test_what_an_eviction_leaves_of_the_newest_chunk_keeps_its_gradient():
    clip = random_drive(1, views=4, grid=GRID)
    given = [x.clone().requires_grad_() for x in features(clip)]
    cache = KeyValueCache(MeRoPE(head_dim=DIM))
    append(cache, clip, given, 0, 1)
    append(cache, clip, given, 1, 4)
    cache.evict(2)
    grad = torch.autograd.grad(cache.attend(tokens(given[0], 3, 4)).square().sum(), given[2])[0]
    assert torch.equal(tokens(grad, 0, 2), torch.zeros_like(tokens(grad, 0, 2)))
    assert tokens(grad, 2, 4).abs().amax((0, 1, 3)).min() > 0


@pytest.mark.parametrize("taken", [1, 2])
def test_a_chunk_that_is_taken_back_leaves_no_gradient_behind(taken):
    clip = random_drive(1, views=4, grid=GRID)
    given = [x.clone().requires_grad_() for x in features(clip)]
    cache = KeyValueCache(MeRoPE(head_dim=DIM))
    append(cache, clip, given, 0, 2)
    append(cache, clip, given, 2, 4)
    cache.rewind(taken)
    last = 4 - taken
    out = cache.attend(tokens(given[0], last - 1, last))
    other, _, _ = filled(views=4, chunks=[])
    with torch.no_grad():
        append(other, clip, given, 0, last)
        expected = other.attend(tokens(given[0], last - 1, last))
    torch.testing.assert_close(out.detach(), expected, rtol=0, atol=1e-12)
    assert torch.autograd.grad(out.sum(), given[1], allow_unused=True)[0] is None


def test_poses_that_need_a_gradient_are_refused():
    clip = random_drive(1, views=2, grid=GRID)
    _, key, value = features(clip)
    posed = replace(clip, center_world=clip.center_world.clone().requires_grad_())
    with pytest.raises(ValueError, match=r"views must be constants.*camera_attention\(frame_causal=True\)"):
        KeyValueCache(MeRoPE(head_dim=DIM)).append(key, value, posed)
