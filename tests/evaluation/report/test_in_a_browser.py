"""`report.html` as a reader has it: opened from disk in a real browser, offline."""

import json
from dataclasses import replace

import pytest

from merope.evaluation.benchmarks.verdict import Verdict
from merope.evaluation.comparison import compare
from merope.evaluation.protocol import SPECS
from merope.evaluation.report.clip_table import KEYS
from merope.evaluation.report.page import write_report
from tests.evaluation.report.synthetic import run
from tests.support.browser import chromium, opened

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'merope[plot]'")

LABELS = ("good <i>&</i>", "fair", "poor")
LONG = "half of them, " + 12 * "with-a-name-that-has-no-end-"
# WCAG 2, level AA, for text of usual size.
LEAST_CONTRAST = 4.5


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    runs = [
        run(LABELS[0], turn_deg=0.5, shift=0.05),
        run(LABELS[1], turn_deg=2.0, shift=0.2, reversed_clip=3),
        run(LABELS[2], turn_deg=8.0, shift=0.5, with_frames=False),
        run(
            "noise floor (network on 6 true clips)",
            turn_deg=0.1,
            shift=0.01,
            reference=True,
            with_frames=False,
        ),
        run(LONG, num_clips=3, turn_deg=9.0, with_frames=False),
    ]
    verdict = Verdict(
        benchmark="worlds-6", num_expected=6, num_used=3, reasons=("3 of 6 clips are missing.",)
    )
    runs[4] = replace(runs[4], result=replace(runs[4].result, verdict=verdict, num_expected=6))
    with pytest.MonkeyPatch.context() as patch:
        # A browser shows the page, not the files beside it.
        patch.setattr("merope.evaluation.report.figure_book.pdf_bytes", lambda figure: b"")
        return write_report(
            tmp_path_factory.mktemp("report"),
            runs,
            title="A report with a title that is long enough to need two lines on a telephone",
            comparisons=[compare(runs[1].result, runs[0].result)],
        )


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def visit(browser, report):
    with opened(browser, report) as found:
        yield found


@pytest.fixture(scope="module")
def results(report):
    return json.loads((report.parent / "results.json").read_text())["results"]


def contrasts(page):
    """The lowest contrast of text on what is behind it, by the kind of element."""
    return page.evaluate(
        """() => {
          const parts = color => color.match(/[\\d.]+/g).map(Number);
          const luminance = rgb => {
            const [r, g, b] = rgb.slice(0, 3).map(v => v / 255)
              .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const behind = node => {
            for (; node; node = node.parentElement) {
              const color = parts(getComputedStyle(node).backgroundColor);
              if (color.length < 4 || color[3] === 1) return color;
            }
            return [255, 255, 255];
          };
          const worst = {};
          for (const node of document.querySelectorAll("body *")) {
            const own = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
            if (!own || node.matches("script, option")) continue;
            const pair = [luminance(parts(getComputedStyle(node).color)), luminance(behind(node))];
            const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
            worst[node.tagName] = Math.min(worst[node.tagName] ?? 99, ratio);
          }
          return worst;
        }"""
    )


def shown_rows(page):
    """The table of clips as it is seen, cell by cell."""
    return page.evaluate(
        "() => [...document.querySelectorAll('table.clips tbody tr')].filter(row => !row.hidden)"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )


def test_nothing_is_asked_of_anybody_and_nothing_complains(visit, report):
    visit.page.wait_for_load_state("networkidle")
    assert visit.console_errors == []
    assert visit.failed == []
    outside = [url for url in visit.requests if not url.startswith("data:")]
    assert outside == [report.as_uri()]


def test_every_picture_is_shown(visit):
    sizes = visit.page.evaluate(
        "() => [...document.images].map(image => [image.complete, image.naturalWidth])"
    )
    # Paths, two curves, metres, two strips; of two runs two scenes, with all clips in them, and lenses; of one without
    # frames its worst and best clips.
    assert len(sizes) == 6 + 2 * 3 + 2
    assert all(complete and width > 100 for complete, width in sizes)


def test_tables_hold_the_numbers_of_the_results(visit, results):
    cells = visit.page.evaluate(
        """() => [...document.querySelectorAll("[data-table] td[data-metric]")].map(cell => [
          cell.closest("[data-table]").dataset.table, cell.closest("tr").dataset.run, cell.dataset.metric,
          cell.querySelector(".value").textContent, cell.innerText])"""
    )
    by_label = {result["label"]: result for result in results}
    seen = set()
    for table, label, metric, text, everything in cells:
        group = "metrics_generated_frames" if table.endswith("-generated") else "metrics"
        found = by_label[label][group][metric]
        digits = 2 if table.startswith(("driving", "panshot")) else SPECS[metric].digits
        seen.add((table, label, metric))
        if found["value"] is None:
            assert (metric, text) == ("ate_none", "-")
            continue
        assert text == f"{found['value']:.{digits}f}"
        low, high = found["interval"]
        assert f"{low:.{digits}f} to {high:.{digits}f}" in everything
        assert f"median {found['median_over_clips']:.{digits}f}" in everything
    groups = [(name, group) for name in SPECS for group in SPECS[name].groups]
    assert len(seen) == 2 * len(by_label) * len(groups)


