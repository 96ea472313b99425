"""``merope lens info``: a lens in numbers."""

from json import dumps
from pathlib import Path
from typing import Annotated, Any

import tyro

from merope.cli.lens_options import Calibration


def info(
    file: Annotated[Path, tyro.conf.Positional],
    *,
    format: Calibration | None = None,
    camera: str | None = None,
    height: int | None = None,
    width: int | None = None,
    json: bool = False,
) -> None:
    """Print what a calibration file says of a camera: model, parameters, fields of view, which pixels have a ray.

    Fields of view go from edge to edge of the raster, through the principal point, or from corner to corner.

    Args:
        file: Calibration file. docs/lenses.md lists the formats.
        format: Its format; without it the file must look like exactly one.
        camera: Which camera, in a file of several.
        height: Height of the calibrated images in pixels, where the file does not say it.
        width: Width of the calibrated images in pixels, where the file does not say it.
        json: Print one JSON object instead of a table.
    """
    from merope.data.lenses.calibration_files import load_calibration, recognise_calibration
    from merope.data.lenses.facts import lens_facts

    found = load_calibration(file, format=format, camera=camera, height=height, width=width)
    settled = str(format) if format else next(iter(recognise_calibration(file)))
    facts = lens_facts(found.lens)
    place = None if found.T_body_cam is None else found.T_body_cam.tolist()
    if json:
        head = {"file": str(file), "format": settled, "camera": found.name}
        tail = {"T_body_cam": place, "body": found.body, "notes": list(found.notes)}
        print(dumps({**head, **facts.to_dict(), **tail}, indent=2))
        return
    lens = dict(facts.lens)
    rows: list[tuple[str, str]] = [("file", f"{file} ({settled})")]
    if found.name:
        rows.append(("camera", found.name))
    rows.append(("model", str(lens.pop("model"))))
    rows.append(("image", f"{lens.pop('width')} x {lens.pop('height')} pixels (width x height)"))
    rows.append(("pixel origin", _ORIGINS[lens.pop("pixel_origin")]))
    rows += [(f"  {name}", _text(value)) for name, value in lens.items() if name != "principal_point_outside"]
    for name, word, angle in (
        ("horizontal", "horizontal field of view", facts.fov_x_deg),
        ("vertical", "vertical field of view", facts.fov_y_deg),
        ("diagonal", "diagonal field of view", facts.fov_diagonal_deg),
    ):
        ends = ", where the lens ends before the image does" if name in facts.edges_without_ray else ""
        if name == "horizontal" and not ends:
            ends = f" ({facts.fov_x_centers_deg:.2f} between the centres of the outer pixels)"
        rows.append((word, f"{angle:.2f} degrees{ends}"))
    rows.append(("pixels with a ray", f"{100 * facts.share_with_ray:.2f} %"))
    rows.append(("largest off-axis angle", f"{facts.max_off_axis_deg:.2f} degrees"))
    if place is not None:
        rows += [
            (f"place on {found.body}" if index == 0 else "", " ".join(f"{value:12.6f}" for value in row))
            for index, row in enumerate(place[:3])
        ]
    rows += [("note", note) for note in found.notes]
    width_of_names = max(len(name) for name, _ in rows) + 2
    print("\n".join(f"{name:<{width_of_names}}{value}".rstrip() for name, value in rows))


_ORIGINS = {
    "center": "center: (0, 0) is the centre of the first pixel",
    "corner": "corner: (0, 0) is the corner of the raster",
}


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
