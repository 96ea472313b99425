"""Real panoramas are spheres to their poles: the outermost rows are one colour."""

import json

import pytest

from merope.cameras import Equirectangular
from merope.data.datasets import open_dataset
from tests.support.shared import shared_file


@pytest.mark.parametrize(("name", "width"), [("equilib_park.jpg", 5376), ("hohonet_bedroom.png", 1024)])
def test_pole_rows_are_nearly_constant(tmp_path, name, width):
    (tmp_path / name).symlink_to(shared_file(f"data/panorama/{name}").resolve())
    whole = Equirectangular.full_sphere(height=width // 2, width=width)
    for top in (0, width // 2 - 1):
        part = whole.crop(top=top, left=0, height=1, width=width)
        (tmp_path / "lens.json").write_text(json.dumps(part.to_dict()))
        (clip,) = open_dataset("panorama", tmp_path, lens="lens.json", frames=1)
        # Grey levels; the horizon's are above 50.
        assert float(clip.frames()[0].astype(float).std(axis=1).max()) < 3
