"""`quoth bench`: each command once, with its rows, and mistakes in what is typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Command, Ended
from kit.machine.processes import needs_proc
from quothbench.instruments import aio, api
from quothbench.instruments.ratio import FIGURES
from quothbench.instruments.table import Row, rows

QUANTILES = ("p50", "p90", "p99", "p99.9")


def measured(ended: Ended, benchmark: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The conditions and the rows of a benchmark in JSON."""
    assert (ended.status, ended.err) == (0, "")
    conditions, *found = ended.objects
    assert {one["benchmark"] for one in ended.objects} == {benchmark}
    assert {"machine", "versions"} <= set(conditions)
    return conditions, found


def check_rates(row: dict[str, Any], size: int) -> None:
    """Check that the figures of a row fit each other. size: bytes of a message."""
    assert row["messages_per_second"] > 0
    assert row["megabytes_per_second"] == pytest.approx(row["messages_per_second"] * size / 1e6)
    quantiles = [row[f"{name}_seconds"] for name in QUANTILES]
    if row["calls_per_second"] is None:
        assert quantiles == [None] * 4
    else:
        assert 0 < row["calls_per_second"] <= row["messages_per_second"]
        assert quantiles == sorted(quantiles)
        assert 0 < quantiles[0] < 20


def check_ratio(row: dict[str, Any], one: float, other: float, name: str = "ratio") -> None:
    """Check the ratio of a single pair of measurements."""
    assert row[name]["median"] == pytest.approx(other / one)
    assert 0.01 < row[name]["low"] <= row[name]["high"] < 100


def test_api_measures_every_method_and_deletes_its_topics(alone: Command, broker: BrokerProcess) -> None:
    conditions, found = measured(
        alone("--url", broker.url, "bench", "api", "--messages", "300", "--format", "json"), "api"
    )
    assert (conditions["broker"], conditions["directory"]) == (broker.url, str(broker.directory))
    assert (conditions["clients"], conditions["messages"], conditions["batch"]) == (1, 300, 100)
    expected = [(name, level) for name in api.WRITES for level in ("written", "synced")]
    assert [(row["method"], row["durability"]) for row in found] == [
        *expected, *((name, None) for name in api.READS),
    ]  # fmt: skip
    for row in found:
        check_rates(row, 100)
        assert (row["calls_per_second"] is None) == (row["method"] in ("send()", "batches()", "tail()"))
        assert row["clients_microseconds_per_message"] > 0
    with quoth.connect(broker.url) as client:
        assert client.topics() == []


def test_aio_measures_all_three_in_turn(alone: Command, broker: BrokerProcess) -> None:
    typed = "bench aio --rounds 1 --seconds 20ms --durability written --format json"
    _, found = measured(alone(*typed.split(), "--url", broker.url), "aio")
    expected = [(name, "written") for name in (*aio.WRITES, *aio.READS)]
    assert [(row["figure"], row["durability"]) for row in found] == expected
    for row in found:
        blocking, bare, awaited = (row[name]["median"] for name in ("quoth", "zmq_asyncio", "quoth_aio"))
        assert min(blocking, bare, awaited) > 0
        assert row["ratio_to_quoth"]["median"] == pytest.approx(awaited / blocking)
        assert row["ratio_to_zmq_asyncio"]["median"] == pytest.approx(awaited / bare)


def test_ratio_measures_the_figures_that_begin_as_asked(alone: Command, tmp_path: Path) -> None:
    typed = "bench ratio --pairs 1 --figure publish --format json --dir"
    chosen = ("--figure", "read 1 MB, s", "--figure", "write 100")
    conditions, found = measured(alone(*typed.split(), str(tmp_path), *chosen), "ratio")
    assert (conditions["durability"], conditions["pairs"]) == ("written", 1)
    goals = {row["figure"]: (row["unit"], row["required"], row["aim"]) for row in found}
    goals.pop("  processor a call", None)  # the system counts processor time, or not
    assert goals == {
        "write 100 x 100 B": ("calls/s", 0.70, 0.85),
        "read 1 MB, sealed": ("calls/s", 0.90, 0.97),
        "publish of 1 x 100 B, p50": ("us", 2.0, 1.5),
    }
    for row in found:
        check_ratio(row, row["bare"]["median"], row["quoth"]["median"])
    assert not list(tmp_path.iterdir())


