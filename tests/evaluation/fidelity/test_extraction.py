"""From clips to features: the same digits for any number of workers, kept by content, the prefix left alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from merope.errors import MeropeError
from merope.evaluation.fidelity.clips import ClipCollection, generated_collection, real_collection
from merope.evaluation.fidelity.extraction import extract, resized
from merope.evaluation.fidelity.protocol import FidelityProtocol, Resize
from tests.evaluation.fidelity.clips import in_memory, pixels, write_real, write_run
from tests.evaluation.fidelity.networks import TinyFrames, frames_network, videos_network

PROTOCOL = FidelityProtocol(exclude_prefix=3)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return real_collection(write_real(tmp_path_factory.mktemp("real"), count=6))


def rows(extracted, name="tiny"):
    features = extracted.features[name]
    return [features.block(number) for number in range(len(features.sizes))]


def equal(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_features_are_those_of_the_frames_behind_the_prefix(real):
    found = extract(real, [frames_network()], PROTOCOL)
    with torch.no_grad():
        frames = torch.from_numpy(pixels(2)[3:]).permute(0, 3, 1, 2)
        expected = TinyFrames()(frames).numpy()
    np.testing.assert_allclose(rows(found)[2], expected, rtol=1e-6)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_number_of_workers_changes_no_digit(real, workers, tmp_path):
    networks = [frames_network(), videos_network()]
    alone = extract(real, networks, PROTOCOL, workers=1)
    found = extract(real, networks, PROTOCOL, workers=workers, cache=tmp_path)
    assert equal(rows(alone), rows(found)) and equal(rows(alone, "tiny-videos"), rows(found, "tiny-videos"))
    assert found.frames_sha256 == alone.frames_sha256


def test_the_order_in_which_clips_are_given_changes_no_digit(real):
    turned = ClipCollection(label="turned", clips=real.clips[::-1])
    one, other = (extract(each, [frames_network()], PROTOCOL) for each in (real, turned))
    assert equal(rows(one), rows(other))
    moments = [each.features["tiny"].moments() for each in (one, other)]
    assert np.array_equal(moments[0].scatter, moments[1].scatter)


def test_frames_that_were_given_are_not_looked_at(tmp_path):
    runs = [write_run(tmp_path / name, poison=poison) for name, poison in (("a", 0), ("b", 255))]
    networks = [frames_network(), videos_network()]
    found = [extract(generated_collection(run), networks, PROTOCOL) for run in runs]
    for name in ("tiny", "tiny-videos"):
        assert equal(rows(found[0], name), rows(found[1], name))
    assert found[0].frames_sha256 == found[1].frames_sha256
    with_prefix = [
        extract(generated_collection(run), networks, FidelityProtocol(exclude_prefix=0)) for run in runs
    ]
    assert not equal(rows(with_prefix[0]), rows(with_prefix[1]))


def test_what_is_kept_is_not_computed_again_whoever_it_belongs_to(real, tmp_path):
    networks = [frames_network(), videos_network()]
    first = extract(real, networks, PROTOCOL, cache=tmp_path)
    assert first.num_computed == 12

    def forbidden(batch):
        raise AssertionError("the network ran")

    idle = [replace(network, compute=forbidden) for network in networks]
    again = extract(replace(real, label="other name"), idle, PROTOCOL, cache=tmp_path)
    assert again.num_computed == 0 and equal(rows(first), rows(again))


def test_an_interrupted_extraction_goes_on_where_it_stopped(real, tmp_path):
    network, calls = frames_network(), []

    def failing(batch):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return network.compute(batch)

    with pytest.raises(KeyboardInterrupt):
        extract(real, [replace(network, compute=failing)], PROTOCOL, cache=tmp_path)
    assert extract(real, [network], PROTOCOL, cache=tmp_path).num_computed == 3


def test_a_damaged_file_of_features_is_computed_again(real, tmp_path):
    first = extract(real, [frames_network()], PROTOCOL, cache=tmp_path)
    paths = sorted(tmp_path.rglob("*.npy"))[:5]
    whole = paths[0].read_bytes()
    damages = (b"", b"junk", whole[:-1], whole.replace(b"}", b" "), b"PK\x03\x04" + whole[4:])
    for path, content in zip(paths, damages, strict=True):
        path.write_bytes(content)
    again = extract(real, [frames_network()], PROTOCOL, cache=tmp_path)
    assert again.num_computed == 5 and equal(rows(first), rows(again))


@pytest.mark.parametrize(
    "protocol",
    [
        FidelityProtocol(exclude_prefix=4),
        FidelityProtocol(exclude_prefix=3, frame_step=2),
        FidelityProtocol(exclude_prefix=3, resize=Resize(mode="nearest", height=12, width=16)),
    ],
)
def test_another_protocol_finds_nothing_kept(real, tmp_path, protocol):
    extract(real, [frames_network()], PROTOCOL, cache=tmp_path)
    assert extract(real, [frames_network()], protocol, cache=tmp_path).num_computed == 6
    assert extract(real, [frames_network(seed=1)], PROTOCOL, cache=tmp_path).num_computed == 6


def test_a_changed_frame_is_computed_again(tmp_path):
    root = write_real(tmp_path / "real", count=3)
    kept = tmp_path / "kept"
    extract(real_collection(root), [frames_network()], PROTOCOL, cache=kept)
    source, target = (sorted((root / "c01" / "frames").iterdir())[number] for number in (4, 8))
    target.write_bytes(source.read_bytes())
    assert extract(real_collection(root), [frames_network()], PROTOCOL, cache=kept).num_computed == 1


def test_few_clips_are_in_memory_however_many_there_are():
    alive, most = set(), []
    collection = in_memory("set", [pixels(0)] * 30)

    def counted(clip):
        def read(numbers):
            alive.add(clip.clip_id)
            most.append(len(alive))
            return clip.read(numbers)

        return replace(clip, read=read)

    network = frames_network()

    def computed(batch):
        # Clips go through the network in order, so the first one alive is this one.
        alive.discard(min(alive))
        return network.compute(batch)

    watched = replace(network, compute=computed, batch_size=100)
    clips = ClipCollection(label="set", clips=tuple(counted(clip) for clip in collection.clips))
    extract(clips, [watched], PROTOCOL, workers=2)
    assert len(most) == 60 and max(most) <= 2 + 2


def test_resizing_is_torchs_own_rounded():
    frames = torch.from_numpy(pixels(0)).permute(0, 3, 1, 2)
    found = resized(frames, Resize(mode="bicubic", height=11, width=17, antialias=True), None)
    whole = torch.nn.functional.interpolate(frames.float(), (11, 17), mode="bicubic", antialias=True)
    assert found.dtype == torch.uint8 and torch.equal(found, whole.round().clamp(0, 255).to(torch.uint8))
    assert torch.equal(resized(frames, Resize(mode="bilinear"), (24, 32)), frames)
    with pytest.raises(ValueError, match="no input size"):
        resized(frames, Resize(mode="area"), None)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "area", "antialias": True},
        {"mode": "area", "height": 4},
        {"mode": "area", "height": 0, "width": 4},
    ],
)
def test_a_resize_that_means_nothing_is_refused(options):
    with pytest.raises(ValueError):
        Resize(**options)


def test_frames_of_another_type_or_size_are_refused():
    with pytest.raises(TypeError, match="0001: fidelity takes uint8"):
        extract(in_memory("set", [pixels(0), pixels(1) / 255.0]), [frames_network()], PROTOCOL)
    wrong = in_memory("set", [pixels(0)]).clips[0]
    wrong = replace(wrong, height=20)
    with pytest.raises(MeropeError, match="frames of shape"):
        extract(ClipCollection(label="set", clips=(wrong,)), [frames_network()], PROTOCOL)


def test_networks_of_one_name_and_no_workers_are_refused(real):
    videos = replace(videos_network(), name="tiny")
    with pytest.raises(ValueError, match=r"names that differ.*'tiny', 'tiny'"):
        extract(real, [frames_network(), videos], PROTOCOL)
    for workers in (0, -1):
        with pytest.raises(ValueError, match="workers must be at least 1"):
            extract(real, [frames_network()], PROTOCOL, workers=workers)


def test_a_clip_that_is_there_twice_is_refused():
    clip = in_memory("set", [pixels(0)]).clips[0]
    with pytest.raises(ValueError, match="0000 came twice"):
        ClipCollection(label="set", clips=(clip, clip))
