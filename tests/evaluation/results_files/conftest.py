"""Runs that the tests of files share."""

import pytest

from tests.evaluation.scored import NASTY, clip, pairs, run


@pytest.fixture(scope="module")
def results():
    values = {"rot_deg": 1.0, "tr_percent": 2.0, "rot_err_rad": 0.5, "trans_err": 0.25, "scale": -0.5}
    return [
        run(
            label,
            [clip(name, pairs((40,)), given=9, cammc=float(n), **values) for name in "ab"],
            num_expected=expected,
        )
        for n, (label, expected) in enumerate([(NASTY, None), ("[B]", None), ("*C", 5), ("floor", None)])
    ]
