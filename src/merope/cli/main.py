"""The entry point ``merope``: finds the command, parses its flags, turns known errors into one plain line.

Exit codes: 0 done, 1 the command failed, 2 the command line was wrong, 130 interrupted.
"""

import difflib
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import merope
from merope.cli.extras import EXTRA_OF
from merope.cli.usage import UsageError
from merope.errors import MeropeError, MissingDependency

PACKAGE_FOLDER = Path(merope.__file__).resolve().parent
TRACEBACK_VARIABLE = "MEROPE_TRACEBACK"
_NOT_OPENED = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand, named but not imported."""

    module: str
    """Full name of the module; its imports at the top must be light."""
    function: str
    """The function in it: keyword arguments become flags, its docstring the help; returns None or an exit code."""
    summary: str
    """One line for ``merope --help``."""

    def load(self) -> Callable[..., int | None]:
        """Import the module and return the function."""
        return getattr(importlib.import_module(self.module), self.function)


@dataclass(frozen=True, slots=True)
class Group:
    """Several commands under one word, each with a ``--help`` of its own."""

    summary: str
    """One line for ``merope --help``."""
    commands: Mapping[str, "Command | Group"]
    """The commands, or further groups, by the word that follows the group's."""


COMMANDS: dict[str, Command | Group] = {
    "demo": Command(
        "merope.cli.demo", "demo", "generate a video along a commanded drive, recover its path, score it"
    ),
    "generate": Command(
        "merope.cli.generate",
        "generate",
        "make videos along trajectories with a pretrained Wan and its adapter",
    ),
    "evaluate": Command(
        "merope.cli.evaluate",
        "evaluate",
        "score estimated poses, or the cameras in generated clips, against the command",
    ),
    "fidelity": Command(
        "merope.cli.fidelity", "fidelity", "FID, KID, FVD and KVD of generated clips against real ones"
    ),
    "compare": Command(
        "merope.cli.compare",
        "compare",
        "hold two evaluated runs against each other, clip by clip: differences, intervals, sign test",
    ),
    "overlay": Command("merope.cli.overlay", "overlay", "draw a camera's path on a video"),
    "train": Group(
        "train a model; every command goes on where an earlier run stopped",
        {
            "tiny-street": Command(
                "merope.cli.train", "tiny_street", "the small preset: a video model of rendered streets"
            ),
            "tiny-street-estimator": Command(
                "merope.cli.train",
                "tiny_street_estimator",
                "the network that reads camera motion off its frames",
            ),
            "finetune": Command(
                "merope.cli.finetune", "finetune", "cameras for a pretrained Wan, on one GPU or many"
            ),
            "recipes": Command(
                "merope.cli.finetune", "recipes", "what finetune can train: the rows of the paper's tables"
            ),
        },
    ),
    "benchmark": Group(
        "evaluations that have a name: their protocol, their clips, and the shipped models on held-out worlds",
        {
            "list": Command("merope.cli.benchmark.listing", "list_benchmarks", "the named benchmarks"),
            "show": Command(
                "merope.cli.benchmark.listing",
                "show",
                "the protocol of one in words, the commands to its table, the paper's numbers",
            ),
            "clips": Command(
                "merope.cli.benchmark.listing",
                "clips",
                "the clips of a complete run with digests of their commands, as a file that stands for the split",
            ),
            "cases": Command(
                "merope.cli.benchmark.cases", "cases", "the manifest that generates a benchmark's videos"
            ),
            "held-out": Command(
                "merope.cli.benchmark.held_out",
                "held_out",
                "measure the shipped models on worlds that they never saw (worlds-N)",
            ),
            "metres": Command(
                "merope.cli.benchmark.metres",
                "metres",
                "measure whether the shipped models drive as many metres as commanded",
            ),
        },
    ),
    "adapter": Group(
        "look at camera adapters",
        {
            "info": Command(
                "merope.cli.adapter",
                "info",
                "what an adapter file holds, and whether it has learned anything",
            ),
        },
    ),
    "encodings": Command(
        "merope.cli.encodings", "encodings", "list the camera encodings: what they claim, need and cost"
    ),
    "diagnose": Group(
        "measure what an encoding is claimed to do",
        {
            "claims": Command(
                "merope.cli.diagnose.claims",
                "claims",
                "measure Table 1: relative and metric, per token, norms kept",
            ),
            "operator": Command(
                "merope.cli.diagnose.operator",
                "operator",
                "draw the geometry and the matrix of one pair of tokens",
            ),
            "trilemma": Command(
                "merope.cli.diagnose.trilemma", "trilemma", "Theorem 1 in numbers: what each property costs"
            ),
            "attention-mass": Command(
                "merope.cli.diagnose.attention_mass",
                "attention_mass",
                "where attention goes as the baseline grows (Figure 1)",
            ),
            "residuals": Command(
                "merope.cli.diagnose.residuals",
                "residuals",
                "how much each block's camera branch adds while sampling (Figure 7)",
            ),
        },
    ),
    "poses": Group(
        "files of camera poses: what they are, other formats and conventions, how they look; and made ones",
        {
            "inspect": Command(
                "merope.cli.poses.inspect",
                "inspect",
                "say what a pose file is: format, convention, unit, motion, and what is wrong with it",
            ),
            "convert": Command(
                "merope.cli.poses.convert", "convert", "write poses in another format or convention"
            ),
            "plot": Command("merope.cli.poses.plot", "plot", "draw paths from above, their height and speed"),
            "make": Group(
                "camera moves by name",
                {
                    word: Command("merope.cli.poses.make", word.replace("-", "_"), summary)
                    for word, summary in {
                        "straight": "drive straight ahead, backwards, or stand still",
                        "arc": "drive along a circle",
                        "lane-change": "drive into the next lane",
                        "u-turn": "drive ahead, along half a circle, and back",
                        "orbit": "go around a subject, looking at it",
                        "dolly-zoom": "approach a subject while the lens zooms out, with the lens of every frame",
                        "pan": "turn to the side on the spot",
                        "tilt": "turn up or down on the spot",
                        "truck": "move sideways",
                        "pedestal": "rise straight up",
                        "crane": "rise, looking at a subject",
                    }.items()
                },
            ),
            "keyframes": Command(
                "merope.cli.poses.keyframes", "keyframes", "make a path through a few poses"
            ),
            "turn": Command("merope.cli.poses.turn", "turn", "bend a drive to the left and to the right"),
            "resample": Command(
                "merope.cli.poses.resample",
                "resample",
                "write poses at another rate, or another number of them",
            ),
            "agree": Command(
                "merope.cli.poses.agree", "agree", "measure whether poses and a video belong together"
            ),
        },
    ),
    "lens": Group(
        "lenses in calibration files",
        {
            "info": Command(
                "merope.cli.lens.info", "info", "model, parameters, fields of view, which pixels have a ray"
            ),
            "rays": Command("merope.cli.lens.rays", "rays", "the rays of pixels, as CSV"),
            "compare": Command(
                "merope.cli.lens.compare", "compare", "how far apart the rays of two lenses are"
            ),
        },
    ),
    "data": Group(
        "prepare clips for training",
        {
            "readers": Command(
                "merope.cli.data.readers",
                "readers",
                "list the data sets that can be read, what each expects on disk, and its options",
            ),
            "convert": Command(
                "merope.cli.data.convert",
                "convert",
                "write the clips of any data set as a plain folder of clips",
            ),
            "encode": Command(
                "merope.cli.data.encode",
                "encode",
                "encode clips and captions once, into a cache that training reads",
            ),
            "check": Command(
                "merope.cli.data.check",
                "check",
                "say which clips are missing, damaged, doubled or badly annotated, and write a split of the others",
            ),
            "scale": Command(
                "merope.cli.data.scale",
                "scale",
                "the translation scale of a training set and how its cameras move, stored with its split or cache",
            ),
            "prototypes": Command(
                "merope.cli.data.prototypes",
                "prototypes",
                "the motions that stand for all clips, and a split with the cluster of each",
            ),
            "select": Command(
                "merope.cli.data.select",
                "select",
                "pick the trajectories that stand for a data set in an evaluation, and their turns",
            ),
            "motions": Command(
                "merope.cli.data.motions",
                "motions",
                "draw what cameras do, from above and by source (Figure 4)",
            ),
        },
    ),
    "history": Group(
        "images of other traversals near a pose",
        {
            "index": Command(
                "merope.cli.history.index",
                "index",
                "index the poses of clips by place, world and drive; no frame is decoded",
            ),
            "query": Command(
                "merope.cli.history.query",
                "query",
                "find the frames that saw what a camera on a path sees, or donors beside the path",
            ),
        },
    ),
    "worlds": Group(
        "procedural streets",
        {
            "render": Command(
                "merope.cli.worlds.render",
                "render",
                "render posed clips with captions, and depth where asked, in any number of processes",
            ),
        },
    ),
    "info": Command("merope.cli.info", "info", "versions, devices and optional packages, for a bug report"),
}


