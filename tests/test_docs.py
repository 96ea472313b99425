"""Pages that name files, names and layers are held against the code."""

import re

import pytest

from merope.encodings.registry import ENCODINGS, default_encoding
from tests.support.shared import REPOSITORY
from tests.test_layering import LAYERS, PYTHON_FILES, SOURCE

PAGES = sorted(REPOSITORY.glob("*.md")) + sorted((REPOSITORY / "docs").glob("*.md"))
SOURCE_TEXT = "\n".join(path.read_text(encoding="utf-8") for path in PYTHON_FILES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_named_in_pages_exist(page):
    for name in re.findall(
        r"`([\w./-]+/(?:[\w.-]+\.(?:py|json|safetensors|md))?)`", page.read_text(encoding="utf-8")
    ):
        places = (REPOSITORY / name, SOURCE / name, SOURCE.parent / name)
        assert any(place.exists() for place in places), f"{page.name} names {name}, which does not exist"


def test_notation_names_things_that_exist():
    page = (REPOSITORY / "docs" / "notation.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and "---" not in line][
        1:
    ]
    assert len(rows) > 30
    for row in rows:
        for code in re.findall(r"`([^`]+)`", row[1]):
            for name in re.findall(r"[A-Za-z_][A-Za-z_0-9]{2,}", code):
                assert re.search(rf"\b{name}\b", SOURCE_TEXT), (
                    f"notation.md: {row[0]} is {name}; no such name"
                )


def test_architecture_page_shows_the_layers_that_are_tested():
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = page.split("## Folders and who may know whom\n\n```\n")[1].split("```")[0]
    known = {folder for layer in LAYERS for folder in layer}
    shown = []
    for line in block.splitlines():
        # Folder names stand first, two or more spaces apart, before the words about them.
        names = re.split(r"\s{2,}", line.strip())
        shown.append(tuple(name for name in names if name in known))
    assert tuple(shown) == LAYERS


def test_readme_table_of_encodings_is_that_of_the_claims_that_are_tested():
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    table = page.split("<!-- table: merope diagnose claims --markdown -->\n")[1].split(
        "<!-- end of table -->"
    )[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    shown = {row[0].split("`")[1]: tuple(cell == "Yes" for cell in row[1:4]) for row in rows}
    claimed = {}
    for name in ENCODINGS:
        claims = default_encoding(name, head_dim=128, num_heads=2).claims
        claimed[name] = (claims.metric, claims.per_token, claims.norm_preserving)
    assert shown == claimed
