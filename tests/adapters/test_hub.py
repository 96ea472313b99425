"""Adapters by a hub name: from its cache without a network, and to and from a server that speaks the hub's HTTP."""

import json

import huggingface_hub.constants
import pytest
import torch

from merope.adapters import load_adapter, read_adapter_config, save_adapter
from merope.adapters.finding import find_adapter
from merope.adapters.hub import model_card, push_adapter
from merope.adapters.inspection import inspect_adapter
from merope.errors import CheckpointMismatch, MeropeError
from tests.support.fresh_python import run_python
from tests.support.hub_server import TOKEN, Repository, hub_server
from tests.support.wan import awake, run, tiny_wan, with_branches

COMMIT = "1" * 40


@pytest.fixture
def saved(tmp_path):
    """An adapter and its file."""
    adapter = awake(with_branches(tiny_wan()))
    save_adapter(tmp_path / "adapter.safetensors", adapter, summary={"steps": 3})
    return adapter, tmp_path / "adapter.safetensors"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub in place of the user's."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(cache, name, place, content):
    """A file in the cache as a download leaves it."""
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    file = folder / "snapshots" / COMMIT / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("place", ["adapter.safetensors", "adapter/adapter.safetensors"])
def test_a_cached_adapter_is_loaded_without_a_network(cache, saved, place):
    adapter, file = saved
    put(cache, "owner/streets", place, file.read_bytes())
    assert read_adapter_config("owner/streets")["summary"] == {"steps": 3}
    for revision in (None, "main", COMMIT):
        again = load_adapter("owner/streets", tiny_wan(), revision=revision)
        assert torch.equal(run(again), run(adapter))


def test_what_is_on_this_machine_comes_first(cache, saved, tmp_path, monkeypatch):
    _, file = saved
    put(cache, "owner/streets", "adapter.safetensors", b"of the hub")
    monkeypatch.chdir(tmp_path)
    here = tmp_path / "owner" / "streets" / "adapter.safetensors"
    here.parent.mkdir(parents=True)
    here.write_bytes(file.read_bytes())
    assert find_adapter("owner/streets").resolve() == here
    with pytest.raises(
        ValueError, match="revision 'main' is of a hub's repository; owner/streets is on this"
    ):
        find_adapter("owner/streets", revision="main")


def test_a_name_that_is_nowhere_says_where_was_looked(cache):
    with pytest.raises(
        FileNotFoundError, match=r"no file or folder owner/none here, the hub's cache has no adapter"
    ):
        load_adapter("owner/none", tiny_wan())


@pytest.mark.parametrize(
    "path", ["none", "a/b/c", "owner/adapter.safetensors", "./none", "owner/no..name", ""]
)
def test_what_cannot_be_a_hub_name_is_a_missing_file(cache, path, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no adapter file"):
        load_adapter(path, tiny_wan())


def test_a_damaged_file_of_the_cache_is_named(cache, saved):
    content = bytearray(saved[1].read_bytes())
    content[-3] ^= 1
    put(cache, "owner/streets", "adapter.safetensors", bytes(content))
    with pytest.raises(CheckpointMismatch, match="owner/streets is damaged"):
        load_adapter("owner/streets", tiny_wan())


def test_uploads_are_checked_before_and_need_a_network(saved, tmp_path):
    file = saved[1]
    with pytest.raises(MeropeError, match="owner/streets was not uploaded: HF_HUB_OFFLINE is set"):
        push_adapter(file, "owner/streets")
    with pytest.raises(ValueError, match=r"repo_id must be a name such as 'user/name'; got 'a/b/c'"):
        push_adapter(file, "a/b/c")
    with pytest.raises(FileNotFoundError, match="no adapter file at owner/streets"):
        push_adapter("owner/streets", "owner/streets")
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointMismatch, match="damaged"):
        push_adapter(damaged, "owner/streets")


def test_the_card_names_the_base_only_where_it_is_a_hub_name(saved):
    report = inspect_adapter(saved[1])
    assert "base_model" not in model_card(report, "owner/streets")
    report.config["base"]["name"] = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
    card = model_card(report, "owner/streets")
    assert "base_model: Wan-AI/Wan2.1-T2V-1.3B-Diffusers\n" in card
    assert 'load_adapter("owner/streets", transformer)' in card


JOURNEY = """
import json
import sys
from merope.adapters.finding import find_adapter
from merope.adapters.hub import push_adapter

file, token = sys.argv[1:]
said = {}


def tried(name, call):
    try:
        said[name] = str(call())
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"


tried("without a token", lambda: push_adapter(file, "owner/streets"))
tried("pushed", lambda: push_adapter(file, "owner/streets", private=True, token=token))
tried("pushed again", lambda: push_adapter(file, "owner/streets", token=token))
tried("found", lambda: find_adapter("owner/streets", token=token))
tried("at its commit", lambda: find_adapter("owner/streets", revision=said["pushed again"], token=token))
tried("private", lambda: find_adapter("owner/secret"))
tried("no such revision", lambda: find_adapter("owner/streets", revision="v2", token=token))
tried("pipeline", lambda: find_adapter("owner/pipeline"))
tried("gated", lambda: find_adapter("owner/gated"))
tried("empty", lambda: find_adapter("owner/empty"))
tried("none", lambda: find_adapter("owner/none"))
print(json.dumps(said))
"""


def test_an_adapter_travels_to_the_hub_and_back(saved, tmp_path):
    adapter, file = saved
    environment = {
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "0",
        # Uploads over plain HTTP, as the server here takes them.
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_TOKEN": "",
    }
    with hub_server() as hub:
        content = file.read_bytes()
        hub.repositories["owner/pipeline"] = Repository(files={"adapter/adapter.safetensors": content})
        hub.repositories["owner/secret"] = Repository(private=True, files={"adapter.safetensors": content})
        hub.repositories["owner/gated"] = Repository(gated=True, files={"adapter.safetensors": content})
        hub.repositories["owner/empty"] = Repository(files={"README.md": b""})
        ran = run_python(
            JOURNEY, arguments=[str(file), TOKEN], environment={**environment, "HF_ENDPOINT": hub.url}
        )
        assert ran.returncode == 0, ran.stderr
        said = json.loads(ran.stdout.splitlines()[-1])
        streets = hub.repositories["owner/streets"]
    assert streets.private
    assert streets.files["adapter.safetensors"] == content
    assert b"library_name: merope" in streets.files["README.md"]
    assert said["pushed again"] == streets.commit
    for name in ("found", "at its commit", "pipeline"):
        with open(said[name], "rb") as found:
            assert found.read() == content, said[name]
    assert said["without a token"].startswith(
        "MeropeError: the hub did not take the adapter as owner/streets"
    )
    assert said["private"].startswith("FileNotFoundError: there is no file or folder owner/secret here")
    assert (
        said["no such revision"]
        == "FileNotFoundError: the hub's repository owner/streets has no revision 'v2'."
    )
    assert said["gated"].startswith("MeropeError: the hub gives owner/gated to people whom its owner lets in")
    assert said["empty"].startswith("FileNotFoundError: the hub's repository owner/empty holds no adapter")
    assert said["none"].startswith("FileNotFoundError: there is no file or folder owner/none here")
    # The server is gone; what came from it is in the cache.
    again = load_adapter(said["found"], tiny_wan())
    assert torch.equal(run(again), run(adapter))
