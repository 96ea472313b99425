"""The benchmarks by name: the paper's two, PanShot in its two settings, and the project's own held-out worlds."""

import difflib
import re
from dataclasses import replace

from merope.evaluation.benchmarks.benchmark import Benchmark
from merope.evaluation.benchmarks.split_files import expected_of_split
from merope.evaluation.benchmarks.worlds import VARIANTS, expected_worlds, shipped_estimator_sha256

_DRIVING_COLUMNS = ("rot_deg", "tr_percent", "auc_3", "auc_10", "cammc")
_DRIVING_SCALE = (
    "tr after the least-squares scale s* (Eq. 37); CamMC after dividing each path by its largest distance from the first "
    "frame (Eq. 38); rot and AUC know no scale"
)
_MODEL = (
    "a trained adapter (`merope train finetune`); videos of each model go to a folder of their own, and `merope evaluate` "
    "takes several"
)
_WEIGHTS = "weights of VGGT-Omega, docs/estimators.md; --floor measures its own error on true frames"
_WORST = "a clip without a recovered camera counts as the worst possible answer; none is left out"

NUSCENES_384 = Benchmark(
    name="nuscenes-384",
    title="camera control on nuScenes, 128 drives and their turns",
    source="the paper's driving benchmark, Sections 4.1 and 4.2 and Appendix B.2; Tables 2, 3, 5 and 7",
    num_clips=384,
    variants=VARIANTS,
    num_frames=49,
    prefix_frames=9,
    fps=12.0,
    height=288,
    width=512,
    unit="m",
    lens="each clip's own pinhole",
    estimator="vggt-omega",
    metrics=_DRIVING_COLUMNS,
    averages=(
        "rot, tr and CamMC: equal mean over the 384 clips (tr: over those whose command has a chord); AUC: pooled over all "
        "pairs of frames within clips; all frames of a clip count, the given ones included"
    ),
    scale=_DRIVING_SCALE,
    on_failure=_WORST,
    fidelity="`merope fidelity --preset nuscenes-512`, of 512 other clips",
    split=(
        "the folder that `merope data select --count 128` writes (split.json and poses/), or a list of 384 clips with "
        "digests of their commands (`merope benchmark clips`)"
    ),
    open_points=(
        "the paper's 128 drives are not published, so the split is your own: numbers compare with others of the same split, "
        "and with the paper's as far as the drives are alike. Frame rate (12 Hz, nuScenes' own), how drives are chosen, how "
        "turns are made and how failures count are this project's choices"
    ),
    steps=(
        "merope data convert data/nuscenes --reader nuscenes --option version=v1.0-trainval --option scenes=splits.json "
        "--option split=val --frames 49 --fps 12 --interpolate-poses --height 288 --width 512 --out clips/val",
        "merope data convert data/nuscenes --reader nuscenes --option version=v1.0-test --frames 49 --fps 12 "
        "--interpolate-poses --height 288 --width 512 --out clips/test",
        "merope data select clips/val clips/test --whole --count 128 --out evaluation",
        "merope benchmark cases nuscenes-384 --split evaluation --clips clips/val clips/test --out cases.jsonl",
        "merope generate Wan-AI/Wan2.2-TI2V-5B-Diffusers --adapter run/model --manifest cases.jsonl --out videos/merope",
        "merope evaluate videos/merope --estimator vggt-omega --weights vggt-omega.pt --device cuda --floor clips/val "
        "--benchmark nuscenes-384 --split evaluation --out report",
    ),
    yours={
        "data/nuscenes": "nuScenes' files; in it splits.json, a JSON object with the names of the scenes of val",
        "run/model": _MODEL,
        "vggt-omega.pt": _WEIGHTS,
    },
    expect=expected_of_split,
)

