"""Each estimator's own noise floor: cameras recovered from true frames, scored against the true cameras.

``python -m benchmarks.real_clips --shared DATA --estimator colmap`` from the top of the checkout. ``--sources`` are

  re10k-16, re10k-25   five RealEstate10K clips each, DATA/re10k/cameractrl (frames of 384 x 256 and 576 x 320)
  kitti                the first 51 frames of KITTI odometry 06, DATA/kitti_odom/video; ``--kitti-frames`` takes fewer
  pinhole, fisheye, unified   rendered streets of 512 x 288 through a 70 degree pinhole, a 150 degree Kannala-Brandt
                       fisheye and a 120 degree unified camera; ``--worlds`` clips each
  street               rendered streets of 64 x 40, the small network's own lens and rate

It writes ``NAME.json`` and ``NAME.md`` into ``--out`` and prints the Markdown.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from merope.cameras import CameraModel, KannalaBrandt, Pinhole, UnifiedCamera
from merope.data.datasets import open_dataset
from merope.errors import MeropeError
from merope.evaluation import ClipPair, PoseEstimator, RecoveryFailed, evaluate_clips
from merope.evaluation.estimators import ESTIMATORS, build_estimator
from merope.evaluation.estimators.consistency import check_consistency
from merope.geometry.poses import Poses
from merope.recipes.tiny_street import tiny_street_spec
from merope.worlds import build_world, drive, render
from merope.worlds.drives import random_drive
from merope.worlds.seeds import HELD_OUT_SEED

SIZE = {"height": 288, "width": 512}
RENDERED: dict[str, CameraModel] = {
    "pinhole": Pinhole.from_fov(fov_x_deg=70, **SIZE),
    "fisheye": KannalaBrandt.from_fov(fov_x_deg=150, **SIZE),
    "unified": UnifiedCamera.from_fov(fov_x_deg=120, xi=0.8, **SIZE),
}
# A turn, a curve and a lane change: drives with rotation, in worlds that nothing was trained on.
KINDS = ("turn", "curve", "lane_change")
SOURCES = ("re10k-16", "re10k-25", "kitti", *RENDERED, "street")
METRICS = ("rot_deg", "tr_percent", "auc_3", "auc_10", "cammc")
TITLES = ("rot (deg)", "tr (%)", "AUC@3", "AUC@10", "CamMC")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueClip:
    """Frames whose cameras are known."""

    clip_id: str
    poses: Poses
    lens: CameraModel
    fps: float
    frames: np.ndarray


def clips_of(source: str, *, shared: Path | None, worlds: int, kitti_frames: int) -> Iterator[TrueClip]:
    """The clips of a source, decoded or rendered one at a time."""
    if source in RENDERED or source == "street":
        yield from _rendered(source, worlds)
        return
    if shared is None:
        raise MeropeError(f"source {source!r} is real data; say where it is with --shared.")
    if source == "kitti":
        folder = shared / "kitti_odom" / "video"
        clips = open_dataset(
            "videos",
            folder,
            poses="*_poses_first51.txt",
            videos="*_first51_gray.mp4",
            format="kitti",
            lens="*_calib.txt",
            lens_camera="P0",
        )
    else:
        clips = open_dataset("realestate10k", shared / "re10k" / "cameractrl", unit="unknown")
    for clip in clips:
        if source == "kitti" or clip.clip_id.endswith(f"_{source.removeprefix('re10k-')}f"):
            count = min(len(clip.poses), kitti_frames) if source == "kitti" else len(clip.poses)
            frames = clip.frames(range(count))
            yield TrueClip(
                clip_id=f"{source}/{clip.clip_id}",
                poses=clip.poses[:count],
                lens=clip.lens,
                fps=clip.fps,
                frames=frames,
            )


def _rendered(source: str, worlds: int) -> Iterator[TrueClip]:
    for number in range(worlds):
        seed = HELD_OUT_SEED + 500_000 + number
        if source == "street":
            spec = tiny_street_spec()
            lens, fps, samples = CameraModel.from_dict(spec.camera), spec.fps, 1
            poses = random_drive(seed, spec.num_frames, fps)
        else:
            lens, fps, samples = RENDERED[source], 5.0, 2
            poses = drive(KINDS[number % len(KINDS)], seed=seed, num_frames=9, fps=fps)
        frames = render(build_world(seed, paths=[poses]), lens, poses, samples=samples).rgb
        yield TrueClip(clip_id=f"{source}/{number}", poses=poses, lens=lens, fps=fps, frames=frames)


def measure(
    estimator: PoseEstimator, clips: Iterator[TrueClip], *, second_pass: str | None
) -> dict[str, Any]:
    """Rows of numbers for the clips of one source, and their mean; AUC is pooled over pairs."""
    pairs, rows = [], {}
    for clip in clips:
        row: dict[str, Any] = {"frames": len(clip.frames), "registered": 0}
        recovered = None
        try:
            if second_pass is None:
                recovered = estimator.estimate(clip.frames, clip.lens, fps=clip.fps)
            else:
                checked = check_consistency(
                    estimator, clip.frames, clip.lens, fps=clip.fps, second_pass=second_pass
                )
                recovered = checked.first
                row |= {"self_rot_deg": checked.rot_deg, "self_center_percent": checked.center_percent}
                row |= {"unreliable": checked.unreliable, "reason": checked.reason}
            row |= {"registered": int(recovered.registered.sum()), "notes": list(recovered.notes)}
        except RecoveryFailed as failure:
            row["failed"] = str(failure)
        print(f"{clip.clip_id}: {row['registered']} of {row['frames']} frames", file=sys.stderr)
        pairs.append(ClipPair(clip_id=clip.clip_id, commanded=clip.poses, estimated=recovered))
        rows[clip.clip_id] = row
    done = [pair for pair in pairs if pair.estimated is not None]
    if not done:
        return {"clips": rows, "mean": None}
    result = evaluate_clips(done)
    for scored in result.clips:
        values = {key: scored.all[key].value for key in (*METRICS, "metres_ratio")}
        rows[scored.clip_id] |= values | {"flags": dict(scored.flags)}
    summary = {key: result.summary()[key].metric.value for key in METRICS}
    return {"clips": rows, "mean": summary}


def table(results: dict[str, dict[str, Any]]) -> str:
    """A row for every clip and a bold one for the mean of each source."""
    checked = any("unreliable" in row for found in results.values() for row in found["clips"].values())
    heads = [
        "clip",
        "frames found",
        *TITLES,
        *(["against itself: rot (deg), centres (%)"] if checked else []),
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for source, found in results.items():
        for clip, row in found["clips"].items():
            cells = [
                clip,
                f"{row['registered']} of {row['frames']}",
                *(_cell(row.get(key)) for key in METRICS),
            ]
            if checked:
                mark = " unreliable" if row.get("unreliable") else ""
                cells.append(
                    f"{_cell(row.get('self_rot_deg'))}, {_cell(row.get('self_center_percent'))}{mark}"
                )
            lines.append("| " + " | ".join(cells) + " |")
        if found["mean"] is not None:
            count = sum("failed" not in row for row in found["clips"].values())
            cells = [f"**{source}**", f"{count} of {len(found['clips'])} clips"]
            cells += [_cell(found["mean"][key]) for key in METRICS] + [""] * checked
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, help="folder that holds re10k and kitti_odom")
    parser.add_argument("--estimator", default="colmap", choices=list(ESTIMATORS))
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="an option")
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--worlds", type=int, default=3, help="rendered clips of each lens")
    parser.add_argument("--kitti-frames", type=int, default=51)
    parser.add_argument(
        "--second-pass", choices=("reversed", "every_second"), help="recover twice and compare"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/real-clips"))
    given = parser.parse_args()
    estimator = build_estimator(
        given.estimator, weights=given.weights, device=given.device, options=given.set
    )
    results = {}
    for source in given.sources:
        clips = clips_of(source, shared=given.shared, worlds=given.worlds, kitti_frames=given.kitti_frames)
        results[source] = measure(estimator, clips, second_pass=given.second_pass)
    text = table(results)
    given.out.mkdir(parents=True, exist_ok=True)
    document = {"estimator": estimator.identity(), "results": results}
    (given.out / f"{given.estimator}.json").write_text(json.dumps(document, indent=1))
    (given.out / f"{given.estimator}.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
