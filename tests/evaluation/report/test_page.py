"""The report: complete, self-contained, escaped, and honest about flags."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from merope.evaluation import ClipPair, evaluate_clips
from merope.evaluation.protocol import SPECS
from merope.evaluation.report.page import ReportImage, write_report
from merope.geometry.poses import Poses
from tests.evaluation.trajectories import from_numpy, perturbed, turning

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")


def result(label, *, turn_deg=1.0, backwards=False):
    parked = from_numpy(np.tile(np.eye(3), (12, 1, 1)), np.zeros((12, 3)))
    clips = [ClipPair(clip_id="parked", commanded=parked, estimated=perturbed(parked, 9), first_generated=3)]
    for seed in range(3):
        estimated = perturbed(turning(12), seed, turn_deg=turn_deg)
        if backwards:
            estimated = Poses(R_world_cam=estimated.R_world_cam, center_world=-estimated.center_world)
        clips.append(
            ClipPair(clip_id=f"clip <{seed}>", commanded=turning(12), estimated=estimated, first_generated=3)
        )
    return evaluate_clips(clips, label=label)


@pytest.fixture
def page(tmp_path):
    Image.new("RGB", (16, 9)).save(tmp_path / "frame.png")
    path = write_report(
        tmp_path / "out",
        [
            result("MeRoPE"),
            result("none & nothing", turn_deg=8, backwards=True),
            result("floor", turn_deg=0.01),
        ],
        title="Drive <1>",
        commanded=turning(12),
        recovered={"MeRoPE": perturbed(turning(12), 0)},
        first_generated=3,
        references=["floor"],
        images=[ReportImage(path=tmp_path / "frame.png", caption="First frame")],
        notes=["noise floor measured on true renders"],
    )
    return path


class Balanced(HTMLParser):
    """Fails on a tag that is not closed in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_escaped(page):
    text = page.read_text()
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert "Drive &lt;1&gt;" in text
    assert "none &amp; nothing" in text
    assert "clip <0>" not in text


def test_the_page_asks_no_other_machine(page):
    text = page.read_text()
    assert not re.findall(r"https?://|//cdn|@import|url\(", text)
    sources = re.findall(r'(?:src|href)="([^"]{0,20})', text)
    assert len(sources) == 4
    assert all(source.startswith("data:") for source in sources)


def test_every_metric_stands_with_unit_and_protocol(page):
    text = page.read_text()
    for spec in SPECS.values():
        assert spec.label in text
        assert spec.protocol.split(";")[0].replace("<", "&lt;").replace(">", "&gt;") in text
    assert "noise floor measured on true renders" in text
    assert "Generated frames only" in text
    visible = re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.S)
    assert "nan" not in re.findall(r"[a-z]+", visible.lower())


def test_flags_are_in_words(page):
    text = page.read_text()
    assert "the recovered path runs against the command" in text
    assert "ends where it began" in text


def test_a_reference_does_not_compete_for_the_best_value(page):
    row = re.search(r'<tr><th scope="row">floor</th>.*?</tr>', page.read_text(), re.S).group()
    best = re.search(r'<tr><th scope="row">MeRoPE</th>.*?</tr>', page.read_text(), re.S).group()
    assert "<b>" not in row
    assert "<b>" in best


def test_metrics_and_plot_lie_beside_the_page(page):
    content = json.loads((page.parent / "metrics.json").read_text())
    assert [entry["label"] for entry in content["results"]] == ["MeRoPE", "none & nothing", "floor"]
    assert sorted(entry.name for entry in page.parent.iterdir()) == ["bev.png", "metrics.json", "report.html"]


def test_labels_must_differ(tmp_path):
    with pytest.raises(ValueError, match="own label"):
        write_report(tmp_path, [result("a"), result("a")])
    with pytest.raises(ValueError, match="at least one result"):
        write_report(tmp_path, [])
