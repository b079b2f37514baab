"""`quoth bench memory`: what records, topics and waits take, and what must not grow with the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.machine.commands import Command
from kit.machine.processes import needs_proc
from quothbench.figures import Spread
from quothbench.instruments.memory import APPEND_GOAL, COLUMNS, RECORD_GOAL
from quothbench.report import Report
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer

SHORT = (
    *("--batches", "200", "--topics", "50", "--waits", "200", "--pairs", "1"),
    *("--sizes", "1", "2", "--records", "1000", "20000"),
)
BYTES = [
    "a record, sparse index of a log",
    "a record, all of a log",
    "a record, the broker's process",
    "a sleeping topic",
    "a parked wait",
]
COMPARED = ["start-up until ready", "start-up until read and published", "publish of 100 x 100 B"]
HOW_MANY = [20_000, 20_000, 20_000, 50, 200, 2 * 2**20, 2 * 2**20, 20_000]


@needs_proc
def test_every_row_is_there_and_its_figures_are_sane(alone: Command, tmp_path: Path) -> None:
    told = alone("bench", "memory", *SHORT, "--dir", str(tmp_path), "--format", "json")
    assert told.status == 0, told.err
    conditions, *rows = told.objects
    assert conditions["benchmark"] == "memory"
    assert conditions["pairs"] == 1
    assert [row["figure"] for row in rows] == BYTES + COMPARED
    assert [row["how_many"] for row in rows] == HOW_MANY
    assert list(tmp_path.iterdir()) == []
    assert told.err == ""
    of = {row["figure"]: row for row in rows}
    for name in BYTES:
        assert of[name]["unit"] == "B"
        assert of[name]["aim"] < of[name]["required"]
        assert of[name]["ratio"] is None
    sparse, all_of_it = (of[name]["each"] for name in BYTES[:2])
    assert 24 / 2**16 * 100 < sparse < 10
    assert 0.9 * sparse < all_of_it < 10  # some numbers elsewhere are a few bytes shorter than before
    assert 100 < of["a sleeping topic"]["each"] < 200_000
    assert 100 < of["a parked wait"]["each"] < 100_000
    for name in COMPARED:
        row = of[name]
        assert row["each"] > 0, row
        assert row["few"] > 0, row
        assert row["ratio"]["median"] == pytest.approx(row["each"] / row["few"]), row
    assert of[COMPARED[0]]["each"] < of[COMPARED[1]]["each"]


def test_people_see_figures_of_any_size(capfd: pytest.CaptureFixture[str]) -> None:
    report = Report(Printer(Format.TEXT), "memory", {"pairs": 9}, COLUMNS)
    report.row("a record", "B", 2_000_000, 0.01234, None, None, *RECORD_GOAL)
    report.row("publish", "us", 10_000_000, 123.4, 120.0, Spread(1.03, 0.9, 1.1), *APPEND_GOAL)
    lines = capfd.readouterr().out.splitlines()
    end = lines.index("")
    assert [line.split()[0] for line in lines[:end]] == ["pairs", "machine", "versions"]
    head, record, publish = lines[end + 1 :]
    assert head.split() == ["figure", "unit", "how", "many", "each", "of", "few", "ratio", "required", "aim"]
    assert record.split()[2:] == ["B", "2,000,000", "0.0123", "-", "-", "0.1", "0.02"]
    told = ["us", "10,000,000", "123", "120", "1.03", "(0.90-1.10)", "1.25", "1.05"]
    assert publish.split()[1:] == told


@pytest.mark.parametrize(
    ("typed", "status", "code"),
    [
        (("--sizes", "64", "1"), 2, "usage"),
        (("--sizes", "0", "1"), 2, "usage"),
        (("--records", "1000", "10"), 2, "usage"),
        (("--sizes", "64"), 2, "usage"),
        (("--dir", "no/such/directory"), 3, "not_found"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_mistakes_are_told(alone: Command, typed: tuple[str, ...], status: int, code: str) -> None:
    told = alone("bench", "memory", *typed)
    assert told.status == status
    assert told.err.startswith(f"quoth: {code}: ")
    assert "\nhint: " in told.err
    assert told.out == b""
