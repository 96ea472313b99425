"""The dispatcher: what is known is printed plainly, what is unknown keeps its traceback."""

import subprocess
import sys
import types

import pytest

from merope.cli import main as entry
from merope.errors import MissingDependency, TrajectoryError
from tests.support.fresh_python import run_python


def our_value_error() -> None:
    """Fail with the library's own message."""
    entry_module_raise("frames must be 4k + 1, got 50; take 49 or 53")


def entry_module_raise(message: str) -> None:
    # Compiled under a file name inside the package, which is what makes a ValueError one of ours.
    code = compile("raise ValueError(message)", str(entry.PACKAGE_FOLDER / "data" / "video.py"), "exec")
    exec(code, {"message": message})


def foreign_value_error() -> None:
    """Fail deep inside another package."""
    int("no number")


def trajectory_error() -> None:
    """Fail because of a file's contents."""
    raise TrajectoryError("the trajectory has 12 poses, the preset needs 17; pass a longer file")


def missing_file() -> None:
    """Fail because of a path."""
    with open("no/such/poses.txt", encoding="utf-8"):
        pass


def missing_package() -> None:
    """Fail because an optional package is not there."""
    raise ModuleNotFoundError("No module named 'pycolmap'", name="pycolmap")


def broken_install() -> None:
    """Fail because a package that must be there is not."""
    raise ModuleNotFoundError("No module named 'torch'", name="torch")


def counted(*, times: int = 1, json: bool = False) -> int:
    """Return a number.

    Args:
        times: what to return.
        json: for machines.
    """
    return times


@pytest.fixture
def commands(monkeypatch):
    """Commands of this file in place of the real ones."""
    module = types.ModuleType("fake_commands")
    names = ["our_value_error", "foreign_value_error", "trajectory_error", "missing_file", "counted"]
    names += ["missing_package", "broken_install"]
    for name in names:
        setattr(module, name, globals()[name])
    monkeypatch.setitem(sys.modules, "fake_commands", module)
    table = {name.replace("_", "-"): entry.Command("fake_commands", name, name) for name in names}
    monkeypatch.setattr(entry, "available", lambda: table)


def test_trajectory_error_prints_one_plain_line(commands, capsys):
    assert entry.run(["trajectory-error"]) == 1
    output = capsys.readouterr()
    assert (
        output.err
        == "merope trajectory-error: the trajectory has 12 poses, the preset needs 17; pass a longer file\n"
    )
    assert output.out == ""


def test_our_value_error_prints_plainly(commands, capsys):
    assert entry.run(["our-value-error"]) == 1
    assert "take 49 or 53" in capsys.readouterr().err


def test_missing_file_is_named(commands, capsys):
    assert entry.run(["missing-file"]) == 1
    assert capsys.readouterr().err == "merope missing-file: no/such/poses.txt: no such file or directory\n"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "Permission denied by NFS", "a.txt"), "a.txt: permission denied by NFS"),
        (IsADirectoryError(21, "Ist ein Verzeichnis", "B"), "B: ist ein Verzeichnis"),
        (FileExistsError(17, "File exists", "out"), "out: file exists"),
        (FileNotFoundError(2, None, "c"), "c: cannot be opened"),
    ],
)
def test_the_systems_own_words_lose_only_their_first_capital(error, text):
    assert entry.plain_message(error) == text


def test_missing_optional_package_names_its_extra(commands, capsys):
    assert entry.run(["missing-package"]) == 1
    assert "pip install 'merope[eval]'" in capsys.readouterr().err


def test_broken_installation_keeps_its_traceback(commands):
    with pytest.raises(ModuleNotFoundError):
        entry.run(["broken-install"])


def test_unknown_error_keeps_its_traceback(commands):
    with pytest.raises(ValueError, match="invalid literal"):
        entry.run(["foreign-value-error"])


def test_traceback_variable_shows_known_errors_too(commands, monkeypatch):
    monkeypatch.setenv(entry.TRACEBACK_VARIABLE, "1")
    with pytest.raises(TrajectoryError):
        entry.run(["trajectory-error"])


def test_command_outcome_is_the_exit_code(commands):
    assert entry.run(["counted", "--times", "3"]) == 3


