"""The whole command with the real Inception and I3D against torchmetrics, torch-fidelity and cd-fvd themselves.

Skipped where these are not installed: they import torchvision, which needs its own build of torch (docs/fidelity.md). The
published weights are not needed: both networks get random ones, saved as the files that people use.
"""

import importlib
import sys
from importlib.metadata import version

import numpy as np
import pytest
import torch
from torch import nn

from merope.cli.main import run
from merope.evaluation.fidelity import read_fidelity
from merope.evaluation.fidelity.clips import generated_collection, real_collection
from merope.evaluation.fidelity.results import read_fidelity_results
from tests.evaluation.fidelity.clips import write_real, write_run

PREFIX, LENGTH, CLIPS = 3, 13, 6

pytestmark = pytest.mark.slow


def _imported(name):
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} does not import here: {error}")


@pytest.fixture(scope="module")
def libraries():
    for package in ("torchvision", "torch_fidelity", "cdfvd.fvd", "torchmetrics"):
        _imported(package)


def _shake(module, kind):
    """Weights that keep activations alive through 20 layers, so that features differ."""
    torch.manual_seed(0)
    for layer in module.modules():
        if isinstance(layer, kind):
            nn.init.kaiming_normal_(layer.weight)
    return module


@pytest.fixture(scope="module")
def inputs(libraries, tmp_path_factory):
    root = tmp_path_factory.mktemp("libraries")
    write_real(root / "real", count=CLIPS, num_frames=LENGTH)
    write_run(root / "run", count=CLIPS, num_frames=LENGTH, prefix_frames=PREFIX, shift=40)
    extractor = importlib.import_module("torch_fidelity.feature_extractor_inceptionv3")
    blank = extractor.FeatureExtractorInceptionV3.__new__(extractor.FeatureExtractorInceptionV3)
    # Its constructor wants weights: they are fetched, or read from the file that is made here.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extractor, "load_state_dict_from_url", lambda *_, **__: {})
        patch.setattr(type(blank), "load_state_dict", lambda *_, **__: None)
        inception = extractor.FeatureExtractorInceptionV3("random", ["2048"])
    torch.save(_shake(inception, nn.Conv2d).state_dict(), root / "inception.pth")
    i3d = importlib.import_module("cdfvd.third_party.i3d.pytorch_i3d").InceptionI3d(400, in_channels=3)
    torch.save(_shake(i3d, nn.Conv3d).state_dict(), root / "i3d.pt")
    return root


@pytest.fixture(scope="module")
def frames(inputs):
    """Real and generated frames behind the prefix, [clip, frame, height, width, 3]."""
    sets = real_collection(inputs / "real"), generated_collection(inputs / "run")
    return [np.stack([clip.read(range(PREFIX, LENGTH)) for clip in each.clips]) for each in sets]


def _command(inputs, out, *more):
    arguments = ["fidelity", str(inputs / "run"), "--real", str(inputs / "real"), "--out", str(out)]
    arguments += ["--fid-weights", str(inputs / "inception.pth"), "--allow-small", *more]
    # One folder of features for all commands here: every frame goes through a network once.
    arguments += [
        "--cache",
        str(inputs / "features"),
        "--fvd-features",
        "i3d-cdfvd",
        "--fvd-weights",
        str(inputs / "i3d.pt"),
    ]
    assert run(arguments) == 0
    return {name: metric.value for name, metric in read_fidelity(out)["run"].items()}


@pytest.fixture(scope="module")
def ours(inputs, tmp_path_factory):
    return _command(inputs, tmp_path_factory.mktemp("ours"))


def _images(clips):
    return torch.from_numpy(clips.reshape(-1, *clips.shape[2:])).permute(0, 3, 1, 2).contiguous()


def _tell(name, mine, theirs, library):
    sys.stdout.write(f"\n{name}: merope {mine:.6f}, {library} {version(library)} {theirs:.6f}\n")


def test_fid_and_kid_of_torchmetrics(inputs, frames, ours, tmp_path):
    from torchmetrics.image.fid import FrechetInceptionDistance, NoTrainInceptionV3
    from torchmetrics.image.kid import KernelInceptionDistance

    path = str(inputs / "inception.pth")
    fid = FrechetInceptionDistance(feature=2048, feature_extractor_weights_path=path)
    module = NoTrainInceptionV3("x", ["2048"], path)
    kid = KernelInceptionDistance(feature=module, subsets=5, subset_size=30)
    for clips, real in zip(frames, (True, False), strict=True):
        for batch in _images(clips).split(16):
            fid.update(batch, real=real)
            kid.update(batch, real=real)
    theirs = float(fid.compute())
    _tell("FID", ours["fid"], theirs, "torchmetrics")
    assert ours["fid"] == pytest.approx(theirs, rel=1e-3)
    torch.manual_seed(3)
    mean, _ = kid.compute()
    subsets = _command(
        inputs,
        tmp_path,
        *("--measures", "kid", "--kernel-subsets", "5", "--kernel-subset-size", "30", "--seed", "3"),
    )
    _tell("KID, 5 subsets of 30", subsets["kid"], float(mean), "torchmetrics")
    assert subsets["kid"] == pytest.approx(float(mean), rel=1e-3)


def test_fid_and_kid_of_torch_fidelity(inputs, frames, tmp_path):
    from torch_fidelity import calculate_metrics

    theirs = calculate_metrics(
        input1=_Pictures(_images(frames[1])),
        input2=_Pictures(_images(frames[0])),
        cuda=False,
        fid=True,
        kid=True,
        kid_subsets=1,
        kid_subset_size=CLIPS * (LENGTH - PREFIX),
        feature_extractor_weights_path=str(inputs / "inception.pth"),
        cache=False,
        verbose=False,
    )
    mine = _command(inputs, tmp_path, "--measures", "fid", "kid", "--fid-features", "inception-tf1")
    _tell("FID, tf1", mine["fid"], theirs["frechet_inception_distance"], "torch-fidelity")
    _tell("KID, all pairs, tf1", mine["kid"], theirs["kernel_inception_distance_mean"], "torch-fidelity")
    assert mine["fid"] == pytest.approx(theirs["frechet_inception_distance"], rel=1e-3)
    assert mine["kid"] == pytest.approx(theirs["kernel_inception_distance_mean"], rel=1e-3)


class _Pictures(torch.utils.data.Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        return self.images[number]


def test_fvd_of_cd_fvd(inputs, frames, ours):
    from cdfvd.fvd import cdfvd

    judge = cdfvd("i3d", ckpt_path=str(inputs / "i3d.pt"), device="cpu")
    theirs = float(judge.compute_fvd(*frames))
    _tell("FVD", ours["fvd"], theirs, "cd-fvd")
    assert ours["fvd"] == pytest.approx(theirs, rel=1e-3)


def test_the_resize_of_the_backend_changes_the_number(inputs, ours, tmp_path):
    tf1 = _command(inputs, tmp_path, "--measures", "fid", "--fid-features", "inception-tf1")
    assert tf1["fid"] != pytest.approx(ours["fid"], rel=1e-4)
    protocol = read_fidelity_results(tmp_path)[0].scores["fid"].protocol
    assert "TensorFlow 1" in protocol["own_resize"]
    assert protocol["backend"] == (
        f"torch {torch.__version__}, torchmetrics {version('torchmetrics')}, "
        f"torch-fidelity {version('torch-fidelity')}"
    )
