"""fidelity.json and the table: what is written is read back, and says under which protocol."""

import json
from dataclasses import replace

import pytest

from merope.errors import MeropeError
from merope.evaluation.fidelity import FidelityProtocol, measure, read_fidelity, write_fidelity
from merope.evaluation.fidelity.results import FILE, fidelity_table, read_fidelity_results
from tests.evaluation.fidelity.clips import in_memory, pixels
from tests.evaluation.fidelity.networks import frames_network, videos_network


@pytest.fixture(scope="module")
def results():
    sets = [
        in_memory(name, [pixels(seed + number, shift=shift) for number in range(6)])
        for name, seed, shift in (("real", 0, 0), ("near", 20, 5), ("far", 40, 60))
    ]
    return measure(
        sets[0],
        sets[1:],
        protocol=FidelityProtocol(exclude_prefix=3),
        frames_network=frames_network(),
        videos_network=videos_network(),
    )


def test_what_is_written_is_read_back(results, tmp_path):
    write_fidelity(tmp_path / FILE, results, real="real")
    assert read_fidelity_results(tmp_path / FILE) == results
    assert read_fidelity(tmp_path) == read_fidelity(tmp_path / FILE)
    metrics = read_fidelity(tmp_path)
    assert list(metrics) == ["near", "far"] and list(metrics["far"]) == ["fid", "kid", "fvd", "kvd"]
    fvd = metrics["far"]["fvd"]
    assert fvd.value == results[1].scores["fvd"].value
    assert fvd.protocol.startswith("unstable: 6 videos") and "the first 3 excluded" in fvd.protocol
    assert metrics["near"]["kid"].reason is None


def test_the_table_shows_marks_and_protocol(results):
    table = fidelity_table(results, real="real")
    for word in (
        "distance from real",
        f"{results[0].scores['fid'].value:.3f}",
        "* FVD of far: unstable: 6 videos, fewer than 1000",
        "near: 6 clips compared",
        "FID: protocol custom; 60 generated and 60 real frames of 6 clips each, T = 10: frames 3 to 12",
        "+- is the standard error, leaving one clip out",
    ):
        assert word in table


def test_missing_clips_are_named(results):
    short = replace(results[0], missing=tuple(f"m{number}" for number in range(7)), left_out=("x",))
    assert "; 1 not taken: x; 7 missing: m0, m1, m2, m3, m4, ..." in fidelity_table([short], real="real")


def test_unequal_protocols_are_neither_written_nor_read(results, tmp_path):
    other = replace(
        results[1].scores["fid"], protocol={**results[1].scores["fid"].protocol, "exclude_prefix": 0}
    )
    mixed = [results[0], replace(results[1], scores={"fid": other})]
    with pytest.raises(MeropeError, match="exclude_prefix is 3 and 0"):
        write_fidelity(tmp_path / FILE, mixed, real="real")
    assert not (tmp_path / FILE).exists()
    write_fidelity(tmp_path / FILE, results, real="real")
    content = json.loads((tmp_path / FILE).read_text())
    content["results"][1]["scores"]["fid"]["protocol"]["network_sha256"] = "other"
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(MeropeError, match="FID of near and of far cannot stand in one table: network_sha256"):
        read_fidelity(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"format": "merope-fidelity-0"}',
        '{"format": "merope-fidelity-1"}',
        '{"format": "merope-fidelity-1", "results": [{"label": "a"}]}',
        '{"format": "merope-fidelity-1", "results": [{"label": "a", "clips": [], "left_out": [], "missing": [], '
        '"frames_sha256": "", "scores": {"fid": {"value": 1, "uncertainty": null, "marks": [], "protocol": {}}}}]}',
    ],
)
def test_a_file_of_something_else_is_named(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(MeropeError, match=r"fidelity\.json holds no results of `merope fidelity`"):
        read_fidelity(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_fidelity(tmp_path)
