"""``merope data readers``: what kinds of data sets can be read, what each expects on disk, and its options."""

import ast
import inspect
import textwrap
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import tyro

from merope.cli.data.reader_options import Reader, type_in_words


def readers(name: Annotated[Reader | None, tyro.conf.Positional] = None) -> None:
    """List the data sets that `merope data encode` and `merope data convert` read: layouts and options.

    Args:
        name: Only this one.
    """
    from merope.data.datasets import DATASETS

    for reader, kind in DATASETS.items():
        if name not in (None, reader):
            continue
        print(f"{reader}: {kind.about}")
        print(textwrap.indent(kind.layout, "    ROOT/"))
        told, hints = _field_docs(kind.options), get_type_hints(kind.options)
        for each in fields(kind.options):
            default = "" if each.default in (None, "") else f", {_in_words(each.default)}"
            print(f"  {each.name} ({type_in_words(hints[each.name])}{default})")
            print(textwrap.fill(told[each.name], 100, initial_indent="      ", subsequent_indent="      "))
        print()
    print("Options are given as --option NAME=VALUE, once for each.")


def _in_words(default: Any) -> str:
    return {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)


def _field_docs(kind: type[Any]) -> dict[str, str]:
    """The docstrings below the fields of a dataclass, in one line each."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, doc in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
            found[field.target.id] = " ".join(str(doc.value.value).split())
    return found
