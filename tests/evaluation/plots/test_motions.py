"""Figure 4: clips counted where they pass, and a picture that stays small."""

import numpy as np
import pytest
from benchmarks.prototypes import drives
from PIL import Image

from merope.data.selection.prototypes.arc_length import resample_paths
from merope.evaluation.plots.motions import _counts, _view, draw_motions, motions_by_source, plot_motions


def straight(count: int, length: float, aside: float = 0.0) -> np.ndarray:
    paths = np.zeros((count, 9, 3), dtype=np.float32)
    paths[:, :, 2] = np.linspace(0, length, 9)
    paths[:, :, 0] = np.linspace(0, aside, 9)
    return paths


@pytest.fixture(scope="module")
def mixture():
    centers, real = drives(600, seed=0)
    return resample_paths(centers, 25), np.where(real, "nuscenes", "rendered")


def test_shares_are_those_that_leave_the_corridor():
    paths = np.concatenate([straight(6, 40.0), straight(2, 40.0, 3.6), straight(4, 40.0, -10.0)])
    found = motions_by_source(paths, ["a"] * 8 + ["b"] * 4)
    assert (found["a"].count, found["a"].lateral) == (8, 0.25)
    assert (found["b"].count, found["b"].lateral) == (4, 1.0)
    assert str(found["a"]) == "8 clips, 25 % leave the corridor ahead"
    assert motions_by_source(paths, ["a"] * 12, corridor=3.7)["a"].lateral == pytest.approx(4 / 12)


def test_a_path_counts_once_in_every_cell_that_it_passes():
    there_and_back = straight(3, 10.0)
    there_and_back[:, 5:] = there_and_back[:, 3::-1]
    counts = _counts(there_and_back, (-2.0, 2.0, -1.0, 11.0), 0.5)
    assert counts.shape == (24, 8)
    assert set(np.unique(counts)) == {0, 3}
    # From z = 0 to 5 and back, without a gap, in one column.
    np.testing.assert_array_equal(np.flatnonzero(counts.any(axis=0)), [4])
    np.testing.assert_array_equal(np.flatnonzero(counts[:, 4]), np.arange(2, 13))


def test_what_leaves_the_picture_is_not_counted_at_its_edge():
    counts = _counts(straight(1, 100.0, 50.0), (-1.0, 1.0, -1.0, 1.0), 0.1)
    assert counts.sum() > 0
    assert counts[:, -1].sum() == 0


def test_one_clip_far_out_does_not_shrink_the_picture(mixture):
    far = straight(1, 4000.0)[:, np.linspace(0, 8, 25).astype(int)]
    paths = np.concatenate([*5 * [mixture[0]], far])
    extent, cell = _view(paths)
    assert extent[3] < 400
    assert extent[0] < 0 < extent[1]
    assert max(extent[1] - extent[0], extent[3] - extent[2]) == pytest.approx(640 * cell)


@pytest.mark.parametrize("paths", [np.zeros((3, 9, 3), dtype=np.float32), straight(2, 30.0)])
def test_standing_and_straight_clips_can_be_drawn(paths, tmp_path):
    plot_motions(tmp_path / "m.png", paths, ["a"] * len(paths))
    assert Image.open(tmp_path / "m.png").size[0] > 300


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_written_with_every_source(mixture, tmp_path, ending):
    found = plot_motions(tmp_path / f"m.{ending}", *mixture, title="Motions")
    assert found["nuscenes"].lateral < found["rendered"].lateral
    size = (tmp_path / f"m.{ending}").stat().st_size
    assert 20_000 < size < 2_000_000
    assert len(list(tmp_path.iterdir())) == 1


def test_each_source_has_a_map_beside_that_of_all(mixture):
    titles = [axes.get_title() for axes in draw_motions(*mixture).axes]
    assert titles == ["nuscenes and rendered", "nuscenes", "rendered"]
    assert len(draw_motions(mixture[0], ["a"] * len(mixture[0])).axes) == 1


def test_every_path_needs_its_source():
    for paths, sources in ((straight(2, 9.0), ["a"]), (straight(0, 9.0), [])):
        with pytest.raises(ValueError, match="needs its source"):
            draw_motions(paths, sources)


@pytest.mark.parametrize("title", [None, "Motions"])
def test_titles_and_legend_stay_clear_of_everything(title):
    along = np.linspace(0, 1, 17)
    paths = np.stack([np.stack([side * along**2, 0 * along, 20 * along], -1) for side in (-4, -1, 0, 0.2, 3)])
    figure = draw_motions(paths.astype(np.float32), ["a", "a", "a", "b", "b"], unit="m", title=title)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    legend = figure.legends[0].get_window_extent(renderer)
    for axes in figure.axes:
        assert axes.title.get_window_extent(renderer).y1 < figure.bbox.y1
        assert axes.xaxis.label.get_window_extent(renderer).y0 > legend.y1
