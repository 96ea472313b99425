"""`VideoSpec`: wrong frame counts and sizes are refused with the numbers that would do."""

import inspect
import json

import pytest
from diffusers import AutoencoderKLWan, WanTransformer3DModel

from merope.adapters.spec import _UNSAID, VideoSpec, wan_spec
from merope.cameras import Pinhole
from tests.support.tiny_run import tiny_spec


def paper_spec(**changes):
    """The paper's 49 frames of 288 x 512 pixels at 16 x 16 x 4 compression and patches of 2."""
    height, width = changes.pop("height", 288), changes.pop("width", 512)
    lens = Pinhole.from_fov(fov_x_deg=90.0, height=288, width=512)
    values = {"num_frames": 49, "prefix_frames": 9, "spatial_stride": 16, "patch": 2, "latent_channels": 48}
    camera = changes.pop("camera", lens.to_dict())
    return VideoSpec(height=height, width=width, fps=10.0, camera=camera, **{**values, **changes})


def test_paper_sizes_give_the_paper_tokens():
    spec = paper_spec()
    assert spec.latent_shape == (48, 13, 18, 32)
    assert spec.token_grid == (9, 16)
    assert spec.prefix_latents == 3
    # design: the first 432 of 1872 tokens are clean
    assert spec.latent_frames * 9 * 16 == 1872
    assert spec.prefix_latents * 9 * 16 == 432


@pytest.mark.parametrize(
    ("count", "way_out"), [(50, "Use 49 or 53"), (48, "Use 45 or 49"), (0, "Use 1 or 5"), (-7, "Use 1 or 5")]
)
def test_frame_count_that_is_not_4k_plus_1_names_both_neighbours(count, way_out):
    with pytest.raises(ValueError, match=rf"num_frames must be 1 \+ 4k; got {count}\. {way_out}"):
        paper_spec(num_frames=count)
    if count:  # No prefix at all is fine.
        with pytest.raises(ValueError, match=rf"prefix_frames must be 1 \+ 4k; got {count}"):
            paper_spec(prefix_frames=count)


def test_without_a_prefix_nothing_is_given():
    assert paper_spec(prefix_frames=0).prefix_latents == 0


def test_clips_may_bring_their_own_lenses():
    spec = paper_spec(camera=None)
    assert VideoSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(ValueError, match=r"lens for 512 x 288 frames"):
        spec.require_size(512, 288)


def test_other_temporal_stride_changes_the_rule():
    assert paper_spec(temporal_stride=8, num_frames=17, prefix_frames=9).latent_frames == 3
    with pytest.raises(ValueError, match=r"1 \+ 8k; got 13. Use 9 or 17"):
        paper_spec(temporal_stride=8, num_frames=13)


def test_prefix_must_leave_something_to_generate():
    with pytest.raises(ValueError, match="leaves nothing to generate"):
        paper_spec(num_frames=9, prefix_frames=9)


def test_size_that_is_no_whole_number_of_tokens_names_both_neighbours():
    with pytest.raises(
        ValueError, match=r"height must be a multiple of 32 pixels, one token; got 300. Use 288 or 320"
    ):
        paper_spec(height=300)
    with pytest.raises(ValueError, match=r"width must be .* got 500. Use 480 or 512"):
        paper_spec(width=500)


def test_lens_of_other_frames_is_refused():
    swapped = Pinhole.from_fov(fov_x_deg=90.0, height=512, width=288).to_dict()
    with pytest.raises(
        ValueError, match=r"lens for 512 x 288 frames .* makes 288 x 512. Use CameraModel.resize"
    ):
        paper_spec(camera=swapped)
    with pytest.raises(ValueError, match="lens for None x None"):
        paper_spec(camera={})


@pytest.mark.parametrize(
    "changes",
    [
        {"fps": 0.0},
        {"fps": float("nan")},
        {"shift": -1.0},
        {"prediction": "noise"},
        {"pose_policy": "middle"},
        {"patch": 0},
        {"latent_channels": 0},
        {"temporal_stride": 0},
    ],
)
def test_values_out_of_range_name_the_field(changes):
    # The shape checks of the test run refuse a wrong Literal before the spec itself does.
    with pytest.raises((ValueError, TypeError), match=next(iter(changes))):
        tiny_spec(**changes)


def test_spec_comes_back_from_json():
    spec = paper_spec(prediction="clean", pose_policy="mean")
    assert VideoSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_unknown_and_missing_fields_are_named():
    values = tiny_spec().to_dict()
    with pytest.raises(ValueError, match=r"no fields \['sigma'\]"):
        VideoSpec.from_dict({**values, "sigma": 1})
    del values["fps"]
    with pytest.raises(ValueError, match=r"lacks \['fps'\]"):
        VideoSpec.from_dict(values)


SIZES = {"height": 288, "width": 512, "num_frames": 49, "prefix_frames": 9, "fps": 10.0, "shift": 5.0}
WAN22 = {"in_channels": 48, "patch_size": [1, 2, 2]}
VAE22 = {"z_dim": 48, "scale_factor_temporal": 4, "scale_factor_spatial": 16}


def test_a_pipeline_s_configurations_give_the_paper_s_sizes():
    spec = wan_spec(WAN22, VAE22, **SIZES)
    assert spec == paper_spec(camera=None, shift=5.0)
    lens = Pinhole.from_fov(fov_x_deg=90.0, height=288, width=512).to_dict()
    assert wan_spec(WAN22, VAE22, **SIZES, camera=lens, pose_policy="mean").camera == lens


def test_what_a_configuration_file_leaves_out_is_the_default_of_diffusers():
    for name, value in _UNSAID.items():
        kind = WanTransformer3DModel if name in ("patch_size", "in_channels") else AutoencoderKLWan
        assert inspect.signature(kind.__init__).parameters[name].default == value
    spec = wan_spec({}, {}, **SIZES)
    assert (spec.latent_channels, spec.spatial_stride, spec.patch) == (16, 8, 2)


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        ({"in_channels": 36}, r"takes 36 channels and the autoencoder makes 16.*Wan2.1-I2V"),
        ({"patch_size": (2, 2, 2)}, r"patch_size must be \(1, n, n\).*got \(2, 2, 2\)"),
        ({"patch_size": (1, 2, 4)}, r"patch_size must be \(1, n, n\)"),
    ],
)
def test_transformers_that_take_something_else_are_refused(transformer, message):
    with pytest.raises(ValueError, match=message):
        wan_spec(transformer, {}, **SIZES)
