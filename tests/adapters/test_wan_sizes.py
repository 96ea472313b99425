"""Published sizes without weights: parameters, widths and heads of Wan with cameras, as the paper prints them."""

from functools import cache

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from transformers import UMT5Config, UMT5EncoderModel

from merope.adapters import attach
from merope.adapters.spec import wan_spec
from merope.encodings import MeRoPE
from merope.encodings.registry import ENCODINGS, default_encoding, encoding_kind
from merope.recipes.published import PAPER_DRIVING_SIZES, WAN21_T2V_1_3B, WAN22_TI2V_5B

BASE_22, BASE_21 = 4_999_787_712, 1_418_996_800
ALTERNATE = tuple(range(1, 30, 2))


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def billions(module):
    return f"{count(module) / 1e9:.2f} B"


@cache
def built(kind, config):
    """A model of these sizes without memory."""
    with torch.device("meta"):
        return kind(**dict(config))


def on_meta(published):
    return built(WanTransformer3DModel, tuple(published["transformer"].items()))


@pytest.fixture
def adapted():
    """Attaches to a model without memory, which the test leaves bare."""
    made = []

    def attach_to(published, **options):
        made.append(attach(on_meta(published), **options))
        return made[-1]

    yield attach_to
    for adapter in made:
        adapter.detach()
    assert count(on_meta(WAN22_TI2V_5B)) == BASE_22
    assert count(on_meta(WAN21_T2V_1_3B)) == BASE_21


def in_a_branch(*, dim, width):
    """Weights and biases of queries, keys, values and the output."""
    return 3 * (dim * width + width) + width * dim + dim


def test_backbones_have_the_published_sizes():
    assert (count(on_meta(WAN22_TI2V_5B)), billions(on_meta(WAN22_TI2V_5B))) == (BASE_22, "5.00 B")
    assert (count(on_meta(WAN21_T2V_1_3B)), billions(on_meta(WAN21_T2V_1_3B))) == (BASE_21, "1.42 B")


def test_autoencoders_and_the_text_encoder_have_the_published_sizes():
    with torch.device("meta"):
        assert count(AutoencoderKLWan(**WAN22_TI2V_5B["vae"])) == 704_688_668
        assert count(AutoencoderKLWan(**WAN21_T2V_1_3B["vae"])) == 126_892_531
        assert count(UMT5EncoderModel(UMT5Config(**WAN22_TI2V_5B["text_encoder"]))) == 5_680_910_336


def test_the_paper_s_clips_are_thirteen_latent_frames_of_nine_by_sixteen_tokens():
    spec = wan_spec(
        WAN22_TI2V_5B["transformer"], WAN22_TI2V_5B["vae"], **PAPER_DRIVING_SIZES, fps=10.0, shift=5.0
    )
    assert (spec.latent_shape, spec.token_grid, spec.prefix_latents) == ((48, 13, 18, 32), (9, 16), 3)


# Table 5: what a row changes of C = 4 on alternating blocks; its blocks, a branch's heads, the model's size.
TABLE_5 = {
    "C = 2": ({"compression": 2}, ALTERNATE, 12, "5.28 B"),
    "C = 4": ({}, ALTERNATE, 6, "5.14 B"),
    "C = 8": ({"compression": 8}, ALTERNATE, 3, "5.07 B"),
    "single f": ({"encoding": MeRoPE.single_wavelength()}, ALTERNATE, 6, "5.14 B"),
    "every block": ({"schedule": "every"}, tuple(range(30)), 6, "5.28 B"),
    "peak 11, 13": ({"schedule": "peak"}, (11, 13), 6, "5.02 B"),
}


