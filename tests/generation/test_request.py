"""Requests against configurations alone: every refusal names what came and the way out; blanks are filled."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from merope.cameras import Pinhole
from merope.errors import CheckpointMismatch, MeropeError, TrajectoryError
from merope.generation.model_files import ModelConfigs
from merope.generation.request import RequestWarning, check_request, given_frames
from merope.geometry.poses import Poses

TRANSFORMER = {
    "patch_size": [1, 2, 2],
    "in_channels": 48,
    "num_layers": 30,
    "num_attention_heads": 24,
    "attention_head_dim": 128,
}
VAE = {"z_dim": 48, "scale_factor_temporal": 4, "scale_factor_spatial": 16}
SPEC = {
    "height": 288,
    "width": 512,
    "num_frames": 49,
    "prefix_frames": 9,
    "fps": 12.0,
    "spatial_stride": 16,
    "patch": 2,
    "latent_channels": 48,
}


def configs(*, spec=SPEC, base=None, summary=None, pipeline=None, transformer=None):
    """Those of Wan2.2-TI2V-5B, with an adapter."""
    return ModelConfigs(
        pipeline={"expand_timesteps": True, "transformer_2": [None, None], **(pipeline or {})},
        transformer={**TRANSFORMER, **(transformer or {})},
        vae=VAE,
        adapter={
            "base": {"num_layers": 30, **(base or {})},
            "pose_policy": "last",
            "spec": spec,
            "summary": summary or {},
        },
    )


def ahead(num, step=0.5, unit="m"):
    T_world_cam = torch.eye(4, dtype=torch.float64).repeat(num, 1, 1)
    T_world_cam[:, 2, 3] = step * torch.arange(num)
    return Poses.from_matrices(T_world_cam, unit=unit)


def lens(height=288, width=512):
    return Pinhole.from_fov(fov_x_deg=90, height=height, width=width)


def frames(num=9, height=288, width=512):
    return np.zeros((num, height, width, 3), np.uint8)


def checked(**options):
    model = options.pop("model", None) or configs()
    return check_request(model, **{"poses": ahead(49), "lens": lens(), "prefix": frames(), **options})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"poses": ahead(81), "num_frames": 101}, TrajectoryError, r"has 81 poses, 101 frames requested; use num_frames"),
        ({"poses": ahead(81), "num_frames": 101}, TrajectoryError, r"num_frames=81, or .*poses.resample\(101\)"),
        ({"poses": ahead(50)}, TrajectoryError, r"50 poses, 49 frames requested; use the first ones, poses\[:49\]"),
        ({"poses": ahead(50), "num_frames": 50}, ValueError, r"num_frames must be 1 \+ 4k; got 50. Use 49 or 53"),
        ({"poses": ahead(49, unit="normalized")}, TrajectoryError, r"unit is 'normalized', and the adapter .* on 'm'"),
        ({"poses": ahead(49, step=50)}, TrajectoryError, r"up to 50.0 m apart, 600 m/s at 12 frames/s"),
        ({"poses": []}, ValueError, "at least one trajectory"),
        ({"poses": [ahead(49)] * 2, "counts": {"prompt": 3}}, ValueError, r"poses must be one for all .*, 3 here; got 2"),
        ({"counts": {"prompt": 2, "seeds": 3}}, ValueError, "prompt must be one for all clips or .*, 3 here; got 2"),
        ({"height": 300}, ValueError, "height must be a multiple of 32 pixels, one token; got 300. Use 288 or 320"),
        ({"width": 32 * 1025}, ValueError, "at most 1024 latent frames, rows or columns"),
        ({"lens": lens(480, 832)}, ValueError, r"lens for 480 x 832 frames .*makes 288 x 512.*CameraModel.resize"),
        ({"lens": None}, ValueError, "lens is needed.*Pinhole.from_fov"),
        ({"lens": replace(lens(), fx=torch.tensor([200.0, 300.0]))}, ValueError, r"one lens for all frames .*views \[2\]"),
        ({"lens": []}, ValueError, "at least one lens"),
        ({"prefix": frames(8)}, ValueError, r"prefix_frames must be 1 \+ 4k; got 8. Use 5 or 9"),
        ({"prefix": frames(49)}, ValueError, "prefix_frames 49 leaves nothing to generate of 49"),
        ({"prefix": frames(9, 480, 832)}, ValueError, r"frames of 480 x 832 .*, the video 288 x 512"),
        ({"prefix": frames() / 255}, ValueError, r"uint8, 0 to 255\) of shape \[n, H, W, 3\]; got float64.*astype"),
        ({"prefix": frames()[..., :1]}, ValueError, r"got uint8 \[9, 288, 512, 1\]"),
        ({"prefix": list(frames())}, ValueError, r"one clip's frames or one frame of each clip.*numpy.stack"),
        ({"prefix": [Image.new("RGB", (512, 288))]}, ValueError, r"\[\[frame\], \[frame\], ...\]"),
        ({"prefix": []}, ValueError, "empty list. None stands for no given frames"),
        ({"prefix": [torch.from_numpy(frames())]}, TypeError, r"images or byte arrays .*\['Tensor'\]"),
        ({"prefix": [["a.png"]]}, TypeError, r"images or byte arrays .*\['str'\]"),
        ({"prefix": [frames(5), frames(9)]}, ValueError, "one size and number in all clips"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_way_out(options, error, message):
    with pytest.raises(error, match=message):
        checked(**options)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ({"base": {"num_layers": 40}}, CheckpointMismatch, "num_layers = 40; this one has 30"),
        ({"pipeline": {"boundary_ratio": 0.9}}, ValueError, "two transformers.*Wan2.2-TI2V-5B"),
        (
            {"pipeline": {"transformer_2": ["diffusers", "WanTransformer3DModel"]}},
            ValueError,
            "two transformers",
        ),
        (
            {"transformer": {"in_channels": 100}},
            ValueError,
            r"takes 100 channels and the autoencoder makes 48",
        ),
    ],
)
def test_models_that_are_not_supported_are_named(model, error, message):
    with pytest.raises(error, match=message):
        checked(model=configs(**model))


def test_blanks_are_what_the_adapter_was_trained_for():
    request = checked()
    assert (request.spec.height, request.spec.width, request.spec.num_frames) == (288, 512, 49)
    assert request.spec.prefix_latents == 3 and request.spec.token_grid == (9, 16)
    assert request.spec.fps == 12.0
    own = configs(spec={**SPEC, "camera": lens().to_dict()})
    assert checked(model=own, lens=None).lenses[0].to_dict() == lens().to_dict()
    # Without a spec the lens and the poses say it; fps is the published model's.
    request = checked(model=configs(spec=None), poses=ahead(21), lens=lens(64, 96), prefix=None)
    assert (request.spec.height, request.spec.width, request.spec.num_frames) == (64, 96, 21)
    assert request.spec.fps == 24.0 and request.prefix is None
    slower = configs(spec=None, pipeline={"expand_timesteps": False})
    assert checked(model=slower).spec.fps == 16.0


def test_the_unit_is_the_adapter_s_own():
    panoramic = configs(summary={"pose_unit": "normalized"})
    assert checked(model=panoramic, poses=ahead(49, unit="normalized")).num_clips == 1
    with pytest.raises(TrajectoryError, match="unit is 'm', and the adapter was trained on 'normalized'"):
        checked(model=panoramic)


def test_what_there_is_one_of_serves_all_clips():
    request = checked(poses=[ahead(49), ahead(49, 1.0), ahead(49, 2.0)])
    assert request.num_clips == len(request.lenses) == len(request.prefix) == 3
    request = checked(counts={"prompt": 2})
    assert request.num_clips == 2 and request.poses[0] is request.poses[1]
    apart = checked(prefix=[frames(), frames() + 9], lens=[lens(), lens()])
    assert apart.prefix.shape == (2, 9, 288, 512, 3) and apart.prefix[1].max() == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frames": 81, "poses": ahead(81)}, "81 frames, trained with 49"),
        ({"prefix": None}, "0 given frames, trained with 9"),
        ({"lens": lens(320, 512), "height": 320, "prefix": frames(9, 320)}, "320 x 512 pixels, trained with 288 x 512"),
    ],
)  # fmt: skip
def test_leaving_what_was_trained_is_said(options, message):
    with pytest.warns(RequestWarning, match=message):
        checked(**options)


def test_a_shorter_clip_is_no_reason_to_warn(recwarn):
    checked(num_frames=21, poses=ahead(21))
    assert not recwarn


def test_a_model_without_an_adapter_is_for_those_who_ask():
    base = ModelConfigs(pipeline={}, transformer=TRANSFORMER, vae=VAE, adapter=None)
    with pytest.raises(MeropeError, match="no camera adapter"):
        checked(model=base)
    assert checked(model=base, allow_untrained=True).spec.pose_policy == "last"


def test_given_frames_come_in_several_forms():
    one = frames(2, 4, 6)
    one[1] = 7
    images = [Image.fromarray(frame) for frame in one]
    for form in (one, [one], one[None], [images], [[*one]]):
        assert np.array_equal(given_frames(form), one[None])
    for form in (images[1], one[1], [[images[1]]]):
        assert np.array_equal(given_frames(form), one[None, 1:])
    assert given_frames([images, images]).shape == (2, 2, 4, 6, 3)
    assert given_frames(Image.new("L", (6, 4))).shape == (1, 1, 4, 6, 3)
    with pytest.raises(ValueError, match="frames of one size"):
        given_frames([[images[0], Image.new("RGB", (3, 3))]])
