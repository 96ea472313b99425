"""results.csv: one row for each clip of each run, for spreadsheets and data frames."""

import csv
import io
from collections.abc import Collection, Sequence

from merope.evaluation.protocol import SPECS
from merope.evaluation.result import ClipResult, EvaluationResult, FrameSet

_FRAME_SETS: tuple[FrameSet, ...] = ("all", "generated")
COLUMNS = (
    *("run", "reference", "clip", "frames", "num_frames", "num_registered", "first_generated"),
    *SPECS,
    *("num_pairs", "num_pairs_with_vanishing_translation", "flags"),
)
"""The columns in order. ``frames`` is all or generated: a clip with figures over generated frames has two rows."""


def csv_text(results: Sequence[EvaluationResult], *, references: Collection[str] = ()) -> str:
    """The text of results.csv: numbers with all digits, cells empty where undefined, flags separated by semicolons."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in results:
        for clip in result.clips:
            for frames in _FRAME_SETS:
                row = _row(clip, frames)
                if row is not None:
                    writer.writerow([result.label, str(result.label in references).lower(), *row])
    return text.getvalue()


def _row(clip: ClipResult, frames: FrameSet) -> list[object] | None:
    scores = clip.scores(frames)
    if scores is None:
        return None
    # None becomes an empty cell.
    return [
        *(clip.clip_id, frames, clip.num_frames, clip.num_registered, clip.first_generated),
        *(scores.values.get(key) for key in SPECS),
        *(scores.pairs.num_pairs, scores.pairs.num_vanishing, ";".join(clip.flags)),
    ]