@pytest.mark.parametrize(("changes", "blocks", "heads", "size"), TABLE_5.values(), ids=TABLE_5)
def test_rows_of_table_5_with_a_branch(adapted, changes, blocks, heads, size):
    adapter = adapted(WAN22_TI2V_5B, **{"encoding": MeRoPE(), **changes})
    assert adapter.blocks == blocks
    for branch in adapter.branches.values():
        assert (branch.num_heads, branch.head_dim) == (heads, 128)
        assert branch.to_q.weight.shape == (3072 // adapter.compression, 3072)
        assert {parameter.device.type for parameter in branch.parameters()} == {"meta"}
    added = len(blocks) * in_a_branch(dim=3072, width=3072 // adapter.compression)
    assert sum(parameter.numel() for parameter in adapter.parameters()) == added
    assert count(adapter.transformer) == BASE_22 + added
    assert billions(adapter.transformer) == size


def test_table_5_s_carved_row_adds_no_parameter(adapted):
    adapter = adapted(WAN22_TI2V_5B, encoding=default_encoding("rerope-merope", head_dim=128, num_heads=24))
    assert adapter.blocks == ALTERNATE
    assert not list(adapter.parameters())
    assert billions(adapter.transformer) == "5.00 B"


def test_one_wavelength_keeps_the_channels():
    single = MeRoPE.single_wavelength()
    assert single.resolved_layout == MeRoPE().resolved_layout
    assert single.wavelengths == (10.0,) * 4
    assert MeRoPE.single_wavelength(head_dim=192, wavelength_max=50.0).wavelengths == (5.0,) * 6


@pytest.mark.parametrize("name", ["gta", "ucpe", "merope"])
def test_models_that_the_paper_times_have_one_size(adapted, name):
    # Table 6: 5.14 B for all three.
    adapter = adapted(WAN22_TI2V_5B, encoding=default_encoding(name, head_dim=128, num_heads=6))
    assert count(adapter.transformer) == 5_141_426_112


@pytest.mark.parametrize("compression", [2, 4, 8])
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_every_encoding_goes_onto_the_5_b_model_at_every_compression(adapted, name, compression):
    in_a_block = 24 if encoding_kind(name).facts.placement == "backbone" else 24 // compression
    encoding = default_encoding(name, head_dim=128, num_heads=in_a_block)
    adapter = adapted(WAN22_TI2V_5B, encoding=encoding, compression=compression)
    assert adapter.blocks == (() if name == "none" else ALTERNATE)


def test_panshot_s_branch_is_one_head_of_192(adapted):
    encoding = MeRoPE(head_dim=192)
    layout = encoding.resolved_layout
    assert (layout.disp, layout.rot, layout.trans, layout.native) == (54, 54, 36, (24, 12, 12))
    assert len(encoding.wavelengths) == 6
    adapter = adapted(WAN21_T2V_1_3B, encoding=encoding, compression=8)
    assert adapter.blocks == ALTERNATE
    assert {(b.num_heads, b.head_dim) for b in adapter.branches.values()} == {(1, 192)}
    assert adapter.branches[1].to_out.weight.shape == (1536, 192)
    assert count(adapter.transformer) == BASE_21 + 15 * in_a_branch(dim=1536, width=192)


def test_heads_of_128_do_not_fit_an_eighth_of_the_1_3_b_model(adapted):
    with pytest.raises(
        ValueError, match=r"12 heads; choose one of \[1, 2, 3, 4, 6, 12\], or .* head_dim=192"
    ):
        adapted(WAN21_T2V_1_3B, encoding=MeRoPE(), compression=8)


def test_the_peak_needs_its_blocks(adapted):
    adapter = adapted(WAN21_T2V_1_3B, encoding=MeRoPE(), compression=4, schedule="peak")
    assert adapter.blocks == (11, 13)
    with torch.device("meta"):
        small = WanTransformer3DModel(**{**WAN21_T2V_1_3B["transformer"], "num_layers": 13})
    with pytest.raises(ValueError, match=r"'peak' names blocks \(11, 13\) and there are 13"):
        attach(small, encoding=MeRoPE(), compression=4, schedule="peak")
