"""GTA against the released answers, a second derivation, and its own paper's image-plane frequencies."""

import math

import numpy as np
import pytest
import torch

from merope.cameras.scenes import SCENES, random_drive, scene
from merope.encodings import GTA
from merope.encodings.scale import TranslationScale
from tests.encodings.derivation import plane
from tests.encodings.projective_by_hand import dense, image_turns, relative_pose
from tests.support.released import (
    HEAD_DIM,
    attended,
    pinhole_rays,
    released,
)

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def derived(queries, keys, encoding):
    half = encoding.head_dim // 2

    def blocks(at):
        pose = relative_pose(queries, keys, at, encoding.scale.per_metre)
        return [pose] * (half // 4) + image_turns(queries, keys, at, half)

    return torch.from_numpy(dense(queries, keys, encoding.head_dim, blocks))


@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_attention_answers_as_the_released_code_does(backend):
    arrays = released()
    operator = GTA(head_dim=HEAD_DIM).operator(pinhole_rays(arrays), dtype=torch.float64)
    theirs = arrays["gta_out"]
    torch.testing.assert_close(attended(arrays, operator, backend), theirs, rtol=0, atol=1e-6)
    # What is left is the release's table of image-plane phases in float32.
    encoding = GTA(head_dim=HEAD_DIM, single_precision_image=True)
    operator = encoding.operator(pinhole_rays(arrays), dtype=torch.float64)
    torch.testing.assert_close(attended(arrays, operator, backend), theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [*SCENES, "random"])
def test_operator_equals_the_second_derivation(name):
    view = random_drive(2) if name == "random" else scene(name)
    encoding = GTA(head_dim=32, scale=TranslationScale(per_metre=0.3))
    torch.testing.assert_close(exactly(encoding, view), derived(view, view, encoding), rtol=0, atol=1e-12)


def test_keys_may_come_from_other_cameras_and_grids():
    queries, keys = random_drive(4, views=2), random_drive(5, views=3, grid=(1, 4))
    encoding = GTA(head_dim=16)
    expected = derived(queries, keys, encoding)
    torch.testing.assert_close(exactly(encoding, queries, keys), expected, rtol=0, atol=1e-12)


def test_its_blocks_are_the_relative_pose_of_eq_2():
    view = random_drive(2)
    block = exactly(GTA(head_dim=8), view)[0, 2, 14, :4, :4].numpy()
    R_i, R_j = (view.R_world_cam[0, camera].numpy() for camera in (0, 2))
    o_i, o_j = (view.center_world[0, camera].numpy() for camera in (0, 2))
    np.testing.assert_allclose(block[:3, :3], R_i.T @ R_j, atol=1e-12)
    np.testing.assert_allclose(block[:3, 3], R_i.T @ (o_j - o_i), atol=1e-12)
    np.testing.assert_allclose(block[3], [0, 0, 0, 1], atol=1e-12)


def test_values_grow_with_the_baseline_as_eq_4_says():
    view = random_drive(2)
    block = exactly(GTA(head_dim=8), view)[0, 0, 17, :4, :4]
    value = torch.tensor([0.3, -1.1, 0.4, 2.0], dtype=torch.float64)
    expected = (block[:3, :3] @ value[:3] + 2.0 * block[:3, 3]).norm() ** 2 + 4.0
    torch.testing.assert_close((block @ value).norm() ** 2, expected)


def test_its_own_frequencies_are_octaves_up_to_one_turn_across_the_image():
    view = random_drive(2)  # 2 rows, 3 columns
    pairs = 4
    block = exactly(GTA(head_dim=32, image_positions="fraction"), view)[0]
    for query, key in ((0, 5), (4, 2), (1, 15)):
        row, col = divmod(query % 6, 3)
        other_row, other_col = divmod(key % 6, 3)
        for axis, step in ((0, (col - other_col) / 3), (1, (row - other_row) / 2)):
            for m in range(pairs):
                at = 16 + 8 * axis + 2 * m
                expected = plane(2 * math.pi * step * 2 ** (m + 1) / 2**pairs)
                np.testing.assert_allclose(block[query, key, at : at + 2, at : at + 2], expected, atol=1e-13)
    # The fastest pair of the two rows is half a turn apart.
    np.testing.assert_allclose(block[0, 3, 30:, 30:], -np.eye(2), atol=1e-13)


def test_a_camera_that_stands_still_shows_one_frame():
    view = scene("coincident_centres")
    still = GTA(head_dim=16).operator(
        type(view).from_poses(
            torch.eye(4).expand(2, 3, 4, 4), view.dirs_cam, grid=(2, 3), time=torch.tensor([0, 4, 9])
        )
    )
    frames = still.dense().unflatten(1, (3, 6)).unflatten(3, (3, 6))
    torch.testing.assert_close(frames, frames[:, :1, :, :1].expand_as(frames), rtol=0, atol=1e-7)
