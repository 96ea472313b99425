"""`merope generate`: whole clips and nothing else, once each, the same on one process and on several."""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from diffusers import WanTransformer3DModel

from merope.adapters import attach, save_adapter
from merope.cli.main import run
from merope.data import read_poses
from merope.data.clips.generated import find_generated
from merope.data.clips.video import read_video
from merope.encodings import MeRoPE
from merope.generation.fingerprints import model_fingerprint
from merope.generation.pipeline import MeropePipeline
from tests.support.shared import REPOSITORY
from tests.support.wan_run import LENS, adapter_file, spec, wan_folder, write_cases

CLIPS = ["rain/left", "street/bend", "street/slow"]


def command(out, *options, manifest=None):
    start = [
        "generate",
        str(wan_folder()),
        "--adapter",
        str(adapter_file()),
        "--out",
        str(out),
        "--steps",
        "2",
    ]
    if manifest is not None:
        start += ["--manifest", str(manifest)]
    return [*start, *map(str, options)]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="module")
def finished(cases, tmp_path_factory):
    """The folder of a finished run."""
    out = tmp_path_factory.mktemp("generated") / "out"
    assert run(command(out, "--self-check", manifest=cases)) == 0
    return out


@pytest.fixture
def copy(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def no_weights(monkeypatch):
    """A run that reads weights fails."""

    def refuse(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr(MeropePipeline, "from_pretrained", refuse)


def frames_of(out):
    return {clip.clip_id: clip.frames() for clip in find_generated(out)}


def hidden(out):
    return [path.name for path in out.rglob(".*")]


def test_every_clip_is_a_folder_with_all_that_it_needs(finished, cases):
    clips = find_generated(finished)
    assert [clip.clip_id for clip in clips] == CLIPS
    assert not hidden(finished)
    for clip in clips:
        names = {entry.name for entry in clip.folder.iterdir()}
        assert names == {"frames", "video.mp4", "commanded.json", "lens.json", "result.json"}
        assert clip.frames().shape == (9, 64, 96, 3)
        assert read_video(clip.folder / "video.mp4")[0].shape == (9, 64, 96, 3)
        assert (clip.lens, clip.fps, clip.prefix_frames) == (LENS, 10, 5)
    commanded = clips[1].commanded.T_world_cam
    file = read_poses(cases.parent / "bend.txt", format="kitti").T_world_cam
    assert np.allclose(commanded, file[:9])


def test_the_result_says_how_the_clip_was_made(finished):
    rain = json.loads((finished / "rain" / "left" / "result.json").read_text())
    assert (rain["prompt"], rain["negative_prompt"], rain["seed"]) == ("rain", "sun", 7)
    assert rain["settings"]["steps"] == 2
    assert rain["settings"]["guidance"] == 5.0
    assert rain["settings"]["model"].startswith("sha256:")
    assert rain["settings"]["adapter"].startswith("sha256:")
    assert rain["settings"]["spec"]["prefix_frames"] == 5
    assert rain["scheduler"]["class"] == "UniPCMultistepScheduler"
    assert rain["scheduler"]["flow_shift"] == 5.0
    assert rain["prefix_color_jump"] > 0
    assert rain["timing"]["seconds_per_clip"] > 0
    assert {"merope", "torch", "diffusers"} <= rain["versions"].keys()


def test_trajectories_of_a_case_share_given_frames_and_differ_after(finished):
    frames = frames_of(finished)
    bent, slow = frames["street/bend"], frames["street/slow"]
    assert np.abs(bent[0].astype(int) - slow[0]).max() <= 1
    assert (bent[8] != slow[8]).any()


def test_a_second_run_makes_nothing_and_reads_no_weights(copy, cases, capsys, no_weights):
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    assert run(command(copy, manifest=cases)) == 0
    assert "0 clips to make, 3 more are there" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


def test_what_is_missing_is_made_and_comes_out_the_same(copy, finished, cases, capsys):
    shutil.rmtree(copy / "street" / "slow")
    (copy / "street" / ".slow.1.tmp").mkdir()
    assert run(command(copy, manifest=cases)) == 0
    printed = capsys.readouterr().out
    assert "1 clips to make, 2 more are there" in printed
    assert "1 clips made, 2 were there" in printed
    assert not hidden(copy)
    assert np.array_equal(frames_of(copy)["street/slow"], frames_of(finished)["street/slow"])


def test_clips_of_other_settings_are_refused_by_name(copy, cases, capsys, no_weights):
    assert run(command(copy, "--guidance", "3", "--seed", "1", manifest=cases)) == 1
    error = capsys.readouterr().err
    assert "--overwrite makes them anew" in error
    assert "street/bend was made with guidance 5.0, not 3.0; seed " in error
    assert "rain/left was made with guidance 5.0, not 3.0\n" in error


def test_overwrite_makes_only_what_differs(copy, finished, cases, capsys):
    kept = (copy / "rain" / "left" / "result.json").stat().st_mtime_ns
    assert run(command(copy, "--seed", "1", "--overwrite", manifest=cases)) == 0
    assert "2 clips made, 1 were there" in capsys.readouterr().out
    assert (copy / "rain" / "left" / "result.json").stat().st_mtime_ns == kept
    old, new = frames_of(finished), frames_of(copy)
    assert (old["street/bend"] != new["street/bend"]).any()
    assert not hidden(copy)


def test_a_retrained_adapter_is_another_setting(copy, cases, tmp_path, capsys, no_weights):
    other = tmp_path / "adapter.safetensors"
    content = bytearray(adapter_file().read_bytes())
    content[-1] ^= 1
    other.write_bytes(content)
    arguments = command(copy, manifest=cases)
    arguments[3] = str(other)
    assert run(arguments) == 1
    assert "was made with another adapter" in capsys.readouterr().err


def test_a_dry_run_lists_clips_and_reads_no_weights(tmp_path, cases, capsys, no_weights):
    assert run(command(tmp_path / "out", "--dry-run", manifest=cases)) == 0
    assert not (tmp_path / "out").exists()
    printed = capsys.readouterr().out
    assert "3 clips to make" in printed
    assert "street/slow: 9 frames of 64 x 96 at 10 Hz, 5 given" in printed
    assert "poses 2 to 6 of 33, 5 a second, at 10 Hz" in printed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--num-frames", "12"), "Use 9 or 13"),
        (("--height", "70"), "Use 64 or 96"),
        (("--prefix-frames", "4"), "Use 1 or 5"),
        (("--steps", "0"), "--steps must be 1 or more"),
        (("--batch", "0"), "--batch must be 1 or more"),
        (("--device", "gpu"), "--device gpu is no device; say cpu, cuda or"),
        (
            ("--offload", "model", "--device", "cpu"),
            "--offload model moves weights between a GPU and the CPU",
        ),
        (("--num-frames", "41"), "--pose-extend hold|constant-velocity, or --num-frames 33"),
    ],
)
def test_what_does_not_fit_is_refused_before_weights_are_read(
    tmp_path, cases, capsys, no_weights, options, words
):
    assert run(command(tmp_path / "out", *options, manifest=cases)) == 1
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert not list((tmp_path / "out").glob("*"))


