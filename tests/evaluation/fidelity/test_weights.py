"""Where weight files come from, and that nothing is fetched where that is forbidden."""

import pytest
import torch

from merope.errors import MeropeError
from merope.evaluation.fidelity.weights import I3D_TORCHSCRIPT, INCEPTION, find_weights, offline


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)]
)
@pytest.mark.parametrize("name", ["MEROPE_OFFLINE", "HF_HUB_OFFLINE"])
def test_either_variable_means_offline(monkeypatch, name, value, expected):
    for other in ("MEROPE_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert offline() is expected


def test_a_path_is_taken_as_it_is(tmp_path):
    (tmp_path / "mine.pt").write_bytes(b"x")
    assert find_weights(tmp_path / "mine.pt", INCEPTION, flag="--w") == tmp_path / "mine.pt"


def test_without_weights_file_size_hash_and_flag_are_named(no_cache):
    with pytest.raises(MeropeError) as error:
        find_weights(None, INCEPTION, flag="--fid-weights")
    for word in (INCEPTION.name, "95628359 bytes", INCEPTION.sha256, "--fid-weights"):
        assert word in str(error.value)


def test_the_librarys_own_cache_is_looked_into(no_cache):
    path = no_cache / "checkpoints" / INCEPTION.name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    assert find_weights(None, INCEPTION, flag="--w") == path


def test_offline_a_hub_name_is_an_error_that_names_the_file(monkeypatch, tmp_path):
    # Sockets are closed to tests, so an attempt to connect would fail with other words.
    monkeypatch.setenv("MEROPE_OFFLINE", "1")
    with pytest.raises(MeropeError) as error:
        find_weights("hf://owner/repository/i3d_torchscript.pt", I3D_TORCHSCRIPT, flag="--fvd-weights")
    for word in ("MEROPE_OFFLINE", I3D_TORCHSCRIPT.sha256, "51235320 bytes", "--fvd-weights"):
        assert word in str(error.value)


def test_offline_a_file_in_the_hubs_cache_is_found(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setenv("MEROPE_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--owner--repository"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("a" * 40)
    kept = repository / "snapshots" / ("a" * 40) / "folder" / "net.pt"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"x")
    assert find_weights("hf://owner/repository/folder/net.pt", INCEPTION, flag="--w") == kept


@pytest.mark.parametrize(
    "name", ["hf://own er/repo/file.pt", "hf://owner/file.pt", "hf://owner//file.pt", "hf://"]
)
def test_a_hub_name_without_repository_and_file_is_refused(name):
    with pytest.raises(MeropeError, match="is no file of the hub"):
        find_weights(name, INCEPTION, flag="--w")


def test_a_path_that_is_no_file_is_named(tmp_path):
    with pytest.raises(MeropeError, match=r"nowhere\.pt is no file; --fvd-weights takes i3d_torchscript\.pt"):
        find_weights(tmp_path / "nowhere.pt", I3D_TORCHSCRIPT, flag="--fvd-weights")
