"""Every clip of every run in one table that can be sorted and filtered, and the flags in words."""

from collections.abc import Mapping, Sequence
from html import escape

from merope.evaluation.protocol import FLAGS, SPECS
from merope.evaluation.report.markup import bullets, paragraph, row_head, section, table
from merope.evaluation.result import ClipResult, format_value
from merope.evaluation.runs.run import ScoredRun

MAX_ROWS = 2000
"""Rows of the table over all runs; results.csv has every clip."""
KEYS = ("rot_deg", "tr_percent", "auc_3", "auc_10", "cammc", "rot_err_rad", "trans_err", "scale")
_EXAMPLES = 3


def flags_section(runs: Sequence[ScoredRun]) -> str:
    """Each raised flag: how many clips carry it, what it means, and the first of them with its own words."""
    items = []
    for run in runs:
        result = run.result
        for flag, count in result.flag_counts.items():
            if not count:
                continue
            carriers = [clip for clip in result.clips if flag in clip.flags]
            failures = {clip.clip_id: clip.failure for clip in run.clips if clip.failure}
            examples = "".join(
                f"<br><small>{escape(clip.clip_id)}: {escape(_own_words(clip, flag, failures))}</small>"
                for clip in carriers[:_EXAMPLES]
            )
            more = f"<br><small>and {count - _EXAMPLES} more</small>" if count > _EXAMPLES else ""
            items.append(
                f"<b>{escape(run.label)}</b>: {count} of {len(result.clips)} clip{'s' if len(result.clips) != 1 else ''} "
                f"<code>{escape(flag)}</code>: {escape(FLAGS[flag])}.{examples}{more}"
            )
    checked = f"Every clip was checked for: {', '.join(FLAGS)}."
    return section(
        "Flags",
        paragraph(checked if items else f"No clip was flagged. {checked}"),
        bullets(items),
        anchor="flags",
    )


def _own_words(clip: ClipResult, flag: str, failures: Mapping[str, str]) -> str:
    """What a clip's flag says of it; of a failure the estimator's own reason."""
    return failures.get(clip.clip_id, clip.flags[flag]) if flag == "failed" else clip.flags[flag]


def clips_section(runs: Sequence[ScoredRun]) -> str:
    """The table of clips, the worst of each run by CamMC where there are more than fit."""
    each = max(1, MAX_ROWS // len(runs))
    rows, left_out = [], 0
    for run in runs:
        clips = run.result.clips
        if len(clips) > each:
            left_out += len(clips) - each
            clips = tuple(sorted(clips, key=_worst_first)[:each])
        rows += [_row(run, clip) for clip in clips]
    names = [("run", ""), ("clip", ""), ("frames", ""), ("found", "poses")]
    names += [(SPECS[key].label, SPECS[key].unit) for key in KEYS]
    names.append(("flags", ""))
    head = [
        f'<th scope="col"><button type="button">{escape(name)}</button>'
        + (f"<small>{escape(unit)}</small>" if unit else "")
        + "</th>"
        for name, unit in names
    ]
    options = "".join(f"<option>{escape(run.label)}</option>" for run in runs)
    controls = (
        '<form class="controls" hidden><label>Run <select name="run"><option value="">all</option>'
        f'{options}</select></label> <label>Clip or flag <input name="text" type="search" autocomplete="off"></label> '
        '<label><input name="flagged" type="checkbox"> flagged only</label> <output aria-live="polite"></output></form>'
    )
    note = "A click on the head of a column sorts by it." + (
        f" The worst clips by CamMC are shown; {left_out} more are in results.csv." if left_out else ""
    )
    return section(
        "Clips",
        paragraph(note),
        controls,
        table("Every clip, over all frames", head, [rows], kind="clips"),
        anchor="clips",
    )


def _worst_first(clip: ClipResult) -> float:
    value = clip.all.values.get("cammc")
    return float("-inf") if value is None else -value


def _row(run: ScoredRun, clip: ClipResult) -> str:
    cells = []
    for key in KEYS:
        value = clip.all.values.get(key)
        sort = "" if value is None else f' data-value="{value!r}"'
        reason = clip.all.reasons.get(key)
        hint = f' title="{escape(reason)}"' if reason else ""
        cells.append(f"<td{sort}{hint}>{format_value(value, SPECS[key].digits)}</td>")
    words = escape("; ".join(f"{flag}: {text}" for flag, text in clip.flags.items()))
    flags = escape(", ".join(clip.flags) or "-")
    return (
        f'<tr data-flagged="{int(bool(clip.flags))}"><td class="words">{escape(run.label)}</td>{row_head(clip.clip_id)}'
        f'<td data-value="{clip.num_frames}">{clip.num_frames}</td>'
        f'<td data-value="{clip.num_registered}">{clip.num_registered}</td>{"".join(cells)}'
        f'<td class="words" title="{words}">{flags}</td></tr>'
    )
