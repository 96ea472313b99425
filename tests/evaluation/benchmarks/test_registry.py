"""Benchmarks are found by name, and say what the paper and the recipes say."""

import re
import subprocess
import sys

import pytest

from merope.evaluation.benchmarks.published import published_rows, published_tables
from merope.evaluation.benchmarks.registry import BENCHMARKS, find_benchmark
from merope.evaluation.estimators.registry import ESTIMATORS
from merope.evaluation.protocol import SPECS
from merope.recipes.published import PAPER_DRIVING_SIZES
from merope.recipes.wan import RECIPES
from tests.support.shared import shared_file


def test_the_sizes_are_those_of_the_recipes():
    driving = find_benchmark("nuscenes-384")
    assert {key: getattr(driving, key) for key in PAPER_DRIVING_SIZES} == dict(PAPER_DRIVING_SIZES)
    for recipe, name in (
        ("nuscenes-merope", "nuscenes-384"),
        ("panshot-merope", "panshot-272"),
        ("panshot-merope-metres", "panshot-272-metres"),
    ):
        config, benchmark = RECIPES[recipe](), find_benchmark(name)
        for key in ("num_frames", "prefix_frames", "fps", "height", "width"):
            assert getattr(config.spec, key) == getattr(benchmark, key), (name, key)


def test_every_benchmark_names_what_there_is():
    for benchmark in BENCHMARKS.values():
        assert benchmark.estimator in ESTIMATORS
        assert set(benchmark.metrics) <= set(SPECS)
        assert benchmark.num_clips % len(benchmark.variants) == 0
        assert benchmark.first_generated == (benchmark.prefix_frames or None)
    assert {name: each.num_clips for name, each in BENCHMARKS.items()} == {
        "nuscenes-384": 384,
        "panshot-272": 272,
        "panshot-272-metres": 272,
        "worlds-64": 192,
        "worlds-64-kitti": 192,
    }


def test_the_protocol_in_words_names_what_it_fixes():
    words = find_benchmark("nuscenes-384").describe()
    for part in (
        "128 x original, left, right",
        "49 at 12 Hz, 9 of them given",
        "288 x 512",
        "vggt-omega",
        "s*",
    ):
        assert part in words
    assert "rot, tr, AUC@3, AUC@10, CamMC" in words
    assert "RotErr, TransErr, CamMC" in find_benchmark("panshot-272").describe()


def test_any_number_of_worlds_is_a_benchmark():
    assert find_benchmark("worlds-7").num_clips == 21
    assert (
        find_benchmark("worlds-7-kitti").steps[0].startswith("merope benchmark held-out --worlds 7 --kitti")
    )
    for name in ("worlds-0", "worlds-", "worlds--1"):
        with pytest.raises(ValueError, match="no benchmark"):
            find_benchmark(name)


def test_asking_for_a_protocol_or_its_commands_loads_no_video_model():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from merope.evaluation.benchmarks.registry import find_benchmark\n"
            "assert len(find_benchmark('worlds-1').expected()) == 3\n"
            "print(sorted({'diffusers', 'merope.adapters', 'matplotlib', 'cv2'} & set(sys.modules)))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_what_a_user_brings_stands_in_the_commands():
    for benchmark in BENCHMARKS.values():
        assert all(any(word in step for step in benchmark.steps) for word in benchmark.yours), benchmark.name
    assert set(find_benchmark("nuscenes-384").yours) == {"data/nuscenes", "run/model", "vggt-omega.pt"}


def test_an_unknown_name_gives_the_closest():
    with pytest.raises(ValueError, match="did you mean 'nuscenes-384'"):
        find_benchmark("nuscene384")
    with pytest.raises(ValueError, match="did you mean 'panshot-272'"):
        find_benchmark("Panshot272")


def test_published_numbers_stand_in_the_paper():
    paper = shared_file("paper.md").read_text(encoding="utf-8")
    text = re.sub(r"\\(mathbf|underline)\{([0-9.]+)\}", r"\2", paper).replace("$", "")
    for name in BENCHMARKS:
        for table in published_tables(name):
            for label, values in table.rows.items():
                printed = r"\s+".join(re.escape(f"{value:.2f}") for value in values.values())
                assert re.search(printed, text), (table.source, label)


def test_published_rows_are_those_of_the_main_table():
    rows = published_rows("nuscenes-384")
    assert len(rows) == 9
    assert rows["MeRoPE"]["cammc"] == 2.32 and rows["MeRoPE"]["fvd"] == 134.15
    # Ordered by CamMC from the highest to the lowest, as the paper says.
    cammc = [row["cammc"] for row in rows.values()]
    assert cammc == sorted(cammc, reverse=True)
    assert published_rows("panshot-272")["MeRoPE"] == {
        "rot_err_rad": 4.57,
        "trans_err": 10.99,
        "cammc": 13.88,
    }
    assert published_rows("panshot-272-metres")["UCPE"]["rot_err_rad"] == 4.40
    assert published_rows("worlds-8") == {}