def test_table_measures_every_combination(alone: Command, broker: BrokerProcess) -> None:
    typed = "bench table --topics 3 --clients 1 --clients 2 --records 10 --size 10000 --seconds 50ms"
    conditions, found = measured(alone(*typed.split(), "--url", broker.url, "--format", "json"), "table")
    assert (conditions["batch"], conditions["value_bytes"], conditions["seconds"]) == (10, 10_000, 0.05)
    assert [Row(*(row[name] for name in Row._fields)) for row in found] == rows(topics=(3,), clients=(1, 2))
    for row in found:
        check_rates(row, 10_000)
        assert row["messages_per_second"] == pytest.approx(row["calls_per_second"] * 10)
        assert row["clients_microseconds_per_call"] > 0
        assert row["poe"] is None, "Poe was measured with another payload"


def test_table_shows_poe_and_the_broker_s_processor_time(alone: Command) -> None:
    """The system counts processor time in steps of 10 ms, so this takes a second."""
    typed = "bench table --work write --topics 1 --clients 1 --durability written --seconds 1 --format json"
    _, (row,) = measured(alone(*typed.split()), "table")
    assert row["poe"] == {"published": None, "measured": 9_300}
    assert 10 < row["broker_microseconds_per_call"] < 100_000


def test_latency_measures_calls_schedules_and_tails(alone: Command, tmp_path: Path) -> None:
    typed = (
        "bench latency --calls 20 --rate 100 --rate 400 --tail-rate 100 --seconds 100ms --format json --dir"
    )
    _, found = measured(alone(*typed.split(), str(tmp_path)), "latency")
    publish = "publish of 1 x 100 B"
    alone_rows, scheduled, tailed = found[:4], found[4:8], found[8:]
    assert [(row["figure"], row["durability"]) for row in alone_rows] == [
        (publish, "written"), (publish, "synced"), ("fetch of 1 x 100 B", None), ("ping", None),
    ]  # fmt: skip
    assert [(row["durability"], row["rate"], row["calls"]) for row in scheduled] == [
        (durability, rate, rate / 10) for durability in ("written", "synced") for rate in (100, 400)
    ]
    assert {row["held"] for row in scheduled} == {0}
    for record, published, pinged in zip(tailed[::3], tailed[1::3], tailed[2::3], strict=True):
        assert record["calls"] == published["calls"] == pinged["calls"] == record["rate"] / 10
        assert record["ratio"] > 0
        assert record["required"] == (3 if record["rate"] == 20 else None)
    assert [row["figure"].removeprefix("to tail, ") for row in tailed[::3]] == [
        "long poll",
        "client.tail",
    ] * 2
    for row in found:
        quantiles = [row[f"{name}_seconds"] for name in (*QUANTILES, "max")]
        assert 0 < quantiles[0] < 10
        assert quantiles == sorted(quantiles)
    assert not list(tmp_path.iterdir())