def test_a_model_without_cameras_is_refused(tmp_path, cases, capsys, no_weights):
    arguments = command(
        tmp_path / "out",
        "--height",
        64,
        "--width",
        96,
        "--num-frames",
        9,
        "--prefix-frames",
        5,
        manifest=cases,
    )
    del arguments[2:4]
    assert run(arguments) == 1
    error = capsys.readouterr().err
    assert "has no camera adapter of its own" in error
    assert "Name one with --adapter" in error
    assert error.count("\n") == 1


def test_zero_branches_are_refused_once(tmp_path, cases, capsys):
    transformer = WanTransformer3DModel.from_pretrained(wan_folder() / "transformer")
    save_adapter(
        tmp_path / "zero.safetensors",
        attach(transformer, encoding=MeRoPE(head_dim=64), compression=4),
        spec=spec(),
    )
    arguments = command(tmp_path / "out", manifest=cases)
    arguments[3] = str(tmp_path / "zero.safetensors")
    assert run(arguments) == 1
    assert capsys.readouterr().err.count("the camera branches are all zero") == 1


def test_what_else_lies_in_the_models_folder_does_not_make_it_another_model(tmp_path):
    folder = shutil.copytree(wan_folder(), tmp_path / "wan")
    (folder / "clips" / "street").mkdir(parents=True)
    (folder / "clips" / "street" / "result.json").write_text("{}")
    assert model_fingerprint(folder) == model_fingerprint(wan_folder())
    (folder / "vae" / "config.json").write_text("{}")
    assert model_fingerprint(folder) != model_fingerprint(wan_folder())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Name a --manifest of cases, or for one clip all of"),
        (("--manifest", "m.json", "--prompt", "rain", "--start", "0"), "--prompt, --start: for one clip"),
        (("--lens", "lens.json", "--fov", "90"), "--lens and --fov both say what the lens is"),
    ],
)
def test_flags_that_contradict_each_other_are_a_usage_error(options, words, capsys):
    assert run(["generate", "wan", "--out", "out", *options]) == 2
    assert words in capsys.readouterr().err


def test_one_clip_from_flags(tmp_path, cases, capsys):
    folder = cases.parent
    options = ["--trajectory", folder / "bend.txt", "--format", "kitti", "--start", 3, "--prompt", "rain"]
    options += [
        "--prefix",
        folder / "given",
        "--lens",
        folder / "lens.json",
        "--num-frames",
        12,
        "--fit-frames",
        "trim",
    ]
    assert run(command(tmp_path / "out", *options)) == 0
    printed = capsys.readouterr().out
    assert "trimmed from 12 to 9 frames, 1 + 4 k: the poses of frames 9 to 11 are left out" in printed
    (clip,) = find_generated(tmp_path / "out")
    assert clip.clip_id == "clip/bend"
    file = read_poses(folder / "bend.txt", format="kitti").T_world_cam
    assert np.allclose(clip.commanded.T_world_cam, file[3:12])