def available() -> dict[str, Command | Group]:
    """The commands whose module is part of this installation."""
    return installed(COMMANDS)


def installed(commands: Mapping[str, Command | Group]) -> dict[str, Command | Group]:
    """Of these commands those that are there; a group is there if one of its commands is."""
    found: dict[str, Command | Group] = {}
    for name, command in commands.items():
        if isinstance(command, Group):
            if inner := installed(command.commands):
                found[name] = Group(command.summary, inner)
        elif find_spec(command.module) is not None:
            found[name] = command
    return found


def single_commands(commands: Mapping[str, Command | Group]) -> dict[str, Command]:
    """Every command by all its words, groups opened: "diagnose claims"."""
    found: dict[str, Command] = {}
    for name, command in commands.items():
        if isinstance(command, Group):
            inside = single_commands(command.commands)
            found.update({f"{name} {words}": inner for words, inner in inside.items()})
        else:
            found[name] = command
    return found


def listing(commands: Mapping[str, Command | Group]) -> str:
    """One line per command, for the texts of ``--help``."""
    width = max(len(name) for name in commands)
    return "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in commands.items())


def overview() -> str:
    """The text of ``merope --help``."""
    return (
        "usage: merope COMMAND [options]\n\n"
        "Generate video that follows a metric camera trajectory, and measure how well it does.\n\n"
        f"commands:\n{listing(available())}\n\n"
        "options:\n"
        "  -h, --help     this text; `merope COMMAND --help` lists the options of one command\n"
        "  --version      the version\n\n"
        "first steps:\n"
        "  merope demo\n"
        "  merope poses inspect poses/00.txt\n"
        "  merope demo --trajectory poses/00.txt --format kitti --start 1000\n"
        "  merope generate MODEL --adapter FILE --manifest cases.json --out clips\n"
        "  merope evaluate clips\n"
        "  merope evaluate --commanded true.txt --estimated mine.txt --format kitti\n\n"
        f"A failed command prints one line; {TRACEBACK_VARIABLE}=1 shows where it came from."
    )


