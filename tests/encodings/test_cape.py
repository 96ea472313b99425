"""CaPE against a second derivation: rows for columns, all of the head, queries and keys alone."""

import numpy as np
import pytest
import torch

from merope.cameras.scenes import SCENES, random_drive, scene
from merope.encodings import GTA, CaPE
from merope.encodings.scale import TranslationScale
from tests.encodings.projective_by_hand import dense, image_turns, relative_pose

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")


def exactly(encoding, queries, keys=None):
    return encoding.operator(queries, keys, dtype=torch.float64).dense()


def derived(queries, keys, encoding):
    """Blocks (T_j^-1 T_i)^T: the query's camera seen from the key's, transposed."""
    half = encoding.tiles == "half"
    width = encoding.head_dim // 2 if half else encoding.head_dim

    def blocks(at):
        clip, i, p, j, q = at
        pose = relative_pose(keys, queries, (clip, j, q, i, p), encoding.scale.per_metre)
        turns = image_turns(queries, keys, at, encoding.head_dim // 2) if half else []
        return [pose.T] * (width // 4) + turns

    return torch.from_numpy(dense(queries, keys, encoding.head_dim, blocks))


@pytest.mark.parametrize("tiles", ["whole", "half"])
@pytest.mark.parametrize("name", [*SCENES, "random"])
def test_operator_equals_the_second_derivation(name, tiles):
    view = random_drive(2) if name == "random" else scene(name)
    encoding = CaPE(head_dim=16, tiles=tiles, scale=TranslationScale(per_metre=0.3))
    torch.testing.assert_close(exactly(encoding, view), derived(view, view, encoding), rtol=0, atol=1e-12)


def test_keys_may_come_from_other_cameras_and_grids():
    queries, keys = random_drive(4, views=2), random_drive(5, views=3, grid=(1, 4))
    encoding = CaPE(head_dim=16, tiles="half")
    expected = derived(queries, keys, encoding)
    assert expected.shape == (2, 12, 12, 16, 16)
    torch.testing.assert_close(exactly(encoding, queries, keys), expected, rtol=0, atol=1e-12)


def test_the_displacement_stands_in_the_last_row_and_is_seen_from_the_key():
    view = random_drive(2)
    block = exactly(CaPE(head_dim=4), view)[1, 0, 7].numpy()
    R_i, R_j = (view.R_world_cam[1, camera].numpy() for camera in (0, 1))
    o_i, o_j = (view.center_world[1, camera].numpy() for camera in (0, 1))
    np.testing.assert_allclose(block[:3, :3], R_i.T @ R_j, atol=1e-12)
    np.testing.assert_allclose(block[3, :3], R_j.T @ (o_i - o_j), atol=1e-12)
    np.testing.assert_allclose(block[:, 3], [0, 0, 0, 1], atol=1e-12)


def test_norms_grow_as_those_of_gta():
    view = random_drive(2)
    ours = torch.linalg.svdvals(exactly(CaPE(head_dim=8, tiles="half"), view))
    theirs = torch.linalg.svdvals(exactly(GTA(head_dim=8), view))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert ours.max() > 10


def test_tokens_of_one_camera_meet_through_the_identity():
    view = random_drive(2)
    same = exactly(CaPE(head_dim=8), view)[:, :6, :6]
    torch.testing.assert_close(same, torch.eye(8, dtype=torch.float64).expand_as(same), rtol=0, atol=1e-13)
