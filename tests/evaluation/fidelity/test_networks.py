"""Feature networks: what they take, what they say of themselves, and what is refused."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from merope.errors import MeropeError, MissingDependency
from merope.evaluation.fidelity.libraries import build_network, require_plain_weights
from merope.evaluation.fidelity.networks import network_of_module
from tests.evaluation.fidelity.networks import TinyI3D, frames_network, save_frames, save_i3d


class Mean(nn.Module):
    """The mean of every channel, so that values can be read off."""

    def forward(self, x):
        return x.mean(dim=(2, 3))


PIXELS = torch.full((3, 3, 4, 5), 51, dtype=torch.uint8)


@pytest.mark.parametrize(("values", "expected"), [("0..255", 51.0), ("0..1", 0.2), ("-1..1", -0.6)])
def test_a_module_gets_the_range_that_it_was_said_to_take(values, expected):
    network = network_of_module(Mean(), takes="frames", name="mean", values=values)
    assert network.features(PIXELS) == pytest.approx(torch.full((3, 3), expected).numpy(), abs=1e-6)
    assert values in network.describe()["value_range"]


def test_only_uint8_is_taken():
    with pytest.raises(TypeError, match="uint8"):
        frames_network().features(torch.rand(2, 3, 16, 16))


def test_autocast_changes_no_digit():
    pixels = torch.randint(0, 256, (4, 3, 16, 20), dtype=torch.uint8)
    network = frames_network()
    plain = network.features(pixels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(network.features(pixels), plain)


def test_other_weights_are_another_network():
    one, same, other = (frames_network(seed=seed) for seed in (0, 0, 1))
    assert one.sha256 == same.sha256 != other.sha256


def test_features_that_are_not_finite_are_refused():
    class Broken(nn.Module):
        def forward(self, x):
            return x.mean(dim=(2, 3)) / 0

    network = network_of_module(Broken(), takes="frames", name="broken")
    with pytest.raises(MeropeError, match=r"broken gave .* not finite"):
        network.features(PIXELS)


class Giving(nn.Module):
    """What a network of another kind would hand back."""

    def __init__(self, give):
        super().__init__()
        self.give = give

    def forward(self, x):
        return self.give(x.mean(dim=(2, 3)))


def given(give, **options):
    return network_of_module(Giving(give), takes="frames", name="odd", **options).features(PIXELS)


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (lambda rows: (rows, rows), "gave a tuple and not one tensor"),
        (lambda rows: {"x": rows}, "gave a dict"),
        (lambda rows: rows[:, 0], r"gave \(3,\) for 3 samples"),
        (lambda rows: rows.mean(), r"gave \(\) for 3 samples"),
        (lambda rows: rows[:2], r"gave \(2, 3\) for 3 samples"),
        (lambda rows: rows[..., None, None].expand(3, 3, 4, 5), r"gave \(3, 3, 4, 5\).*mean of maps"),
        (lambda rows: rows @ torch.ones(5, 2), r"failed on frames of shape \(3, 3, 4, 5\): mat1 and mat2"),
    ],
)
def test_what_is_no_row_for_each_sample_is_refused(give, words):
    with pytest.raises(MeropeError, match=words):
        given(give)


def test_maps_of_one_place_and_half_precision_are_rows():
    for give in (lambda rows: rows[..., None, None], lambda rows: rows.half(), lambda rows: rows.long()):
        rows = given(give)
        assert rows.dtype == torch.float32 and torch.equal(rows, torch.full((3, 3), 51.0))


def test_a_torchscript_file_that_fails_says_its_own_last_line(tmp_path):
    torch.jit.script(nn.Conv2d(5, 1, 3)).save(str(tmp_path / "other.pt"))
    network = build_network("torchscript", weights=tmp_path / "other.pt", flag="--w")
    with pytest.raises(
        MeropeError, match=r"failed on frames of shape \(3, 3, 4, 5\): .*5 channels, but got 3"
    ):
        network.features(PIXELS)
    save_frames(tmp_path / "frames.pt")
    network = build_network("i3d-torchscript", weights=tmp_path / "frames.pt", flag="--w")
    with pytest.raises(MeropeError, match="expected at most 2 argument"):
        network.features(torch.zeros(1, 3, 10, 20, 28, dtype=torch.uint8))


@pytest.mark.parametrize("allowed", [True, False])
def test_convolutions_on_a_gpu_would_not_round_to_tf32(monkeypatch, allowed):
    cudnn = torch.backends.cudnn
    monkeypatch.setattr(cudnn, "allow_tf32", allowed)
    before = cudnn.conv.fp32_precision
    seen = []
    given(lambda rows: seen.append((cudnn.allow_tf32, cudnn.conv.fp32_precision)) or rows)
    assert seen == [(False, "ieee")]
    assert (cudnn.allow_tf32, cudnn.conv.fp32_precision) == (allowed, before)


def test_modules_that_print_otherwise_are_other_networks():
    one, other = (network_of_module(nn.AvgPool2d(size), takes="frames", name="pool") for size in (2, 3))
    assert one.sha256 != other.sha256

    class Printing(nn.Module):
        def extra_repr(self):
            return repr(object())

    assert len({network_of_module(Printing(), takes="frames", name="p").sha256 for _ in range(2)}) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_named(tmp_path):
    path = save_frames(tmp_path / "frames.pt")
    with pytest.raises(MeropeError, match=r"device 'cuda:1' is not there"):
        build_network("torchscript", weights=path, flag="--w", device="cuda:1")
    with pytest.raises(ValueError, match="got 'gpu'"):
        build_network("torchscript", weights=path, flag="--w", device="gpu")


def test_the_i3d_file_is_called_as_its_makers_call_it(tmp_path):
    path = save_i3d(tmp_path / "i3d.pt")
    video = torch.randint(0, 256, (1, 3, 12, 20, 28), dtype=torch.uint8)
    module = TinyI3D().eval()
    own = build_network("i3d-torchscript", weights=path, flag="--w")
    with torch.no_grad():
        assert torch.equal(own.features(video), module(video.float(), True, True, True))
    assert "rescale=True, resize=True" in own.describe()["backend"]
    assert own.min_frames == 10 and own.covariance == "N"

    ready = build_network("i3d-torchscript", weights=path, flag="--w", presized=True)
    with torch.no_grad():
        assert torch.equal(ready.features(video), module(video / 127.5 - 1, False, False, True))
    assert "rescale=False, resize=False" in ready.describe()["backend"]
    assert own.describe() != ready.describe()


class TinyInception(nn.Module):
    """Frames in uint8 to features, with the switch of StyleGAN's Inception file."""

    def forward(self, img: torch.Tensor, return_features: bool = False) -> torch.Tensor:
        features = (img.to(torch.float32) - 128).mean(dim=(2, 3))
        return features if return_features else torch.softmax(features, dim=1)