def group_overview(prog: str, group: Group) -> str:
    """The text of ``--help`` of a group."""
    return (
        f"usage: {prog} COMMAND [options]\n\n{group.summary[0].upper()}{group.summary[1:]}.\n\n"
        f"commands:\n{listing(group.commands)}\n\n"
        f"options:\n  -h, --help     this text; `{prog} COMMAND --help` lists the options of one command"
    )


def is_known(error: BaseException) -> bool:
    """Whether the message alone tells the user what to mend.

    That holds for the library's own family, for a file that cannot be opened, for an optional package that
    is not installed, and for a wrong argument that this library itself refused. A ValueError or TypeError
    from inside another package is a defect.
    """
    if isinstance(error, MeropeError):
        return True
    if isinstance(error, _NOT_OPENED):
        return True
    if isinstance(error, ModuleNotFoundError):
        return error.name in EXTRA_OF
    if not isinstance(error, ValueError | TypeError):
        return False
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(files) and Path(files[-1]).resolve().is_relative_to(PACKAGE_FOLDER)


def usage_error(message: str, *, prog: str, text: str) -> int:
    """Report a wrong command line; the exit code."""
    print(f"{prog}: {message}\n\n{text}", file=sys.stderr)
    return 2


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; unknown errors pass through."""
    if arguments and arguments[0] in ("--version", "-V"):
        print(f"merope {merope.__version__}")
        return 0
    return run_one_of(available(), arguments, prog="merope", text=overview())


def run_one_of(
    commands: Mapping[str, Command | Group], arguments: Sequence[str], *, prog: str, text: str
) -> int:
    """Run the command that the first argument names; ``text`` is the help of what comes before it."""
    if not arguments:
        return usage_error("no command given", prog=prog, text=text)
    name, rest = arguments[0], list(arguments[1:])
    if name in ("-h", "--help", "help"):
        print(text)
        return 0
    if name not in commands:
        close = difflib.get_close_matches(name, commands, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        return usage_error(f"unknown command '{name}'{hint}", prog=prog, text=text)
    command, prog = commands[name], f"{prog} {name}"
    if isinstance(command, Group):
        return run_one_of(command.commands, rest, prog=prog, text=group_overview(prog, command))

    import tyro

    try:
        # Not both --json and --no-json: only the one that changes something.
        outcome = tyro.cli(command.load(), prog=prog, args=rest, config=(tyro.conf.FlagCreatePairsOff,))
    except UsageError as error:
        return usage_error(str(error), prog=prog, text=f"`{prog} --help` lists the options.")
    except Exception as error:
        if not is_known(error) or os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0"):
            raise
        print(f"{prog}: {plain_message(error)}", file=sys.stderr)
        return 1
    return outcome or 0


def plain_message(error: BaseException) -> str:
    """The text of an error for a reader who never sees the class name."""
    if isinstance(error, OSError) and error.filename is not None:
        reason = error.strerror or "cannot be opened"
        return f"{error.filename}: {reason[:1].lower()}{reason[1:]}"
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        return str(
            MissingDependency.for_extra(error.name, extra=EXTRA_OF[error.name], purpose="this command")
        )
    return str(error)


def _plain_warnings() -> None:
    """Print this library's own warnings as a line of text; those of others keep their place in the source."""
    usual = warnings.showwarning

    def show(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if category.__module__.split(".")[0] == "merope":
            print(f"\nmerope: {message}", file=sys.stderr)
        else:
            usual(message, category, filename, lineno, file, line)

    warnings.showwarning = show


def main() -> None:
    """Console entry point."""
    _plain_warnings()
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        # The reader of a pipe (head, less) left; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
