"""`quoth bench api`: every method of the client, at both levels, for a time or for a number of messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Command
from quothbench.instruments import api
from quothbench.instruments.api import READS, WRITES, Budget, Stock, Use
from quothbench.load.rates import Payload
from quothbench.load.topics import Topics

WITH_CALLS = ("publish([values])", "publish(value)", "read(limit=1000)")
EXPECTED = [(name, level) for name in WRITES for level in ("written", "synced")] + [
    (name, None) for name in READS
]


def check_rates(row: dict[str, Any], size: int) -> None:
    """Are these figures of a real measurement, and do they fit each other?"""
    assert row["messages_per_second"] > 0
    assert row["megabytes_per_second"] == pytest.approx(row["messages_per_second"] * size / 1e6)
    assert row["clients_microseconds_per_message"] > 0
    assert "broker_microseconds_per_message" in row
    quantiles = [row[f"{name}_seconds"] for name in ("p50", "p90", "p99", "p99.9")]
    if row["method"] in WITH_CALLS:
        assert 0 < row["calls_per_second"] <= row["messages_per_second"]
        assert quantiles == sorted(quantiles)
        assert 0 < quantiles[0] < 20
    else:
        assert [row["calls_per_second"], *quantiles] == [None] * 5


def test_every_method_for_a_number_of_messages(alone: Command, broker: BrokerProcess) -> None:
    told = alone("bench", "api", "--messages", "300", "--url", broker.url, "--format", "json")
    assert (told.status, told.err) == (0, "")
    conditions, *rows = told.objects
    assert (conditions["clients"], conditions["messages"], conditions["batch"]) == (1, 300, 100)
    assert [(row["method"], row["durability"]) for row in rows] == EXPECTED
    for row in rows:
        check_rates(row, 100)
    with quoth.connect(broker.url) as client:
        assert client.topics() == []


def test_for_a_time_with_several_clients_as_text(alone: Command, tmp_path: Path) -> None:
    typed = "bench api --seconds 50ms --clients 2 --records 10 --size 50 --durability written"
    told = alone(*typed.split(), "--dir", str(tmp_path))
    assert (told.status, told.err) == (0, "")
    heading = next(number for number, line in enumerate(told.lines) if line.startswith("method"))
    rows = told.lines[heading + 1 :]
    assert [line.split()[0] for line in rows] == [*WRITES, *READS]
    assert [line.split()[1] for line in rows] == ["written"] * len(WRITES) + ["-"] * len(READS)
    assert not list(tmp_path.iterdir())


def test_the_url_may_stand_before_the_command(alone: Command, broker: BrokerProcess) -> None:
    told = alone("--url", broker.url, "--format", "json", "bench", "api", "--messages", "1")
    assert told.objects[0]["broker"] == broker.url


TYPED = {
    "--seconds 1h": "--seconds is at least 10 milliseconds and at most 10 minutes",
    "--seconds 1 --messages 5": "--messages",
    "--durability none": "--durability",
}


@pytest.mark.parametrize("typed", TYPED)
def test_typed_wrongly(alone: Command, typed: str) -> None:
    told = alone("bench", "api", *typed.split())
    assert (told.status, told.out) == (2, b"")
    assert TYPED[typed] in told.err
    assert len(told.err.splitlines()) == 2


# -- its parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", WRITES.values(), ids=WRITES)
def test_what_is_counted_is_stored(broker: BrokerProcess, topic: str, use: Use) -> None:
    with quoth.connect(broker.url) as client:
        messages, took = use(client, Stock(topic, Payload(10, 5).values), Budget(messages=25))
        assert messages == client.topic(topic).count
        assert 25 <= messages <= 30
        assert sum(took) >= 0


@pytest.mark.parametrize("use", READS.values(), ids=READS)
def test_reading_goes_round_until_it_is_enough(broker: BrokerProcess, use: Use) -> None:
    payload = Payload(700, 10_000)
    with quoth.connect(broker.url) as client, Topics(client, payload) as topics:
        (name,) = topics.make(1, "written")
        (cursors,) = topics.fill([name])
        stock = Stock(name, payload.values, len(cursors) * payload.records)
        assert stock.stored == 1_400
        messages, _ = use(client, stock, Budget(messages=3_000))
        assert 3_000 <= messages <= 3_000 + api.PAGE


def test_a_budget_ends_with_its_time_or_its_messages() -> None:
    assert Budget(seconds=0).meter()(0)
    is_over = Budget(messages=2).meter()
    assert [is_over(count) for count in (0, 1, 2, 3)] == [False, False, True, True]
