"""Earth-centred coordinates are 6.4e6 m from their origin, where float32 has steps of half a metre: none goes through it."""

import ast
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import merope
from merope.adapters.command import latent_matrices, latent_rays
from merope.cameras import Pinhole
from merope.data import read_poses, write_poses
from merope.data.clips.folder import write_clip
from merope.data.datasets import open_dataset
from merope.data.history import HistoryIndex, IndexOptions, QueryPath, Search, add_to_index
from merope.data.poses.formats import FORMATS
from merope.data.selection.prototypes.inputs import InputOptions, read_trajectories
from merope.geometry.poses import Poses
from tests.support.cached import write_cache
from tests.support.drives import drive
from tests.support.said import printed
from tests.support.shared import shared_file
from tests.support.tiny_run import tiny_spec

FAR = torch.tensor([-2703000.1, -4262000.7, 3886000.3], dtype=torch.float64)
LENS = Pinhole(fx=40.0, fy=40.0, cx=24.0, cy=16.0, width=48, height=32, pixel_origin="corner")
# A float64 step is 9.3e-10 there.
EXACT = 1e-8


def far_drive(num: int = 9) -> Poses:
    near = drive(num, length=8.0, turn_deg=60.0)
    times = torch.arange(num, dtype=torch.float64) / 10
    return Poses(R_world_cam=near.R_world_cam, center_world=near.center_world + FAR, times=times, unit="m")


def seen_from_first(poses: Poses) -> torch.Tensor:
    """Centres in the axes of the first camera, by plain arithmetic."""
    return (poses.center_world - poses.center_world[0]) @ poses.R_world_cam[0]


def assert_same_motion(poses: Poses) -> None:
    assert poses.center_world.dtype == torch.float64
    wanted = seen_from_first(drive(len(poses), length=8.0, turn_deg=60.0))
    assert (seen_from_first(poses) - wanted).abs().max() < EXACT