def test_the_table_of_clips_holds_every_clip(visit, results):
    wanted = [
        [
            result["label"],
            clip["clip_id"],
            str(clip["num_frames"]),
            str(clip["num_registered"]),
            *(f"{clip['all_frames']['values'][key]:.{SPECS[key].digits}f}" for key in KEYS),
            ", ".join(clip["flags"]) or "-",
        ]
        for result in results
        for clip in result["clips"]
    ]
    assert shown_rows(visit.page) == wanted
    assert len(wanted) == 27


def test_best_is_bold_and_second_is_underlined(visit, results):
    styles = visit.page.evaluate(
        """() => [...document.querySelectorAll("[data-table=driving] td[data-metric=cammc] .value")].map(cell => {
          const style = getComputedStyle(cell);
          return [cell.closest("tr").dataset.run, Number(style.fontWeight), style.textDecorationLine];
        })"""
    )
    order = [label for label, _, _ in styles]
    mean = {result["label"]: result["metrics"]["cammc"]["value"] for result in results}
    rivals = [label for label in order if not label.startswith("noise floor")]
    assert rivals == sorted(rivals, key=lambda label: -mean[label])
    assert order[-1].startswith("noise floor")
    found = {label: (weight >= 600, "underline" in line) for label, weight, line in styles}
    assert found[LABELS[0]] == (True, False)
    assert found[LABELS[1]] == (False, True)
    for label in (LABELS[2], LONG, order[-1]):
        assert found[label] == (False, False)


def test_a_click_sorts_and_another_turns_it_round(visit):
    page = visit.page
    column = 4 + KEYS.index("cammc")
    head = page.locator("table.clips thead th").nth(column)
    for state in ("ascending", "descending"):
        head.locator("button").click()
        values = [float(row[column]) for row in shown_rows(page)]
        assert head.get_attribute("aria-sort") == state
        assert values == sorted(values, reverse=state == "descending")
    page.locator("table.clips thead button").first.click()
    assert head.get_attribute("aria-sort") is None
    labels = [row[0] for row in shown_rows(page)]
    assert labels == sorted(labels, key=str.lower)


def test_clips_are_found_by_run_name_and_flag(visit):
    page = visit.page
    form = page.locator("#clips form")
    form.locator("select").select_option(LONG)
    assert {row[0] for row in shown_rows(page)} == {LONG}
    form.locator("select").select_option("")
    form.locator("input[name=text]").fill("1/LEFT")
    assert {row[1] for row in shown_rows(page)} == {"scene-1/left"}
    form.locator("input[name=text]").fill("reversed")
    assert [(row[0], row[1]) for row in shown_rows(page)] == [("fair", "scene-1/original")]
    form.locator("input[name=text]").fill("")
    form.locator("input[name=flagged]").check()
    assert all(row[-1] != "-" for row in shown_rows(page))
    form.locator("input[name=flagged]").uncheck()
    assert page.locator("#clips output").text_content() == "27 of 27 rows"


def test_what_is_not_comparable_is_on_the_first_screen(visit):
    page = visit.page
    page.evaluate("() => scrollTo(0, 0)")
    banner = page.locator(".banner")
    assert banner.is_visible()
    assert "Not comparable" in banner.inner_text()
    assert "3 of 6 clips are missing." in banner.inner_text()
    box = banner.bounding_box()
    assert box["y"] + box["height"] < 900


@pytest.mark.parametrize("width", [900, 1200])
def test_flags_of_clips_are_in_the_window(browser, report, width):
    with opened(browser, report, width=width) as found:
        page = found.page
        edges = page.evaluate(
            """() => [...document.querySelectorAll("table.clips tr > :last-child")].map(cell => {
              const box = cell.getBoundingClientRect();
              return [box.left, box.right, cell.closest(".scroll").getBoundingClientRect().right];
            })"""
        )
    assert len(edges) == 28
    assert all(left > 0 and right <= inside + 0.5 <= width for left, right, inside in edges)


def test_the_page_fits_a_telephone(browser, report):
    with opened(browser, report, width=390) as found:
        wide = found.page.evaluate("() => document.documentElement.scrollWidth")
        assert wide == 390
        # Tables scroll inside themselves, and pictures shrink.
        assert found.page.evaluate("() => Math.max(...[...document.images].map(i => i.clientWidth))") <= 390
        assert found.console_errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_light_and_in_dark(browser, report, dark):
    with opened(browser, report, dark=dark) as found:
        background = found.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is not dark
        worst = contrasts(found.page)
        assert {"P", "TD", "TH", "SMALL", "A", "LI"} <= worst.keys()
        assert min(worst.values()) >= LEAST_CONTRAST, worst


def test_on_paper_nothing_scrolls_or_is_cut(browser, report):
    # A4 between margins of a centimetre, at 96 pixels an inch.
    with opened(browser, report, width=718) as found:
        found.page.emulate_media(media="print")
        assert found.page.locator("#clips form").is_hidden()
        assert found.page.evaluate("() => document.documentElement.scrollWidth") == 718
        assert found.page.evaluate(
            "() => [...document.querySelectorAll('.scroll')].every(e => getComputedStyle(e).overflowX === 'visible')"
        )
