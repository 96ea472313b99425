"""Every planned mutation of `make fuzz` once, and proof that readers are caught that guess, trust or let errors through."""

import numpy as np
import pytest

from merope.data.poses import files as pose_files
from merope.data.poses import table as pose_table
from merope.data.poses.formats import FORMATS, euroc, rds_hq, stamped
from merope.data.poses.formats.raw import PoseFormat
from tests.fuzz.cases import KINDS, planned, run, run_cases, sample
from tests.fuzz.seeds import seeds_of


@pytest.mark.parametrize("kind", KINDS)
def test_every_mutation_has_its_outcome(tmp_path, kind):
    report = run_cases(kind, sample(kind, 0, damage=10), seed=0, scratch=tmp_path)
    assert report.defects == []
    assert report.outcomes["refused"] > 20 and report.outcomes["read"] > 8


@pytest.mark.parametrize("kind", ["kitti", "rds-hq.tar", "colmap-binary", "nuscenes"])
def test_the_sample_has_every_planned_mutation(kind):
    rng = np.random.default_rng(1)
    names = {case.mutation for source in seeds_of(kind) for case in planned(kind, source, rng)}
    assert len(names) >= 30
    assert names <= {case.mutation for _, case in sample(kind, 0, damage=0)}


def split_anywhere(text):
    return text.splitlines()


def any_float(field):
    return float(field.replace(",", "."))


def unchecked(path, places, words, times):
    return None


def first_row_only(path, matrices, options, kind):
    return SETTLE(path, matrices, options, kind)[:1]


SETTLE = pose_files._settle_convention
WRONG_READERS = {
    "line ends of other scripts": ("kitti", pose_table, "lines_of", split_anywhere),
    "any word as a number": ("kitti", pose_table, "plain_number", any_float),
    "stamps that fall": ("euroc", stamped, "require_increasing", unchecked),
    "poses that are lost": ("npy", pose_files, "_settle_convention", first_row_only),
    "tar archives that lead out": ("rds-hq.tar", rds_hq, "_refuse_unsafe", lambda path, member: None),
}


@pytest.mark.parametrize("case", WRONG_READERS)
def test_a_reader_that_does_it_wrong_is_found(tmp_path, monkeypatch, case):
    kind, module, name, wrong = WRONG_READERS[case]
    seeds_of(kind)
    monkeypatch.setattr(module, name, wrong)
    if name == "require_increasing":
        monkeypatch.setattr(euroc, name, wrong)
        monkeypatch.setattr(pose_files, "Poses", Unordered(pose_files.Poses))
    assert run_cases(kind, sample(kind, 0, damage=0), seed=0, scratch=tmp_path).defects


class Unordered:
    """Poses that drop their times where they do not increase, as a careless reader would."""

    def __init__(self, kind):
        self.kind = kind

    def from_matrices(self, matrices, *, times=None, **rest):
        if times is not None and (np.diff(times) <= 0).any():
            times = None
        return self.kind.from_matrices(matrices, times=times, **rest)


@pytest.mark.parametrize("error", [RuntimeError("NumPy says no"), KeyError("frames"), MemoryError()])
def test_an_error_that_is_not_ours_is_found(tmp_path, monkeypatch, error):
    def read(path, options):
        raise error

    seeds_of("merope")
    monkeypatch.setitem(FORMATS, "merope", PoseFormat(about="", read=read))
    report = run("merope", count=5, seed=0, scratch=tmp_path)
    assert report.outcomes == {"traceback": 5}
    assert len(report.defects) == 5