def test_the_inception_file_is_called_as_its_makers_call_it(tmp_path):
    torch.jit.script(TinyInception()).save(str(tmp_path / "inception.pt"))
    network = build_network("inception-torchscript", weights=tmp_path / "inception.pt", flag="--w")
    assert network.features(PIXELS) == pytest.approx(np.full((3, 3), 51 - 128))


def test_a_file_is_known_by_its_bytes(tmp_path):
    first, second = (save_frames(tmp_path / f"{seed}.pt", seed=seed) for seed in (0, 1))
    networks = [build_network("torchscript", weights=path, flag="--w") for path in (first, second)]
    assert networks[0].sha256 != networks[1].sha256
    i3d = build_network("i3d-torchscript", weights=save_i3d(tmp_path / "i3d.pt"), flag="--w")
    assert i3d.describe()["weights"] == "i3d.pt, not the usual file"


def test_a_name_that_is_none_lists_those_that_are():
    with pytest.raises(ValueError, match=r"inception, inception-tf1.*got 'inceptoin'"):
        build_network("inceptoin", weights=None, flag="--w")


@pytest.mark.parametrize("name", ["torchscript", "i3d-torchscript", "inception-torchscript"])
def test_a_file_that_is_no_torchscript_is_named(tmp_path, name):
    path = tmp_path / "weights.pt"
    torch.save({"a": torch.zeros(2)}, path)
    with pytest.raises(MeropeError, match=r"weights\.pt is no TorchScript file"):
        build_network(name, weights=path, flag="--w")


@pytest.mark.parametrize(("name", "package"), [("inception", "torch_fidelity"), ("i3d-cdfvd", "cdfvd")])
def test_a_missing_library_is_named_with_its_extra(tmp_path, name, package):
    try:
        __import__(package)
    except ImportError:
        pass
    else:
        pytest.skip(f"{package} is installed here")
    path = tmp_path / "weights.pt"
    torch.save({"a": torch.zeros(2)}, path)
    with pytest.raises(MissingDependency, match=rf"{package}.*merope\[fidelity\]"):
        build_network(name, weights=path, flag="--w")


class Evil:
    def __reduce__(self):
        return print, ("run",)


def test_a_pickle_that_runs_something_is_not_loaded(tmp_path, capsys):
    path = tmp_path / "evil.pth"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(MeropeError, match=r"evil\.pth holds no plain weights"):
        require_plain_weights(path, "inception-torchscript")
    assert capsys.readouterr().out == ""