def test_clips_made_together_are_those_made_alone(tmp_path, cases, finished):
    assert run(command(tmp_path / "out", "--batch", "4", manifest=cases)) == 0
    alone, together = frames_of(finished), frames_of(tmp_path / "out")
    for name in CLIPS:
        # Another batch is another order of sums.
        assert np.abs(alone[name].astype(int) - together[name]).max() <= 1


def test_a_clip_that_fails_is_named_and_the_rest_goes_on(tmp_path, cases, capsys, monkeypatch):
    call = MeropePipeline.__call__

    def failing(self, prompt, **options):
        if any(float(poses.step_lengths[0]) < 0.4 for poses in options["poses"]):
            raise RuntimeError("no luck")
        return call(self, prompt, **options)

    monkeypatch.setattr(MeropePipeline, "__call__", failing)
    assert run(command(tmp_path / "out", "--batch", "2", manifest=cases)) == 1
    output = capsys.readouterr()
    assert "2 clips made" in output.out
    assert (
        "1 clips failed; the same command tries them again:\n  street/slow: RuntimeError: no luck"
        in output.err
    )
    assert sorted(frames_of(tmp_path / "out")) == ["rain/left", "street/bend"]
    assert not hidden(tmp_path / "out")


def test_interrupted_runs_leave_whole_clips(tmp_path, cases, monkeypatch):
    from merope.data.clips import generated

    write, written = generated.write_poses, []

    def interrupted(path, *arguments, **options):
        written.append(path)
        if len(written) == 2:
            # In the middle of the second clip's folder.
            os.kill(os.getpid(), signal.SIGTERM)
        return write(path, *arguments, **options)

    monkeypatch.setattr(generated, "write_poses", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(command(tmp_path / "out", manifest=cases))
    assert list(frames_of(tmp_path / "out")) == ["street/bend"]
    assert not hidden(tmp_path / "out")
    assert signal.getsignal(signal.SIGTERM) is not signal.default_int_handler


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as stop:
        run(["generate", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in (
        "--manifest",
        "--adapter",
        "--pose-extend",
        "--fit-frames",
        "--crop",
        "--offload",
        "--self-check",
    ):
        assert option in text
    assert "(required)" in text


def _share(rank, world, port, arguments, codes):
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    codes.put((rank, run(arguments)))


def shared_run(world, arguments):
    """Exit codes of a run shared out over processes, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    codes = context.Queue()
    children = [
        context.Process(target=_share, args=(rank, world, port, arguments, codes)) for rank in range(world)
    ]
    for child in children:
        child.start()
    found = dict(codes.get(timeout=120) for _ in children)
    for child in children:
        child.join(timeout=60)
    return found


def test_processes_share_clips_out_and_make_the_same_frames(tmp_path, cases, finished, capfd):
    out = tmp_path / "out"
    assert shared_run(2, command(out, manifest=cases)) == {0: 0, 1: 0}
    printed = capfd.readouterr().out
    assert printed.count("3 clips made") == 1
    one, several = frames_of(finished), frames_of(out)
    assert list(several) == CLIPS
    assert all(np.array_equal(one[name], several[name]) for name in CLIPS)


def test_processes_make_one_clip_together(tmp_path, cases, finished, capfd):
    out = tmp_path / "out"
    assert shared_run(2, command(out, "--share", "clip", manifest=cases)) == {0: 0, 1: 0}
    assert capfd.readouterr().out.count("3 clips made") == 1
    one, together = frames_of(finished), frames_of(out)
    for name in CLIPS:
        assert np.abs(one[name].astype(int) - together[name]).max() <= 1
    assert json.loads((out / "rain" / "left" / "result.json").read_text())["processes_per_clip"] == 2
    assert not hidden(out)


def test_a_mistake_is_said_once_and_every_process_ends(tmp_path, cases, capfd):
    assert shared_run(2, command(tmp_path / "out", "--num-frames", "12", manifest=cases)) == {0: 1, 1: 1}
    assert capfd.readouterr().err.count("Use 9 or 13") == 1


@pytest.mark.slow
def test_generate_and_evaluate_as_fresh_offline_processes(tmp_path, cases, finished):
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY / "src"),
    }

    def fresh(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shared = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "merope"]
    assert "3 clips made" in fresh(*shared, *command("out", manifest=cases))
    one, several = frames_of(finished), frames_of(tmp_path / "out")
    assert all(np.array_equal(one[name], several[name]) for name in CLIPS)
    table = fresh("merope", "evaluate", "out")
    assert "3 clips of 9 frames; poses recovered for 100 %" in table
    assert "0 clips to make, 3 more are there" in fresh("merope", *command("out", manifest=cases))
