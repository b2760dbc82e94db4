"""Tables of measurements: ratios of pairs, targets, what is printed, and the exit status."""

import json

import pytest

from benchmarks.common import Row, Table, Target, Versions, compared

VERSIONS = Versions(programs={"this": "1.0"}, machine="a machine")


def table(*rows: Row) -> Table:
    return Table(title="Things", first="ours", second="theirs", rows=rows, versions=VERSIONS, remarks=["so"])


def row(ratio: float, target: Target | None = None, *, what: str = "thing") -> Row:
    return Row(what=what, first=ratio * 2, second=2.0, unit="MB/s", ratio=ratio, target=target)


def test_the_ratio_is_the_median_of_pairs_not_of_columns() -> None:
    """The second pair was slowed by a neighbour, both halves of it; the third had luck in one half."""
    found = compared("x", [100.0, 10.0, 80.0], [200.0, 20.0, 40.0], unit="MB/s")
    assert (found.first, found.second, found.ratio) == (80.0, 40.0, 0.5)


def test_repetitions_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        compared("x", [1.0, 2.0], [1.0], unit="MB/s")


@pytest.mark.parametrize(
    ("target", "ratio", "missed"),
    [
        (Target(least=0.8), 0.8, False),
        (Target(least=0.8), 0.79, True),
        (Target(most=2.0), 2.0, False),
        (Target(most=2.0), 2.01, True),
        (Target(most=2.0), float("nan"), True),
        (None, 0.0, False),
    ],
)
def test_a_target_is_met_or_missed(target: Target | None, ratio: float, missed: bool) -> None:
    assert row(ratio, target).missed is missed


def test_a_table_says_what_was_met_and_on_what() -> None:
    lines = table(row(0.9, Target(least=0.8)), row(0.5, Target(least=0.8), what="other")).text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:6]]
    assert cells == [
        ["thing", "1.80", "2", "MB/s", "0.90", "at least 0.8", "met"],
        ["other", "1", "2", "MB/s", "0.50", "at least 0.8", "MISSED"],
    ]
    assert lines[-3:] == ["- a machine", "- this 1.0", "- so"]


def test_json_is_one_document_with_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert table(row(3.0, Target(most=2.0)), row(1.0)).publish(json=True, check=False) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"] == [
        {"what": "thing", "first": 6.0, "second": 2.0, "unit": "MB/s", "ratio": 3.0,
         "target": "at most 2", "met": False},
        {"what": "thing", "first": 2.0, "second": 2.0, "unit": "MB/s", "ratio": 1.0},
    ]  # fmt: skip
    assert document["columns"] == ["ours", "theirs"]
    assert document["versions"] == {"this": "1.0"}


def test_a_check_names_the_rows_that_miss(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (row(0.9, Target(least=0.8)), row(0.1, Target(least=0.8), what="slow"), row(0.1, what="free"))
    assert table(*rows).publish(json=False, check=True) == 1
    assert capsys.readouterr().err == "target missed: slow\n"
    assert table(rows[0], rows[2]).publish(json=False, check=True) == 0


def test_versions_are_those_of_what_runs() -> None:
    versions = Versions.here("msgspec", other="2")
    assert {"CPython", "OpenSSL", "fusion-swarm", "msgspec", "other"} <= set(versions.programs)
    assert "cores" in versions.machine
