"""One clip through a whole transformer by two and three processes, against one that has everything."""

import pytest
import torch

from merope.adapters.clip_sharding import share_clip
from merope.attention.sharding import shard_cameras
from tests.support import shared_clip
from tests.support.shared_clip import CASES, FRAMES, PER_FRAME, ask, clip_of, model_of

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")


@pytest.fixture(scope="module", params=(2, 3), ids=lambda size: f"{size} processes")
def ran(request):
    """What every process found, by rank; one start of processes for all tests."""
    return shared_clip.run_processes(request.param)


def assert_same_everywhere(outputs, expected, atol):
    """Every process has the whole output, the very same, and it is that of one process."""
    for output in outputs:
        assert torch.equal(output, outputs[0])
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(outputs[0], expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", CASES)
def test_every_process_has_the_output_of_a_single_one(ran, name):
    atol = 1e-10 if CASES[name][2] == torch.float64 else 1e-5
    assert_same_everywhere([results[name] for results in ran], ask(*model_of(name), clip_of(name)), atol)


def test_velocities_with_and_without_text_are_shared_by_the_same_call(ran):
    assert_same_everywhere([results["velocity"] for results in ran], shared_clip.velocity(share=False), 1e-5)


def test_each_process_computes_its_own_tokens_alone(ran):
    counts = shard_cameras(FRAMES, len(ran)).counts
    assert len(set(counts)) == 2
    for count, results in zip(counts, ran, strict=True):
        frames = results["work"].pop("patches")
        assert frames == {count}
        assert len(results["work"]) == 11
        assert set(map(frozenset, results["work"].values())) == {frozenset({count * PER_FRAME})}


def test_keys_and_values_are_sent_once_per_block_and_nothing_else_but_depth_and_output(ran):
    # Padded to the longest run, so that all processes send as much: batch 2, float32.
    tokens = shard_cameras(FRAMES, len(ran)).counts[0] * PER_FRAME
    backbone, branch, depth = (2 * tokens * width * 4 for width in (2 * 128, 2 * 64, 2))
    output = 2 * tokens * shared_clip.CHANNELS * 4 * 4
    for results in ran:
        assert results["bytes"] == [backbone, depth, branch] * 2 + [output]


def test_a_transformer_is_afterwards_what_it_was(ran):
    for results in ran:
        assert len(results["left behind"]) == 6
        assert all(results["left behind"].values()), results["left behind"]


def test_weights_that_are_fetched_for_each_call_are_shared_too(ran):
    for results in ran:
        alone, together = results["offloaded"]
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


def test_some_of_the_processes_may_share_a_clip_among_themselves(ran):
    first, *members = (results["group"] for results in ran)
    assert first == "ValueError: this process is not in the group; only its members may share a clip."
    assert_same_everywhere(members, ask(*model_of("merope"), clip_of("merope")), 1e-10)


# What cannot go on is an error on every process. {last} is the one that does something else.

ON_ALL = {
    "fewer frames than processes": "ValueError: the clip has {fewer} latent frames, fewer than the {size} processes",
    "cameras of another length": "ValueError: the cameras are 14 views; the clip has 13 latent frames.",
    "another seed": "SharedClipError: all processes must hold the same clip; hidden_states of process {last} differ",
    "another prompt": "SharedClipError: all processes must hold the same clip; encoder_hidden_states of process {last}",
    "another step": "SharedClipError: all processes must hold the same clip; timestep of process {last} differ",
    "other cameras": "SharedClipError: all processes must hold the same clip; cameras of process {last} differ",
    "another length": "SharedClipError: all processes must make the same call; got process 0: a forward pass with",
    "no cameras": "SharedClipError: all processes must make the same call; got process 0: a forward pass with",
    "goes on after an error": "no error",
    "gradients": "ValueError: a shared clip has no backward pass, and gradients are on.",
    "recorded": "ValueError: what is recorded in a shared clip would be one process's part of it.",
    "another encoding": "SharedClipError: all processes must make the same call; got process 0: share_clip of",
    "twice": "ValueError: this transformer is shared already; one share_clip at a time.",
    "detached within": "ValueError: this transformer is inside share_clip; put adapters on or off before or after",
    "cached": "ValueError: a cache of diffusers is enabled: processes would skip different blocks.",
    "no transformer": "TypeError: model must be a Wan transformer or its CameraAdapter; got Linear.",
    "afterwards all is well": "no error",
}
ON_THE_LAST = {
    "fails in a block": "Failed: out of luck",
    "fails before the first block": "Failed: out of luck",
    "fails at the output": "Failed: out of luck",
    "fails beside": "Failed: no memory for the video",
    "fails afterwards": "Failed: no room for the file",
    "another attention": "ValueError: the self-attention of block 1 runs under Doubled, which cannot take keys of",
}


def test_every_call_that_fails_is_looked_at(ran):
    assert set(ran[0]["told"]) == {*ON_ALL, *ON_THE_LAST, "leaves early"}


@pytest.mark.parametrize("name", ON_ALL)
def test_processes_that_cannot_go_on_together_are_all_told(ran, name):
    message = ON_ALL[name].format(fewer=len(ran) - 1, size=len(ran), last=len(ran) - 1)
    for results in ran:
        assert results["told"][name].startswith(message)


@pytest.mark.parametrize("name", ON_THE_LAST)
def test_a_process_that_fails_says_so_to_all_others(ran, name):
    *others, last = (results["told"][name] for results in ran)
    assert last.startswith(ON_THE_LAST[name])
    for told in others:
        assert told.startswith(f"SharedClipError: process {len(others)} ")
        assert told.endswith(f": {last}")


def test_a_process_that_leaves_early_and_those_that_go_on_are_told(ran):
    *others, last = (results["told"]["leaves early"] for results in ran)
    assert last.startswith(
        "SharedClipError: process 0 did not leave share_clip in order: a forward pass with"
    )
    for told in others:
        assert told.startswith(
            "SharedClipError: all processes must make the same call; got process 0: a forward"
        )
        assert told.endswith(f"process {len(others)}: leave share_clip.")


def test_without_processes_there_is_nothing_to_share():
    model, _ = model_of("no adapter")
    with (
        pytest.raises(ValueError, match=r"torch.distributed is not initialised.*torchrun"),
        share_clip(model),
    ):
        pass


@pytest.mark.slow
def test_blocks_that_are_compiled_without_a_break_are_shared_and_given_back():
    for outputs in shared_clip.run_processes(2, "compiled"):
        assert len(outputs) == 4
        assert max(float(off.abs().max()) for off in outputs) < 1e-5
