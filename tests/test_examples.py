"""Every example runs as a reader would run it, and says something."""

import subprocess
import sys

import pytest

from tests.support.shared import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples").glob("[0-9]*.py"))


def test_examples_are_numbered_without_gaps():
    numbers = [int(path.name[:2]) for path in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_readme_example_runs(tmp_path):
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert blocks, "README.md shows no Python"
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