PANSHOT_272 = Benchmark(
    name="panshot-272",
    title="camera control on PanShot's lenses, near-depth normalisation on",
    source="the paper's camera-diverse benchmark, Section 4.3 and Appendix B.2; Table 4 (a)",
    num_clips=272,
    variants=("original",),
    num_frames=81,
    prefix_frames=0,
    fps=16.0,
    height=480,
    width=832,
    unit="normalized",
    lens="each clip's own of the unified model, from pinhole to fisheye",
    estimator="vggt-omega",
    metrics=("rot_err_rad", "trans_err", "cammc"),
    averages="equal mean over the 272 clips; sums over all frames of a clip",
    scale=(
        "TransErr and CamMC after dividing each path by its largest distance from the first frame (Eq. 38); RotErr knows no "
        "scale. s* (Eq. 37) is not used"
    ),
    on_failure=_WORST,
    fidelity=None,
    split=(
        "a folder of the 272 clips as `merope data convert` writes it, or a list of them with digests of their commands "
        "(`merope benchmark clips`); which 272, the official jitter-filtered test list says; it is not part of this project"
    ),
    open_points=(
        "frames, rate and size are those of UCPE's release, which the paper's protocol follows; how failures count is this "
        "project's choice"
    ),
    steps=(
        "merope data convert data/panshot --reader panshot --option shots=shots.json --option clips=test.txt "
        "--out clips/panshot",
        "merope benchmark cases panshot-272 --split clips/panshot --clips clips/panshot --out cases.jsonl",
        "merope generate Wan-AI/Wan2.1-T2V-1.3B-Diffusers --adapter run/model --manifest cases.jsonl --out videos/merope",
        "merope evaluate videos/merope --estimator vggt-omega --weights vggt-omega.pt --device cuda --floor clips/panshot "
        "--benchmark panshot-272 --split clips/panshot --out report",
    ),
    yours={
        "data/panshot": (
            "PanShot's files; in it test.txt, the 272 names of the official list, one a line, and shots.json, lenses and "
            "captions (docs/data.md)"
        ),
        "run/model": _MODEL,
        "vggt-omega.pt": _WEIGHTS,
    },
    expect=expected_of_split,
)

PANSHOT_272_METRES = replace(
    PANSHOT_272,
    name="panshot-272-metres",
    title="camera control on PanShot's lenses, near-depth normalisation off",
    source="the paper's camera-diverse benchmark, Section 4.3 and Appendix B.2; Table 4 (b)",
    unit="m",
    assumed_unit="m",
    open_points=(
        PANSHOT_272.open_points
        + ". PanShot's files do not say their unit; as in the paper, raw displacements count as metres"
    ),
    steps=tuple(
        step.replace("clips/panshot", "clips/panshot-metres")
        .replace("panshot-272", "panshot-272-metres")
        .replace("--option clips", "--option normalize=no --option clips")
        for step in PANSHOT_272.steps
    ),
)

_WORLDS = Benchmark(
    name="worlds-64",
    title="the small preset on 64 procedural streets that no model has seen, three drives each",
    source="this project, docs/reproduce.md",
    num_clips=192,
    variants=VARIANTS,
    num_frames=25,
    prefix_frames=9,
    fps=10.0,
    height=40,
    width=64,
    unit="m",
    lens="a pinhole of 90 degrees",
    estimator="network",
    metrics=_DRIVING_COLUMNS,
    averages="as nuscenes-384: equal mean over clips, AUC pooled over all pairs within clips, all frames count",
    scale=_DRIVING_SCALE,
    on_failure="the network always answers; a clip without an answer would count as the worst possible one",
    fidelity=None,
    split="none: worlds and commands follow from the number",
    open_points="nothing; the estimator is the shipped network, whose noise floor is measured beside every run",
    steps=("merope benchmark held-out --worlds 64 --output out/held-out",),
    expect=expected_worlds,
    estimator_sha256=shipped_estimator_sha256,
)

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        NUSCENES_384,
        PANSHOT_272,
        PANSHOT_272_METRES,
        _WORLDS,
        replace(
            _WORLDS,
            name="worlds-64-kitti",
            title="the small preset on 64 procedural streets, every second one driven along KITTI; three drives each",
            split="the folder of KITTI odometry poses (00.txt, 04.txt, 06.txt and 09.txt)",
            steps=("merope benchmark held-out --worlds 64 --kitti poses --output out/held-out",),
            yours={"poses": "the folder of KITTI odometry poses"},
        ),
    )
}
"""The benchmarks that are listed; `find_benchmark` knows worlds-N for any number of worlds."""


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of that name: one of `BENCHMARKS`, or worlds-N and worlds-N-kitti for any N.

    Raises:
        ValueError: if there is none; the closest name is said.
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    if match := re.fullmatch(r"worlds-([1-9][0-9]{0,4})(-kitti)?", name):
        count, model = match[1], BENCHMARKS[f"worlds-64{match[2] or ''}"]
        return replace(
            model,
            name=name,
            title=model.title.replace("64", count),
            num_clips=int(count) * len(VARIANTS),
            steps=tuple(step.replace("--worlds 64", f"--worlds {count}") for step in model.steps),
        )
    names = [*BENCHMARKS, "worlds-N"]
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(
        f"there is no benchmark {name!r}{hint} There are {', '.join(BENCHMARKS)}, and worlds-N for any number N of worlds "
        "up to 99999."
    )
