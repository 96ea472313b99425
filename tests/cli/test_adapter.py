"""`merope adapter info`: all that a file says of itself, for people and as JSON."""

import json

import pytest
import torch

from merope.adapters import save_adapter
from merope.cli.main import run
from merope.encodings import GTA
from merope.encodings.latitude_up import LatitudeUpMap
from merope.encodings.scale import TranslationScale
from tests.support.tiny_run import tiny_spec
from tests.support.wan import attached, awake, tiny_wan, with_branches

pytestmark = pytest.mark.filterwarnings("ignore::merope.encodings.scale.ScaleWarning")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "adapter.safetensors"


def table(capsys, path):
    """The printed rows by name."""
    assert run(["adapter", "info", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    width = max(line.index("  ", 2) for line in lines if "  " in line.strip())
    assert all(line == line.rstrip() for line in lines)
    return {line[: width + 2].strip(): line[width + 2 :].strip() for line in lines}


def test_a_trained_adapter_prints_its_configuration_and_norms(path, capsys):
    model = tiny_wan()
    model.register_to_config(_name_or_path="owner/tiny-wan")
    adapter = awake(with_branches(model))
    save_adapter(path, adapter, summary={"steps": 7}, spec=tiny_spec())
    rows = table(capsys, path)
    assert rows["encoding"] == "merope"
    assert rows["layout"] == "disp 18, rot 18, trans 12, native 8, 4, 4"
    assert rows["acts_on"] == "qkvo"
    assert rows["scale"] == "none: no translation enters linearly"
    assert rows["compression"] == "2"
    assert rows["blocks"] == "1, 3 (alternate, 2 of 4)"
    assert rows["pose policy"] == "last"
    count = sum(parameter.numel() for parameter in adapter.parameters())
    assert rows["parameters"] == f"{count:,} (float32)"
    assert f"({path.stat().st_size:,} bytes)" in rows["file"]
    assert rows["output norms"] == "every block has learned something"
    assert rows["base"] == "configuration and weights are compared when it is loaded"
    norm = adapter.branches[3].to_out.weight.detach().norm().item()
    assert float(rows["block 3"]) == pytest.approx(norm, rel=1e-3)
    assert rows["name"] == "owner/tiny-wan"
    assert rows["fingerprint"].startswith("sha256:")
    assert (rows["num_frames"], rows["prefix_frames"], rows["fps"], rows["steps"]) == ("13", "5", "10", "7")


def test_a_new_adapter_is_said_to_have_learned_nothing(path, capsys):
    save_adapter(path, with_branches(tiny_wan()))
    rows = table(capsys, path)
    assert rows["output norms"] == "nothing was learned yet, cameras would be ignored"
    assert rows["video"] == rows["training"] == "not stored"


def test_a_half_learned_adapter_names_the_blocks_that_do_nothing(path, capsys):
    adapter = awake(with_branches(tiny_wan()))
    torch.nn.init.zeros_(adapter.branches[1].to_out.weight)
    save_adapter(path, adapter)
    assert table(capsys, path)["output norms"] == "nothing was learned in blocks 1"


def test_scale_and_input_map_are_printed(path, capsys):
    encoding = GTA(head_dim=64, scale=TranslationScale(per_metre=0.125, reach=40.0))
    save_adapter(path, with_branches(tiny_wan(), encoding=encoding, schedule=[2], input_map=LatitudeUpMap()))
    rows = table(capsys, path)
    assert rows["scale"] == "per_metre 0.125, reach 40"
    assert rows["input map"].startswith("name latitude-up")
    assert rows["blocks"] == "2 (list, 1 of 4)"


@pytest.mark.parametrize(
    ("name", "place", "norms"),
    [
        ("scope", "backbone", "nothing was learned yet, cameras would be ignored"),
        ("rerope", "backbone", "none: there is nothing to learn"),
        ("none", "none", None),
    ],
)
def test_adapters_without_branches_print_too(path, capsys, name, place, norms):
    # In a format whose fingerprint would not be that of other copies.
    save_adapter(path, attached(tiny_wan().half(), name))
    rows = table(capsys, path)
    assert rows["encoding"] == name
    assert rows["works in"] == place
    assert "compression" not in rows
    assert (rows.get("weight norms"), "output norms" in rows) == (norms, False)
    assert rows["base"] == "configuration alone is compared when it is loaded"


def test_json_holds_the_same(path, capsys):
    adapter = awake(with_branches(tiny_wan()))
    with torch.no_grad():
        adapter.branches[3].to_out.bias[0] = float("nan")
    save_adapter(path, adapter, dtype=torch.bfloat16, summary={"losses": [0.5, float("nan")]})
    assert run(["adapter", "info", str(path.parent), "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["config"]["summary"]["losses"] == [0.5, None]
    assert found["config"]["encoding"]["name"] == "merope"
    assert found["config"]["spec"] is None
    assert (found["schedule"], found["dtypes"], found["is_zero"]) == ("alternate", ["bfloat16"], False)
    # Training that went wrong is seen, and is no JSON number.
    assert found["norms"]["3"] is None
    assert found["norms"]["1"] > 0


def test_what_is_no_adapter_is_one_plain_line(path, capsys):
    path.write_bytes(b"no weights")
    assert run(["adapter", "info", str(path)]) == 1
    assert "is damaged or no safetensors file" in capsys.readouterr().err
    assert run(["adapter", "info", str(path) + "s"]) == 1
    assert "no adapter file at" in capsys.readouterr().err
