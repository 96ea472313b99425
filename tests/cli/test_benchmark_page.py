"""docs/benchmarks.md: every command line is one that the program takes, and those of the protocol are printed by it."""

import functools
import shlex

import pytest
import tyro

from merope.cli.main import COMMANDS, Group
from merope.evaluation.benchmarks.registry import BENCHMARKS
from tests.support.shared import REPOSITORY

PAGE = (REPOSITORY / "docs" / "benchmarks.md").read_text(encoding="utf-8")
LINES = [
    line for block in PAGE.split("```\n")[1::2] for line in block.splitlines() if line.startswith("merope ")
]
STEPS = [step for benchmark in BENCHMARKS.values() for step in benchmark.steps]


def parsed(line):
    """The arguments that a command line gives its function, which is not called."""
    words = shlex.split(line)[1:]
    command = COMMANDS[words.pop(0)]
    while isinstance(command, Group):
        command = command.commands[words.pop(0)]
    function = command.load()

    @functools.wraps(function)
    def note(*args, **kwargs):
        return args, kwargs

    return tyro.cli(note, args=words, config=(tyro.conf.FlagCreatePairsOff,))


@pytest.mark.parametrize("line", sorted({*LINES, *STEPS}))
def test_a_command_line_is_taken(line):
    assert parsed(line)


def test_a_wrong_flag_would_be_seen():
    with pytest.raises(SystemExit):
        parsed("merope benchmark cases nuscenes-384 --splits evaluation --clips clips/val --out cases.jsonl")


def test_the_page_has_the_steps_that_show_prints():
    for name in ("nuscenes-384", "panshot-272", "worlds-64", "worlds-64-kitti"):
        for step in BENCHMARKS[name].steps:
            assert step in LINES, step


def test_the_page_names_every_benchmark():
    assert all(f"`{name}`" in PAGE for name in BENCHMARKS if name not in ("worlds-64",))
