"""The names that ``import merope`` offers."""

import pytest

import merope
from tests.support.fresh_python import run_python


@pytest.mark.parametrize("name", merope.__all__)
def test_every_offered_name_exists(name):
    value = getattr(merope, name)
    assert value is not None
    if name != "__version__":
        assert value.__doc__


def test_unknown_name_lists_what_there_is():
    with pytest.raises(AttributeError, match=r"it offers .*MeRoPE"):
        merope.MeRoPe  # noqa: B018


def test_lazy_table_and_public_list_agree():
    assert sorted({*merope._HOMES, "__version__"}) == sorted(merope.__all__) == dir(merope)


def test_import_pulls_in_no_torch():
    done = run_python("import sys, merope; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_version_is_the_installed_one():
    import importlib.metadata

    assert importlib.metadata.version("merope") == merope.__version__