@needs_proc
def test_memory_measures_bytes_and_growth(alone: Command, tmp_path: Path) -> None:
    typed = "bench memory --batches 200 --topics 50 --waits 200 --pairs 1 --sizes 1 2 --records 1000 20000"
    _, found = measured(alone(*typed.split(), "--format", "json", "--dir", str(tmp_path)), "memory")
    of = {row["figure"]: row for row in found}
    assert [(row["how_many"], row["unit"]) for row in found] == [
        *[(20_000, "B")] * 2, (50, "B"), (200, "B"), *[(2 * 2**20, "ms")] * 2, (20_000, "us"),
    ]  # fmt: skip
    sparse, all_of_it = (of[f"a record, {part} of a log"]["each"] for part in ("sparse index", "all"))
    assert 24 / 2**16 * 100 < sparse < 10
    assert sparse - 0.1 < all_of_it < 10  # other values are a few hundred bytes smaller than before
    assert 100 < of["a hibernating topic"]["each"] < 200_000
    assert 100 < of["a long poll"]["each"] < 100_000
    for row in found[4:]:
        check_ratio(row, row["few"], row["each"])
    assert found[4]["each"] < found[5]["each"], "ready before an answer"
    assert not list(tmp_path.iterdir())


def test_steps_measures_every_step(alone: Command) -> None:
    _, found = measured(alone("bench", "steps", "--trial", "1ms", "--format", "json"), "steps")
    assert all(0 < row["nanoseconds"]["low"] <= row["nanoseconds"]["median"] for row in found)
    assert {row["of"] for row in found} == {"call", "both", "record"}
    assert all((row["required"] is None) == (row["of"] != "record") for row in found)
    steps = {row["step"]: row["nanoseconds"] for row in found}
    whole = steps["publish: check, append, write, alone"]
    assert steps["publish: check the batch"]["low"] < whole["median"]


def test_text_has_conditions_and_a_line_for_each_row(alone: Command, tmp_path: Path) -> None:
    typed = "bench api --seconds 50ms --clients 2 --records 10 --size 50 --durability written --dir"
    ended = alone(*typed.split(), str(tmp_path))
    assert (ended.status, ended.err) == (0, "")
    conditions, table = ended.lines[: ended.lines.index("")], ended.lines[ended.lines.index("") + 1 :]
    assert conditions[0].split() == ["clients", "2"]
    assert table[0].split()[:3] == ["method", "durability", "messages/s"]
    assert [line.split()[:2] for line in table[1:]] == [
        *([name, "written"] for name in api.WRITES), *([name, "-"] for name in api.READS),
    ]  # fmt: skip
    assert not list(tmp_path.iterdir())


MISTAKES = {
    "api --seconds 1h": (2, "--seconds is at least 10 milliseconds and at most 10 minutes"),
    "api --seconds 1 --messages 5": (2, "--messages"),
    "api --durability none": (2, "--durability"),
    "latency --rate 0": (2, "--rate"),
    "latency --records 1000 --size 10000": (1, "too_large"),
    "memory --sizes 64 1": (2, "--sizes"),
    "memory --sizes 0 1": (2, "--sizes"),
    "memory --records 1000 10": (2, "--records"),
    "peers --peer kafka": (2, "kafka"),
    "ratio --figure write --figure Read": (2, f"'Read', only {'; '.join(FIGURES)}"),
    "spark --figure sauce": (2, "--figure"),
    "spark --size -1": (2, "--size"),
    "table --work wirte": (2, "--work"),
    "table --url tcp://127.0.0.1:1 --dir .": (2, "--dir"),
    "table --dir no/such/directory": (3, "not_found"),
    "--timeout 0.1 table --url tcp://127.0.0.1:1": (4, "disconnected"),
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_mistake_is_an_error_with_a_hint(alone: Command, typed: str) -> None:
    words = typed.split()
    before, words = (words[:2], words[2:]) if words[0].startswith("-") else ([], words)
    status, text = MISTAKES[typed]
    ended = alone(*before, "bench", *words)
    assert (ended.status, ended.out) == (status, b"")
    assert text in ended.err
    assert "\nhint: " in ended.err


def test_payload_that_no_batch_holds_is_an_error_of_the_broker(alone: Command, broker: BrokerProcess) -> None:
    typed = "bench table --work write --topics 1 --clients 1 --records 2 --size 9000000 --seconds 50ms"
    ended = alone(*typed.split(), "--url", broker.url)
    assert ended.status == 1
    assert ended.err.startswith("quoth: too_large: ")
