"""Figures: the order of turns, quantiles, and how people see them."""

from __future__ import annotations

import pytest

from quothbench.figures import Goal, Spread, quantiles, rotate
from quothbench.instruments import latency, memory
from quothbench.instruments.poe_calls import Load
from quothbench.instruments.table import PAYLOAD, Row, poe, rows
from quothbench.load.topics import Payload
from quothbench.report import Report, published
from quothcli.printing.output import Format, Printer


def test_each_thing_begins_in_its_turn_after_a_round_that_does_not_count() -> None:
    order: list[str] = []

    def take(name: str) -> str:
        order.append(name)
        return f"{name}{len(order)}"

    measured = rotate([lambda: take("a"), lambda: take("b"), lambda: take("c")], 2)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert measured == [["a6", "b4", "c5"], ["a8", "b9", "c7"]]


def test_spread_of_ratios_divides_the_second_figure_by_the_first_one() -> None:
    assert Spread.of_ratios([(2, 4), (1, 3), (4, 2)]) == (2, 0.5, 3)


def test_quantiles_are_figures_that_were_measured() -> None:
    assert list(quantiles(range(1, 1_001)).values()) == [500, 900, 990, 999]
    assert list(quantiles([3.0]).values()) == [3.0] * 4


def test_reads_have_one_row_for_all_levels() -> None:
    assert len(rows()) == 48
    for work in (Load.READ, Load.READ_WRAP):
        assert rows((work,), (1,), (6,)) == [Row(work, 1, 6, None)]


def test_ancestor_has_one_figure_or_two() -> None:
    texts = {(40_000, 7_900): "40,000 (7,900)", (60_000, None): "60,000", (None, 9_300): "- (9,300)"}
    for (figure, measured), text in texts.items():
        assert published({"published": figure, "measured": measured}) == text


def test_poe_stands_beside_the_work_that_was_published() -> None:
    beside = [row for row in rows() if poe(row, PAYLOAD)]
    assert {row.durability for row in beside} == {"written", None}, "Poe did not sync"
    assert {row.work for row in beside} == set(Load) - {Load.WRITE_MINI}
    assert poe(Row(Load.WRITE, 1, 6, "written"), PAYLOAD) == {"published": 40_000, "measured": 7_900}
    for work in (Load.READ, Load.READ_WRAP):
        assert poe(Row(work, 100, 20, None), PAYLOAD) == {"published": 3_500_000, "measured": None}
    assert not any(poe(row, Payload(100, 1)) for row in rows())


def test_people_see_times_ratios_and_figures_of_any_size(capfd: pytest.CaptureFixture[str]) -> None:
    times = Report(Printer(Format.TEXT), "latency", {"seconds": 5}, latency.COLUMNS)
    took = (0.0001, 0.0002, 0.0015, 0.002, 0.25)
    times.row("to tail, long poll", "written", 20.0, 2_000, *took, 2.5, *Goal(3.0, 2.0))
    sizes = Report(Printer(Format.TEXT), "memory", {"pairs": 9}, memory.COLUMNS)
    sizes.row("a record", "B", 2_000_000, 0.01234, None, None, *memory.RECORD_GOAL)
    sizes.row("publish", "us", 10_000_000, 123.4, 120.0, Spread(1.03, 0.9, 1.1), *memory.APPEND_GOAL)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["seconds", "5"]
    assert lines[lines.index("") + 1].split()[:4] == ["figure", "level", "rate/s", "calls"]
    expected = "written 20 2,000 100 us 200 us 1.50 ms 2.00 ms 250.00 ms 2.50 3.00 2.00"
    assert lines[lines.index("") + 2].split()[4:] == expected.split()
    assert lines[-2].split()[2:] == ["B", "2,000,000", "0.0123", "-", "-", "0.1", "0.02"]
    assert lines[-1].split()[1:] == ["us", "10,000,000", "123", "120", "1.03", "(0.90-1.10)", "1.25", "1.05"]
