"""The entry point ``merope``: finds the command, parses its flags, turns known errors into one plain line.

Exit codes: 0 done, 1 the command failed, 2 the command line was wrong, 130 interrupted.
"""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import merope
from merope.cli.extras import EXTRA_OF
from merope.errors import MeropeError, MissingDependency

PACKAGE_FOLDER = Path(merope.__file__).resolve().parent
TRACEBACK_VARIABLE = "MEROPE_TRACEBACK"


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


COMMANDS = {
    "demo": Command(
        "merope.cli.demo", "demo", "generate a video along a commanded drive, recover its path, score it"
    ),
    "evaluate": Command(
        "merope.cli.evaluate", "evaluate", "score one file of estimated poses against the commanded ones"
    ),
    "train": Command("merope.cli.train", "train", "train a preset; resumes where an earlier run stopped"),
    "benchmark": Command(
        "merope.cli.benchmark", "benchmark", "measure the shipped models on held-out worlds"
    ),
    "info": Command("merope.cli.info", "info", "versions, devices and optional packages, for a bug report"),
}


def available() -> dict[str, Command]:
    """The commands whose module is part of this installation."""
    return {name: command for name, command in COMMANDS.items() if find_spec(command.module) is not None}


def overview() -> str:
    """The text of ``merope --help``."""
    commands = available()
    width = max(len(name) for name in commands)
    rows = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in commands.items())
    return (
        "usage: merope COMMAND [options]\n\n"
        "Generate video that follows a metric camera trajectory, and measure how well it does.\n\n"
        f"commands:\n{rows}\n\n"
        "options:\n"
        "  -h, --help     this text; `merope COMMAND --help` lists the options of one command\n"
        "  --version      the version\n\n"
        "first steps:\n"
        "  merope demo\n"
        "  merope demo --trajectory poses/00.txt --format kitti --start 1000\n"
        "  merope evaluate --commanded true.txt --estimated mine.txt --format kitti\n\n"
        f"A failed command prints one line; {TRACEBACK_VARIABLE}=1 shows where it came from."
    )


def is_known(error: BaseException) -> bool:
    """Whether the message alone tells the user what to mend.

    That holds for the library's own family, for a file that cannot be opened, for an optional package that
    is not installed, and for a wrong argument that this library itself refused. A ValueError or TypeError
    from inside another package is a defect.
    """
    if isinstance(error, MeropeError):
        return True
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError):
        return True
    if isinstance(error, ModuleNotFoundError):
        return error.name in EXTRA_OF
    if not isinstance(error, ValueError | TypeError):
        return False
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(files) and Path(files[-1]).resolve().is_relative_to(PACKAGE_FOLDER)


def usage_error(message: str) -> int:
    """Report a wrong command line; the exit code."""
    print(f"merope: {message}\n\n{overview()}", file=sys.stderr)
    return 2


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; unknown errors pass through."""
    if not arguments:
        return usage_error("no command given")
    name, rest = arguments[0], list(arguments[1:])
    if name in ("-h", "--help", "help"):
        print(overview())
        return 0
    if name in ("--version", "-V"):
        print(f"merope {merope.__version__}")
        return 0
    commands = available()
    if name not in commands:
        close = difflib.get_close_matches(name, commands, n=1)
        return usage_error(f"unknown command '{name}'" + (f"; did you mean '{close[0]}'?" if close else ""))

    import tyro

    try:
        command = commands[name].load()
        # Not both --json and --no-json: only the one that changes something.
        outcome = tyro.cli(command, prog=f"merope {name}", args=rest, config=(tyro.conf.FlagCreatePairsOff,))
    except Exception as error:
        if not is_known(error) or os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0"):
            raise
        print(f"merope {name}: {plain_message(error)}", file=sys.stderr)
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


def main() -> None:
    """Console entry point."""
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
