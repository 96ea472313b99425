"""The report: complete, self-contained, escaped, bounded, and honest about flags and verdicts."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.comparison import compare
from merope.evaluation.estimators.base import Recovered
from merope.evaluation.protocol import FLAGS, SPECS, Metric
from merope.evaluation.report.clip_table import clips_section
from merope.evaluation.report.page import ReportImage, write_report
from merope.evaluation.report.protocol_words import protocol_section
from merope.evaluation.report.tables import metric_sections
from merope.evaluation.runs.run import RunClip
from merope.evaluation.runs.scored import score_run
from tests.evaluation.report.synthetic import command, run, visible
from tests.evaluation.trajectories import from_numpy, perturbed

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")

ATTACK = "<script>alert(1)</script>"
VOID = ("meta", "link", "img", "br", "input")


def parked_run(label):
    """One clip that stands still, and one that does not."""
    parked = from_numpy(np.tile(np.eye(3), (9, 1, 1)), np.zeros((9, 3)))
    pairs = {"parked <1>": parked, "drive": command(0, 9)}
    clips = [
        RunClip(
            clip_id=clip_id,
            commanded=poses,
            recovered=Recovered.complete(perturbed(poses, 3, shift=0.05)),
            first_generated=3,
        )
        for clip_id, poses in pairs.items()
    ]
    return score_run(clips, label=label)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    Image.new("RGB", (16, 9)).save(folder / "frame.png")
    bad = run(ATTACK, num_clips=3, turn_deg=5, reversed_clip=1, failed_clip=2, with_frames=False)
    verdict = Verdict(
        benchmark="nuscenes-384", num_expected=384, num_used=3, reasons=("381 clips are <missing>.",)
    )
    runs = [
        replace(bad, result=replace(bad.result, verdict=verdict, num_expected=384)),
        run("MeRoPE & co", num_clips=3, with_frames=False),
        run("floor", num_clips=3, turn_deg=0.01, shift=0.001, reference=True, with_frames=False),
    ]
    path = write_report(
        folder / "out",
        runs,
        title="Drive <1>",
        notes=["scored <twice>"],
        history=["floor: 0 recovered now, 2 <reused>"],
        images=[ReportImage(path=folder / "frame.png", caption='A "first" frame')],
        comparisons=[compare(runs[0].result, runs[1].result)],
        fidelity={"MeRoPE & co": {"fid": Metric(value=19.8212, unit="1", protocol="512 clips <resized>")}},
    )
    return path


class Balanced(HTMLParser):
    """Fails on a tag that is not closed in order; keeps the attributes of every tag."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(path):
    parser = Balanced()
    parser.feed(path.read_text())
    assert parser.open == []
    return parser.seen


def test_the_page_is_well_formed_and_a_label_cannot_run_a_script(page):
    tags = parsed(page)
    assert [tag for tag, _ in tags].count("script") == 1
    text = page.read_text()
    assert ATTACK not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    for raw, escaped in (("Drive <1>", "Drive &lt;1&gt;"), ("<missing>", "&lt;missing&gt;")):
        assert raw not in text
        assert escaped in text
    assert "MeRoPE & co" not in text
    assert "<resized>" not in text


def test_the_page_asks_no_other_machine(page):
    text = page.read_text()
    assert not re.findall(r"https?://|//cdn|@import|url\(", text)
    for _, attributes in parsed(page):
        for name in ("src", "href"):
            assert name not in attributes or attributes[name].startswith(("data:", "#"))
    assert "default-src 'none'" in text


def test_pictures_have_words_and_heads_have_scopes(page):
    tags = parsed(page)
    images = [attributes for tag, attributes in tags if tag == "img"]
    assert len(images) >= 5
    assert all(len(image["alt"]) > 10 for image in images)
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in tags if tag == "th")


def test_every_metric_stands_with_unit_scale_and_protocol(page):
    text = page.read_text().replace("&lt;", "<").replace("&gt;", ">")
    for spec in SPECS.values():
        assert spec.label in text
        assert spec.protocol in text
        assert spec.scale_rule in text
    words = visible(page)
    assert "Generated frames only" in words
    assert not re.search(r">\s*(nan|NaN|inf|None)\b", text)


def test_the_protocol_is_in_words(page):
    words = visible(page)
    for expected in (
        "T counts all frames of a clip, 17 here, the given prefix included",
        "relative to the first frame",
        "least-squares scale s* of the clip",
        "3 of 384",
        "network",
        "count as the worst possible answer",
        "95 % percentile bootstrap over clips, 1000 resamples, seed 0",
    ):
        assert expected in words


def test_how_the_rows_came_about_stands_with_the_settings(page):
    text = page.read_text()
    assert "scored &lt;twice&gt;" in text.split('id="protocol"')[0]
    assert text.count("0 recovered now, 2 &lt;reused&gt;") == 1
    assert "0 recovered now, 2 &lt;reused&gt;" in text.split('id="settings"')[1]