class _Watch(TorchDispatchMode):
    """Fails on any tensor that holds more than 100 km in less than float64."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                far = value.dtype != torch.float64 and float(value.detach().abs().max()) > 1e5
                assert not far, f"{func} gave a world coordinate in {value.dtype}"
        return out


@contextmanager
def watched():
    with _Watch():
        yield


def test_the_watch_sees_a_rounded_coordinate():
    with watched(), pytest.raises(AssertionError, match=r"a world coordinate in torch\.float32"):
        far_drive().center_world.float()


@pytest.mark.parametrize("format", [name for name, kind in FORMATS.items() if kind.write is not None])
def test_every_format_keeps_motion(tmp_path, format):
    path = tmp_path / "poses.json"
    with watched():
        write_poses(path, far_drive(), format=format, camera=LENS.to_dict())
        assert_same_motion(read_poses(path, format=format))


@pytest.mark.parametrize("to", ["merope", "tum", "euroc", "realestate10k", "comma2k19", "nerfstudio"])
@pytest.mark.parametrize("rebase", [False, True])
def test_conversion_keeps_motion(tmp_path, to, rebase):
    write_poses(tmp_path / "far", far_drive(), format="comma2k19")
    (tmp_path / "lens.json").write_text(json.dumps(LENS.to_dict()))
    flags = ["--format", "comma2k19", "--to", to, "--lens", str(tmp_path / "lens.json")]
    with watched():
        printed(
            "poses", "convert", str(tmp_path / "far"), str(tmp_path / "out"), *flags, *["--rebase"] * rebase
        )
        poses = read_poses(tmp_path / "out", format=to)
    assert_same_motion(poses)
    assert (float(poses.center_world[0].norm()) < 1e-6) == rebase


def test_the_real_highway_keeps_every_step(tmp_path):
    folder = shared_file("data/comma2k19")
    positions = np.load(folder / "frame_positions.npy")
    with watched():
        poses = read_poses(folder, format="comma2k19")
        printed(
            "poses",
            "convert",
            str(folder),
            str(tmp_path / "near.json"),
            "--format",
            "comma2k19",
            "--rebase",
            "--to",
            "merope",
        )
        near = read_poses(tmp_path / "near.json", format="merope")
    assert np.array_equal(poses.center_world.numpy(), positions)
    steps = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    assert np.abs(near.step_lengths.numpy() - steps).max() < EXACT
    # What float32 would have made of them.
    rounded = positions.astype(np.float32).astype(np.float64)
    assert round(float(np.abs(rounded - positions).max()), 2) == 0.25
    lost = np.abs(np.linalg.norm(np.diff(rounded, axis=0), axis=1) - steps)
    assert lost.max() > 0.3


def clips(root):
    frames = np.random.default_rng(0).integers(0, 255, (9, 32, 48, 3), dtype=np.uint8)
    provenance = {"world": "earth", "traversal": "drive"}
    write_clip(
        root, "clip", frames, poses=far_drive(), lens=LENS, fps=10.0, source="s", provenance=provenance
    )
    return root


def test_clips_and_their_windows_keep_motion(tmp_path):
    with watched():
        (clip,) = open_dataset("folder", clips(tmp_path / "clips"))
        assert_same_motion(clip.poses)
        (trajectory,) = read_trajectories([tmp_path / "clips"], InputOptions(num_frames=9))
        assert trajectory.centers.dtype == np.float64
        wanted = seen_from_first(drive(9, length=8.0, turn_deg=60.0)).numpy()
        assert np.abs(trajectory.centers - wanted).max() < EXACT


def test_an_index_of_frames_keeps_motion(tmp_path):
    pytest.importorskip("scipy")
    with watched():
        add_to_index(tmp_path / "index", [clips(tmp_path / "clips")], IndexOptions())
        index = HistoryIndex.open(tmp_path / "index")
        assert_same_motion(index.path_of("s", "clip").poses)
        query = QueryPath(poses=far_drive()[:1], lens=LENS, world="earth", traversal="another")
        everything = Search(k=9, max_distance=50.0, max_angle_deg=180.0, min_overlap=0.0, max_per_clip=9)
        hits = index.query(query, everything)[0]
    wanted = seen_from_first(far_drive())
    assert len(hits) == 9
    for hit in hits:
        assert np.abs(np.asarray(hit.offset_query) - wanted[hit.frame].numpy()).max() < EXACT


def test_a_cache_keeps_motion(tmp_path):
    with watched():
        T_world_cam = write_cache(
            tmp_path / "cache", range(1), changes={"T_world_cam": far_drive().T_world_cam}
        )[0].T_world_cam
    assert_same_motion(Poses.from_matrices(T_world_cam))


def test_what_a_model_is_given_is_relative_before_it_is_rounded():
    spec = tiny_spec()
    poses = far_drive(spec.num_frames)
    with watched():
        matrices = latent_matrices([poses], spec)
        signals = latent_rays(matrices, spec)
        assert float(matrices.abs().max()) < 10
        assert torch.isfinite(signals.dirs_cam.float()).all()
    near = latent_matrices([drive(spec.num_frames, length=8.0, turn_deg=60.0)], spec)
    assert (matrices - near).abs().max() < EXACT


# Where low precision is at home in what handles data, and what it holds there: never where something is in a world.
LOW_PRECISION = {
    "caches/cached_clip.py": "latents",
    "datasets/panorama.py": "depth",
    "checks/epipolar.py": "features of pictures",
    "clips/folder.py": "depth",
    "caches/latent_cache.py": "latents",
    "caches/latents.py": "latents",
    "poses/path_ahead.py": "colours",
    "poses/facts.py": "measures what float32 would lose",
    "selection/prototypes/arc_length.py": "paths from their first point",
    "selection/prototypes/clusters.py": "shapes of paths",
    "selection/prototypes/finding.py": "paths from their first point",
    "selection/prototypes/frechet.py": "paths from their first point",
    "selection/prototypes/path_files.py": "files that are float32 themselves, if their steps are fine enough there",
    "selection/prototypes/selection.py": "paths from their first point",
    "selection/prototypes/suppression.py": "boxes around paths from their first point",
    "selection/prototypes/table.py": "paths from their first point",
}


def low_precision(text: str) -> bool:
    """Whether a module makes anything less precise than float64."""
    names = {"float32", "float16", "bfloat16", "half", "single", "Float32", "Float16"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in names:
            return True
        if isinstance(node, ast.Name) and node.id in names - {"half", "single"}:
            return True
        if isinstance(node, ast.Constant) and node.value in {"float32", "float16", "f4", "<f4", "f2", "<f2"}:
            return True
        bare = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args
        if bare and node.func.attr == "float":
            return True
    return False


def test_low_precision_in_data_is_where_it_is_known_to_be():
    root = Path(merope.__file__).parent / "data"
    found = {
        path.relative_to(root).as_posix() for path in root.rglob("*.py") if low_precision(path.read_text())
    }
    assert found == set(LOW_PRECISION), "say what it holds, and that this is no place in a world"
    poses = Path(merope.__file__).parent / "geometry" / "poses.py"
    assert not low_precision(poses.read_text())


@pytest.mark.parametrize(
    "text", ["a.float()", "a.astype(np.float32)", "a.to(torch.half)", 'np.zeros(3, "f4")']
)
def test_low_precision_is_recognised(text):
    assert low_precision(text)
    assert not low_precision("float(a); a.double(); np.float64(1)")
