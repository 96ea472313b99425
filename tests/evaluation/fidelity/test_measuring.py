"""FID, KID, FVD and KVD of sets: the libraries' numbers, what is refused, what is marked, what stands with a number."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from merope.errors import MeropeError
from merope.evaluation.fidelity import PRESETS, FidelityProtocol, Resize, check_same_protocol, measure
from tests.evaluation.fidelity.clips import in_memory, pixels
from tests.evaluation.fidelity.networks import TinyFrames, Videos, frames_network, videos_network

PROTOCOL = FidelityProtocol(exclude_prefix=3)


def videos(seed, count=8, *, num_frames=13, shift=0):
    return [pixels(seed + number, num_frames=num_frames, shift=shift) for number in range(count)]


REAL, RUN = videos(0), videos(50, shift=30)


def measured(real=REAL, run=RUN, protocol=PROTOCOL, *, prefix_frames=3, fps=10.0, **options):
    networks = {"frames_network": frames_network(), "videos_network": videos_network()} | options
    generated = in_memory("run", run, prefix_frames=prefix_frames, fps=fps)
    return measure(in_memory("real", real), [generated], protocol=protocol, **networks)[0]


def test_fid_and_kid_are_the_numbers_of_torchmetrics():
    theirs = FrechetInceptionDistance(feature=TinyFrames())
    kid = KernelInceptionDistance(feature=TinyFrames(), subsets=1, subset_size=80)
    with torch.no_grad():
        for clips, real in ((REAL, True), (RUN, False)):
            for clip in clips:
                frames = torch.from_numpy(clip[3:]).permute(0, 3, 1, 2)
                theirs.update(frames, real=real)
                kid.update(frames, real=real)
    scores = measured().scores
    assert scores["fid"].value == pytest.approx(float(theirs.compute()), rel=1e-4)
    # One subset of all samples is the sum over all pairs, in float32.
    assert scores["kid"].value == pytest.approx(float(kid.compute()[0]), rel=1e-4, abs=1e-6)


def test_fvd_has_the_covariance_of_its_libraries():
    network = Videos().eval()
    with torch.no_grad():
        features = [
            np.concatenate(
                [
                    network(torch.from_numpy(clip[None, 3:]).permute(0, 4, 1, 2, 3).float()).numpy()
                    for clip in clips
                ]
            ).astype(float)
            for clips in (REAL, RUN)
        ]
    means = [each.mean(axis=0) for each in features]
    covariances = [
        each.T @ each / 8 - np.outer(mean, mean) for each, mean in zip(features, means, strict=True)
    ]
    root = sqrtm(covariances[0] @ covariances[1]).real
    expected = ((means[0] - means[1]) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root)
    assert measured().scores["fvd"].value == pytest.approx(expected, rel=1e-3)


def test_a_set_has_no_distance_from_itself_and_a_brighter_one_has():
    same = measured(run=REAL).scores
    other = measured().scores
    assert same["fid"].value < 1e-9 and same["fvd"].value < 1e-9
    assert other["fid"].value > 1e-4 and other["fvd"].value > 1e-4
    assert other["kid"].value > 3 * other["kid"].uncertainty > 0


def test_the_way_of_resizing_changes_the_number():
    ways = [
        Resize(mode=mode, height=14, width=18, antialias=antialias)
        for mode, antialias in (("nearest", False), ("bilinear", False), ("bilinear", True))
    ]
    found = [measured(protocol=replace(PROTOCOL, resize=way)).scores["fid"] for way in ways]
    assert len({score.value for score in found}) == 3
    assert found[2].protocol["resize"] == {
        "mode": "bilinear",
        "height": 14,
        "width": 18,
        "antialias": True,
    }
    assert "resized to 14 x 18, bilinear, not antialiased, rounded to uint8" in found[1].words()


def test_everything_that_a_number_depends_on_stands_with_it():
    scores = measured().scores
    expected = {
        "exclude_prefix": 3,
        "frames_per_clip": 10,
        "first_frame": 3,
        "last_frame": 12,
        "frame_step": 1,
        "fps": 10.0,
        "frame_size_real": [24, 32],
        "frame_size_generated": [24, 32],
        "num_clips": 8,
        "resize": None,
        "name": "custom",
    }
    for name, score in scores.items():
        assert expected.items() <= score.protocol.items()
        samples = 80 if name in ("fid", "kid") else 8
        assert (score.protocol["num_real"], score.protocol["num_generated"]) == (samples, samples)
        assert len(score.protocol["network_sha256"]) == len(score.protocol["real_sha256"]) == 64
        assert torch.__version__ in score.protocol["backend"]
    assert scores["fid"].protocol["covariance"] == "over N - 1"
    assert scores["fvd"].protocol["covariance"] == "over N"
    words = scores["fid"].words()
    for word in (
        "the first 3 excluded",
        "80 generated and 80 real frames of 8 clips",
        "T = 10",
        "10 frames/s",
        "uint8",
    ):
        assert word in words


def test_fewer_videos_than_a_thousand_are_marked():
    assert any("fewer than 1000" in mark for mark in measured().scores["fvd"].marks)
    assert measured().scores["kvd"].marks == measured().scores["fid"].marks == ()


def test_a_covariance_from_too_few_samples_is_refused_and_forced_with_a_mark():
    wide = {"frames_network": frames_network(dimension=90), "videos_network": None}
    with pytest.raises(
        MeropeError, match=r"FID of 80 frames is refused.*90 features.*--measures kid.*--allow-small"
    ):
        measured(**wide)
    assert measured(**wide, measures=["kid"]).scores["kid"].marks == ()
    forced = measured(**wide, allow_small=True).scores
    assert any("rank-deficient, 80 samples for 90 features" in mark for mark in forced["fid"].marks)
    assert np.isfinite(forced["fid"].value)
    # As many as features are too few: one degree of freedom goes into the mean.
    with pytest.raises(MeropeError, match="FID of 80 frames"):
        measured(frames_network=frames_network(dimension=80), videos_network=None)


def test_features_that_overflow_give_no_number():
    network = frames_network()
    large = replace(network, compute=lambda batch: network.compute(batch) * 1e36)
    with pytest.raises(MeropeError, match=r"KID of run is .* too large"):
        measured(frames_network=large, videos_network=None)


def test_sets_of_one_repeated_clip_have_finite_distances():
    scores = measured(real=REAL[:1] * 8, run=RUN[:1] * 8, allow_small=True).scores
    step = [
        frames_network().features(torch.from_numpy(clip[3:]).permute(0, 3, 1, 2)).mean(dim=0).double()
        for clip in (REAL[0], RUN[0])
    ]
    assert all(np.isfinite(score.value) for score in scores.values())
    assert scores["fid"].value >= float(((step[0] - step[1]) ** 2).sum()) > 0
    # Eight equal videos have no covariance at all: what is left is the distance of two points.
    features = [
        videos_network().features(torch.from_numpy(clip[None, 3:]).permute(0, 4, 1, 2, 3)).double()
        for clip in (REAL[0], RUN[0])
    ]
    expected = float(((features[0] - features[1]) ** 2).sum())
    assert scores["fvd"].value == pytest.approx(expected, rel=1e-6)
    assert scores["kvd"].uncertainty == pytest.approx(0, abs=1e-9)


def test_it_is_refused_before_all_clips_went_through_the_network():
    calls = []
    network = frames_network(dimension=90)
    counting = replace(network, compute=lambda batch: calls.append(len(batch)) or network.compute(batch))
    with pytest.raises(MeropeError, match="refused"):
        measured(frames_network=counting, videos_network=None)
    assert sum(calls) == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"real": REAL[:1]}, "at least 2 clips of each set; got 1 of real"),
        ({"protocol": FidelityProtocol(exclude_prefix=4)}, "at least 10 frames; these have 9"),
        ({"protocol": FidelityProtocol(exclude_prefix=13)}, "13 are excluded"),
        ({"protocol": FidelityProtocol(exclude_prefix=3, num_frames=11)}, "leave 10 behind a prefix of 3"),
        ({"protocol": FidelityProtocol(exclude_prefix=2)}, "given its first 3 frames.*--exclude-prefix 3"),
        ({"protocol": FidelityProtocol(exclude_prefix=3, num_clips=9)}, "takes 9 clips.*8 of real; 8 of run"),
        ({"fps": 12.0}, "12 frames a second, real/0000 has 10"),
        ({"run": videos(50, num_frames=14)}, "11 frames behind the prefix where real/0000 has 10"),
        ({"run": [clip[:, :20] for clip in RUN]}, "frames of 20 x 32 where others have 24 x 32"),
    ],
)
def test_sets_that_do_not_fit_are_refused_by_name(options, words):
    with pytest.raises(MeropeError, match=words):
        measured(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"measures": ["fdi"]}, "among fid, kid, fvd, kvd; got fdi"),
        ({"measures": ["fvd"], "videos_network": None}, "nothing to measure"),
        ({"frames_network": videos_network()}, "frames_network must take frames"),
    ],
)
def test_a_call_that_asks_for_nothing_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        measured(**options)


def test_other_sizes_are_taken_where_both_are_resized():
    protocol = replace(PROTOCOL, resize=Resize(mode="area", height=12, width=16))
    score = measured(run=[clip[:, :20] for clip in RUN], protocol=protocol).scores["fid"]
    assert score.protocol["frame_size_generated"] == [20, 32]


def test_sets_of_unequal_size_are_compared_over_equal_numbers():
    generated = [in_memory("few", RUN[:5], prefix_frames=3), in_memory("many", RUN, prefix_frames=3)]
    results = measure(in_memory("real", REAL), generated, protocol=PROTOCOL, frames_network=frames_network(3))
    assert [len(result.clips) for result in results] == [5, 5]
    assert [result.left_out for result in results] == [(), ("0005", "0006", "0007")]
    check_same_protocol(results)


def test_fewer_clips_than_asked_for_are_marked_where_allowed():
    protocol = replace(PROTOCOL, num_clips=9)
    marks = measured(protocol=protocol, allow_fewer=True).scores["kid"].marks
    assert marks == ("incomplete: 8 of 9 clips",)


def test_the_papers_preset_is_forty_frames_behind_nine():
    preset = PRESETS["nuscenes-512"]
    assert list(preset.frames_of(49)) == list(range(9, 49))
    assert preset.num_clips * len(preset.frames_of(49)) == 20_480
    for length in (48, 50, 9):
        with pytest.raises(ValueError, match="exactly 40"):
            preset.frames_of(length)


def test_two_sets_of_one_name_are_refused():
    with pytest.raises(ValueError, match="labels must differ"):
        measure(
            in_memory("run", REAL),
            [in_memory("run", RUN)],
            protocol=PROTOCOL,
            frames_network=frames_network(),
        )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"protocol": replace(PROTOCOL, frame_step=3)}, "frame_step is 1 and 3"),
        ({"frames_network": frames_network(seed=1)}, "network_sha256"),
        ({"real": videos(7)}, "real_sha256"),
        ({"real": REAL[:6]}, "num_real is 80 and 60"),
        (
            {"protocol": replace(PROTOCOL, resize=Resize(mode="area", height=12, width=16))},
            "resize is None and",
        ),
    ],
)
def test_numbers_that_were_not_made_alike_do_not_stand_in_one_table(change, field):
    first, second = measured(measures=["fid"]), measured(measures=["fid"], **change)
    with pytest.raises(MeropeError, match=f"cannot stand in one table.*{field}"):
        check_same_protocol([first, replace(second, label="other")])


def test_subsets_are_stated_with_the_number():
    protocol = replace(PROTOCOL, kernel_subsets=4, kernel_subset_size=20, seed=3)
    score = measured(protocol=protocol, videos_network=None).scores["kid"]
    assert score.protocol["pairs"] == "4 subsets of 20, seed 3"
    assert score.protocol["uncertainty"] == "standard deviation over subsets"
    with pytest.raises(
        MeropeError, match="KVD over subsets of 20 needs as many videos of each set; there are 8"
    ):
        measured(protocol=protocol)
