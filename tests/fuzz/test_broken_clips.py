"""One broken video costs its own clip, which is named, and the rest goes on, in every command on folders of clips."""

import pytest

from merope.cli.main import run
from merope.data.caches.latent_cache import LatentCache
from merope.data.clips.folder import clip_ids
from merope.data.selection.splits import read_split
from merope.recipes.tiny_wan import make_tiny_wan
from tests.fuzz.broken_clips import commands, cut, missing, name_of, pipe, rubbish, write_clips

COUNT, BROKEN = 10, 3
REST = {name_of(number) for number in range(COUNT) if number != BROKEN}

pytestmark = pytest.mark.filterwarnings("ignore::merope.data.caches.cached_clip.CacheWarning")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_wan(tmp_path_factory.mktemp("model") / "wan")


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Ten clips, whose broken one every test breaks anew."""
    root = tmp_path_factory.mktemp("clips")
    write_clips(root, COUNT)
    return root


@pytest.fixture
def broken(request, clips):
    video = clips / name_of(BROKEN) / "video.mp4"
    content = video.read_bytes()
    request.param(video)
    yield clips
    video.unlink(missing_ok=True)
    video.write_bytes(content)


def told(capsys):
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize(
    ("command", "broken"),
    [
        *((command, cut) for command in ("convert", "prototypes", "select", "history index")),
        *(("check", damage) for damage in (rubbish, missing, pipe)),
    ],
    indirect=["broken"],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broken_video_costs_its_clip_alone(broken, model, tmp_path, capsys, command):
    code = run(commands(broken, tmp_path, model)[command])
    text = told(capsys)
    # A check that finds something has found something.
    assert code == (1 if command == "check" else 0), text
    assert name_of(BROKEN) in text and "Traceback" not in text
    if command == "convert":
        assert set(clip_ids(tmp_path / "converted")) == REST
    if command == "check":
        assert {clip.clip_id for clip in read_split(tmp_path / "split.json").clips} == REST
    if command == "prototypes":
        names = {
            clip.clip_id.partition("@")[0] for clip in read_split(tmp_path / "prototypes/split.json").clips
        }
        assert names >= REST
    if command == "history index":
        assert f"of {len(REST)} clips added" in text


@pytest.mark.parametrize("broken", [cut], indirect=True, ids=lambda damage: damage.__name__)
def test_encoding_goes_on(broken, model, tmp_path, capsys):
    assert run(commands(broken, tmp_path, model)["encode"]) == 0
    assert name_of(BROKEN) in told(capsys)
    cache = LatentCache(tmp_path / "cache")
    assert len(cache) == len(REST)
    assert [one["clip_id"].partition("@")[0] for one in cache.skipped] == [name_of(BROKEN)]
