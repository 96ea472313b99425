"""``merope adapter info``: what an adapter file holds."""

from json import dumps
from typing import Annotated, Any

import tyro


def info(
    file: Annotated[str, tyro.conf.Positional], *, revision: str | None = None, json: bool = False
) -> None:
    """Print all that an adapter file says of itself, its size, and whether it has learned anything.

    The whole file is read: a damaged one, or one whose weights are not those of its configuration, is an error.

    Args:
        file: The file, a folder that holds one, or a name on the model hub (user/name).
        revision: Branch, tag or commit of the hub's repository.
        json: Print one JSON object instead of a table.
    """
    from merope.adapters.inspection import inspect_adapter

    report = inspect_adapter(file, revision=revision)
    if json:
        print(dumps(report.to_dict(), indent=2))
        return
    found = rows(report)
    width = max(len(name) for name, _ in found) + 2
    print("\n".join(f"{name:<{width}}{value}".rstrip() for name, value in found))


def rows(report: Any) -> list[tuple[str, str]]:
    """The report as names and texts."""
    config = report.config
    encoding = dict(config["encoding"])
    name, layout = encoding.pop("name"), encoding.pop("layout", None)
    scale = encoding.pop("scale", None)
    found = [("file", f"{report.file} ({report.bytes:,} bytes)"), ("encoding", name)]
    if layout is not None:
        found.append(("  layout", ", ".join(f"{part} {_text(width)}" for part, width in layout.items())))
    found += [(f"  {option}", _text(value)) for option, value in encoding.items()]
    found.append(("  scale", "none: no translation enters linearly" if scale is None else _text(scale)))
    if config.get("input_map") is not None:
        found.append(("input map", _text(config["input_map"])))
    found.append(("works in", report.placement))
    if report.placement == "branch":
        found.append(("compression", str(config["compression"])))
    of = f"{report.schedule}, {len(config['blocks'])} of {config['base']['num_layers']}"
    found.append(("blocks", f"{_text(config['blocks'])} ({of})"))
    found.append(("pose policy", config["pose_policy"]))
    found.append(("parameters", f"{report.parameters:,} ({', '.join(report.dtypes) or 'none'})"))
    found += _norms(report)
    compared = (
        "configuration and weights are" if config["base"].get("fingerprint") else "configuration alone is"
    )
    found += _section("base", config["base"], f"{compared} compared when it is loaded")
    found += _section("video", config["spec"], "sizes and rate that it was trained for")
    found += _section("training", config["summary"], "")
    return found


def _norms(report: Any) -> list[tuple[str, str]]:
    if not report.norms:
        return []
    # What injections learn is no output, and some of it starts away from zero.
    title = "output norms" if report.placement == "branch" else "weight norms"
    if report.parameters == 0:
        return [(title, "none: there is nothing to learn")]
    if report.is_zero:
        said = "nothing was learned yet, cameras would be ignored"
    elif report.zero_blocks:
        said = f"nothing was learned in blocks {_text(report.zero_blocks)}"
    else:
        said = "every block has learned something"
    each = [(f"  block {block}", f"{norm:.4g}") for block, norm in report.norms.items()]
    return [(title, said), *each]


def _section(title: str, values: dict[str, Any] | None, said: str) -> list[tuple[str, str]]:
    if not values:
        return [(title, "not stored")]
    return [(title, said), *((f"  {name}", _text(value)) for name, value in values.items())]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_text(inner) for inner in value) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