def test_an_estimator_is_told_as_a_list_of_terms():
    identity = {
        "name": "colmap",
        "options": {"max_features": 4096, "mask": None, "kind": "<a>"},
        "versions": {},
        "weights_sha256": None,
        "seeds": [1, 2],
    }
    plain = run("a", num_clips=1, with_frames=False)
    result = replace(plain.result, settings={"estimator_identity": identity})
    words = protocol_section([replace(plain, result=result)])
    assert "<dt>name</dt><dd>colmap</dd>" in words
    assert "kind <code>&lt;a&gt;</code>, mask <code>none</code>, max_features <code>4096</code>" in words
    assert "<dt>seeds</dt><dd>1, 2</dd>" in words
    assert "versions" not in words and "weights" not in words and "{" not in words


def test_key_frames_are_counted_in_the_table_of_runs():
    plain = run("a", num_clips=1, with_frames=False)
    settings = {"num_commanded": 3000, "num_with_estimate": 32}
    words = protocol_section([replace(plain, result=replace(plain.result, settings=settings))])
    assert "100 %<small>32 of 3000 poses</small>" in words


def test_a_run_that_is_not_comparable_says_so_first_of_all(page):
    text = page.read_text()
    banner = text.index('class="banner"')
    assert banner < text.index("<section")
    assert "Not comparable" in text[banner : banner + 200]
    assert "381 clips are &lt;missing&gt;." in text[banner : banner + 500]


def test_the_noise_floor_is_told_or_how_to_measure_it(page):
    assert "The estimator's own error on true frames" in visible(page).replace("&#x27;", "'")
    alone = protocol_section([run("one", num_clips=2, with_frames=False)])
    assert "None was measured" in alone
    assert "--floor CLIPS" in alone


def test_flags_are_counted_in_words_with_the_clip_that_raised_them(page):
    words = visible(page)
    assert f"1 of 3 clips reversed : {FLAGS['reversed'].replace('<', '&lt;')}" in words
    assert "scene-0/left: s* = -" in words
    # Of a failure, the estimator's own reason.
    assert "scene-0/right: two frames had matches" in words


def test_undefined_values_are_dashes_with_a_reason():
    runs = [parked_run("a")]
    text = clips_section(runs)
    row = re.search(r'<th scope="row">parked &lt;1&gt;</th>.*?</tr>', text, re.S).group()
    assert re.search(r'<td title="the command stands still[^"]*">-</td>|<td title="[^"]+">-</td>', row)
    assert "1 left out" in "".join(metric_sections(runs, None))


def test_a_reference_does_not_compete_for_the_best_value(page):
    table = re.search(r'data-table="driving".*?</table>', page.read_text(), re.S).group()
    assert "<b " not in re.search(r'<tr data-run="floor">.*?</tr>', table, re.S).group()
    assert "references, which do not compete" in table


def test_paired_comparisons_show_difference_interval_and_sign_test(page):
    content = json.loads((page.parent / "results.json").read_text())["comparisons"][0]
    found = content["metrics"]["cammc"]
    section = re.search(r'<section id="comparisons">.*?</section>', page.read_text(), re.S).group()
    row = re.search(r'<tr><th scope="row">CamMC</th>.*?</tr>', section, re.S).group()
    shown = re.sub(r"<[^>]*>", " ", row).split()
    low, high = found["interval"]
    assert shown == [
        "CamMC",
        f"{found['a']:.3f}",
        f"{found['b']:.3f}",
        f"{found['difference']:+.3f}",
        f"{low:+.3f}",
        "to",
        f"{high:+.3f}",
        str(found["wins"]),
        str(found["losses"]),
        str(found["ties"]),
        f"{found['sign_test_p']:.3g}",
    ]


def test_results_and_figures_lie_beside_the_page(page):
    names = {entry.name for entry in page.parent.iterdir()}
    assert names == {"report.html", "results.json", "results.csv", "results.md", "results.tex", "figures"}
    figures = {entry.name for entry in (page.parent / "figures").iterdir()}
    for name in ("birds-eye", "errors-over-time", "errors-by-baseline", "metres", "worst-merope-co"):
        assert {f"{name}.png", f"{name}.pdf"} <= figures
    listed = json.loads((page.parent / "figures" / "figures.json").read_text())
    assert figures == {"figures.json", *(file for entry in listed.values() for file in entry["files"])}
    assert all(re.fullmatch(r"[a-z0-9-]+\.(png|pdf)", name) for name in figures - {"figures.json"})
    assert "commanded path solid, recovered dashed" in listed["birds-eye"]["caption"]


def test_labels_must_differ_and_images_be_pictures(tmp_path):
    one = run("a", num_clips=1, with_frames=False)
    with pytest.raises(ValueError, match="own label"):
        write_report(tmp_path, [one, one])
    with pytest.raises(ValueError, match="at least one run"):
        write_report(tmp_path, [])
    with pytest.raises(ValueError, match=r"must end in \.png"):
        write_report(tmp_path, [one], images=[ReportImage(path=tmp_path / "a.gif", caption="no")])
    assert not list(tmp_path.glob("*.html"))