@pytest.mark.parametrize("arguments", [["counted", "--times", "three"], ["counted", "--tims", "3"]])
def test_wrong_flag_exits_2(commands, arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        entry.run(arguments)
    assert stop.value.code == 2


def test_flags_have_no_useless_twin(commands, capsys):
    with pytest.raises(SystemExit):
        entry.run(["counted", "--help"])
    text = capsys.readouterr().out
    assert "--json" in text
    assert "--no-json" not in text


def test_unknown_command_suggests_the_closest(capsys):
    assert entry.run(["inf"]) == 2
    assert "did you mean 'info'?" in capsys.readouterr().err


def test_no_command_shows_the_overview_and_exits_2(capsys):
    assert entry.run([]) == 2
    assert "usage: merope COMMAND" in capsys.readouterr().err


def test_help_names_every_command(capsys):
    assert entry.run(["--help"]) == 0
    text = capsys.readouterr().out
    for name, command in entry.available().items():
        assert f"  {name} " in text
        assert command.summary in text


@pytest.mark.parametrize("name", list(entry.single_commands(entry.COMMANDS)))
def test_every_command_loads_and_documents_itself(name):
    commands = entry.single_commands(entry.available())
    if name not in commands:
        pytest.skip(f"command {name} is not part of this installation")
    function = commands[name].load()
    assert callable(function)
    assert function.__doc__


@pytest.fixture
def grouped(commands, monkeypatch):
    """The commands of this file as a group beside one that is alone."""
    table = entry.available()
    group = entry.Group("measure things", table)
    monkeypatch.setattr(entry, "available", lambda: {"measure": group, "counted": table["counted"]})


def test_a_command_of_a_group_runs_and_reports_under_its_full_name(grouped, capsys):
    assert entry.run(["measure", "counted", "--times", "4"]) == 4
    assert entry.run(["measure", "missing-file"]) == 1
    assert capsys.readouterr().err.startswith("merope measure missing-file: no/such/poses.txt")


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_help_of_a_group_lists_its_commands(grouped, flag, capsys):
    assert entry.run(["measure", flag]) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: merope measure COMMAND")
    assert "Measure things." in text
    assert "  trajectory-error " in text


def test_a_group_alone_or_with_an_unknown_word_is_a_usage_error(grouped, capsys):
    assert entry.run(["measure"]) == 2
    assert "merope measure: no command given" in capsys.readouterr().err
    assert entry.run(["measure", "count"]) == 2
    assert "did you mean 'counted'?" in capsys.readouterr().err


def test_commands_whose_module_is_missing_are_left_out_also_in_groups():
    here, gone = (
        entry.Command("merope.cli.info", "info", "here"),
        entry.Command("merope.cli.gone", "g", "gone"),
    )
    table = {
        "here": here,
        "gone": gone,
        "both": entry.Group("both", {"here": here, "gone": gone}),
        "none": entry.Group("none", {"gone": gone}),
    }
    assert list(entry.single_commands(entry.installed(table))) == ["here", "both here"]


def test_help_imports_no_heavy_package():
    done = run_python(
        "import sys\n"
        "from merope.cli.main import run\n"
        "run(['--help'])\n"
        "print(sorted({'torch', 'numpy', 'scipy', 'diffusers', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"


def test_installed_script_reports_the_version():
    import merope

    done = subprocess.run(
        [sys.executable, "-m", "merope.cli.main", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"merope {merope.__version__}\n")


def test_info_for_machines_is_json():
    import json

    done = run_python("from merope.cli.main import run; raise SystemExit(run(['info', '--json']))")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["packages"]["torch"]
    assert facts["devices"][0] == "cpu"


def test_missing_dependency_names_the_extra():
    error = MissingDependency.for_extra("pycolmap", extra="eval", purpose="pose recovery with COLMAP")
    assert str(error) == (
        "pose recovery with COLMAP needs the package 'pycolmap', which is not installed. "
        "Install it with: pip install 'merope[eval]'"
    )


def test_a_warning_of_this_library_is_a_line_without_its_place_in_the_source():
    program = (
        "import sys, warnings; from merope.cli import main\n"
        "from merope.encodings.scale import ScaleWarning\n"
        "def run(arguments):\n"
        "    warnings.warn('too far', ScaleWarning); warnings.warn('other', UserWarning); return 0\n"
        "main.run = run; sys.argv = ['merope']; main.main()"
    )
    ran = run_python(program)
    assert ran.returncode == 0
    assert "\nmerope: too far\n" in ran.stderr
    assert "UserWarning: other" in ran.stderr
    assert "ScaleWarning" not in ran.stderr
