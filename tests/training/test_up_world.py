"""Fine-tuning with a latitude and up map: rays in the level world of each clip, and no clip without up."""

import pytest
import torch

from merope.data.caches.latent_cache import LatentCache, LatentCaches
from merope.encodings import LatitudeUpMap
from merope.encodings.registry import input_map_to_config
from merope.errors import MeropeError
from merope.geometry.gravity import rebase_to_level
from merope.training.clip_batches import ClipBatches
from tests.support.finetune_run import finetune_config, write_cache

MAP = input_map_to_config(LatitudeUpMap())
UP = (0.0, 0.6, 0.8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return LatentCache(write_cache(tmp_path_factory.mktemp("up") / "cache", clips=4, up_world=UP))


def test_cameras_are_in_the_level_world_of_each_clip(cache):
    chosen = [(0, 2), (1, 1)]
    rays = ClipBatches(cache, finetune_config(input_map=MAP)).load(0, chosen).rays
    for row, number in enumerate((2, 1)):
        wanted = rebase_to_level(cache[number].poses, UP)
        torch.testing.assert_close(rays.R_world_cam[row], wanted.R_world_cam[[0, 4, 8]])
        torch.testing.assert_close(rays.center_world[row], wanted.center_world[[0, 4, 8]])
        assert not torch.allclose(rays.R_world_cam[row, 0], torch.eye(3, dtype=torch.float64), atol=1e-2)


def test_a_probe_s_other_cameras_are_level_too(cache):
    made = ClipBatches(cache, finetune_config(input_map=MAP, micro_batch=4))
    probe = made.load_probe(made.probe_batches(rank=0, size=1)[0])
    assert probe.other_rays is not None
    assert torch.equal(probe.other_rays.R_world_cam, probe.rays.R_world_cam.roll(-1, 0))


def test_without_a_map_up_changes_nothing(cache):
    rays = ClipBatches(cache, finetune_config()).load(0, [(0, 2)]).rays
    wanted = cache[2].poses.rebase_to_first().R_world_cam[[0, 4, 8]]
    assert torch.equal(rays.R_world_cam[0], wanted)


def test_every_clip_has_to_say_it(cache, tmp_path):
    old = write_cache(tmp_path / "old", seed=9, clips=2, source="old")
    both = LatentCaches([cache.folder, old])
    with pytest.raises(
        MeropeError, match=r"old/clip-0 does not say \(2 of 6 do not\).*or train with input_map=None"
    ):
        ClipBatches(both, finetune_config(input_map=MAP))
    ClipBatches(both, finetune_config())
