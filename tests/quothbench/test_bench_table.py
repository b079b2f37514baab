"""`quoth bench table`, on brokers of its own and on one that runs, and what its clients send."""

from __future__ import annotations

import signal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually
from kit.machine.commands import Command
from kit.machine.screens import Screen
from quothbench.instruments import table
from quothbench.instruments.table import Choice, Place, Row, Work
from quothbench.load import driver
from quothbench.load.rates import Payload
from quothbench.load.target import Target, running_broker
from quothbench.load.topics import Topics
from quothwire import batch
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched

SHORT = ("--seconds", "0.05")
SMALL = ("--topics", "3", "--clients", "1", "--clients", "2", "--records", "10", "--size", "10000", *SHORT)
QUANTILES = ("p50", "p90", "p99", "p99.9")


def options(**named: object) -> list[str]:
    """Options as they are typed."""
    return [word for name, value in named.items() for word in (f"--{name}", str(value))]


def check_rates(row: dict[str, Any], records: int, size: int) -> None:
    """Are these figures of a real measurement, and do they fit each other?"""
    assert row["calls_per_second"] > 0
    assert row["messages_per_second"] == pytest.approx(row["calls_per_second"] * records)
    assert row["megabytes_per_second"] == pytest.approx(row["messages_per_second"] * size / 1e6)
    quantiles = [row[f"{name}_seconds"] for name in QUANTILES]
    assert quantiles == sorted(quantiles)
    assert 0 < quantiles[0] < 20
    assert row["clients_microseconds_per_call"] > 0


def test_every_row_is_measured_and_every_topic_deleted(alone: Command, broker: BrokerProcess) -> None:
    with quoth.connect(broker.url) as client:
        client.publish("mine", b"kept")
        told = alone("bench", "table", *SMALL, "--url", broker.url, "--format", "json")
        assert (told.status, told.err) == (0, "")
        assert client.topics() == ["mine"]
    conditions, *rows = told.objects
    assert (conditions["batch"], conditions["value_bytes"], conditions["seconds"]) == (10, 10_000, 0.05)
    assert (conditions["broker"], conditions["directory"]) == (broker.url, str(broker.directory))
    assert {"machine", "versions"} <= set(conditions)
    found = [Row(*(row[name] for name in Row._fields)) for row in rows]
    assert found == Choice(topics=(3,), clients=(1, 2)).rows()
    assert len(found) == 10
    for row in rows:
        check_rates(row, 10, 10_000)


def test_a_subset_as_text(alone: Command, tmp_path: Path) -> None:
    chosen = options(work="write", topics=1, clients=2, durability="synced", records=3, size=70_000)
    told = alone("bench", "table", *chosen, *SHORT, "--dir", str(tmp_path))
    assert (told.status, told.err) == (0, "")
    heading, row = told.lines[-2:]
    assert heading.split()[:4] == ["work", "topics", "clients", "durability"]
    assert row.split()[:4] == ["write", "1", "2", "synced"]
    assert row.split()[-1] == "-", "Poe was measured with another payload"
    assert not list(tmp_path.iterdir())


def test_the_processor_time_of_the_broker_is_that_of_its_process(alone: Command) -> None:
    """The system counts it in steps of 10 ms, and a busy machine gives the broker a part of the time."""
    chosen = options(work="write", topics=1, clients=1, durability="written", seconds=1, format="json")
    _, row = alone("bench", "table", *chosen).objects
    assert 10 < row["broker_microseconds_per_call"] < 100_000


def test_interrupted_it_deletes_its_topics(alone: Command, broker: BrokerProcess) -> None:
    with quoth.connect(broker.url) as client:
        chosen = options(work="write", topics=2, clients=2, seconds=60, url=broker.url)
        running = alone.start("bench", "table", *chosen)
        topics = eventually(
            lambda: [name for name in client.topics() if name.startswith("bench-")], "it made topics"
        )
        eventually(lambda: client.topic(topics[0]).count, "its clients write")
        assert running.end(signal.SIGINT).status == 130
        assert not [name for name in client.topics() if name.startswith("bench-")]


def test_progress_is_shown_on_a_terminal(alone: Command, broker: BrokerProcess) -> None:
    screen = Screen(24, 80)
    chosen = options(work="read", topics=1, clients=1, url=broker.url, format="json")
    ended = screen.show_errors(alone, "bench", "table", *chosen, *SHORT)
    assert ended.status == 0
    assert len(ended.objects) == 2
    assert "storing what is read" in screen.seen


TYPED = {
    "--work wirte": "--work",
    "--clients none": "--clients",
    "--durability safe": "--durability",
    "--url tcp://127.0.0.1:1 --dir .": "--dir",
}


@pytest.mark.parametrize("typed", TYPED)
def test_typed_wrongly(alone: Command, typed: str) -> None:
    told = alone("bench", "table", *typed.split())
    assert (told.status, told.out) == (2, b"")
    assert TYPED[typed] in told.err
    assert len(told.err.splitlines()) == 2


def test_a_payload_that_no_batch_holds(alone: Command, broker: BrokerProcess) -> None:
    chosen = options(work="write", topics=1, clients=1, records=2, size=9_000_000, url=broker.url)
    told = alone("bench", "table", *chosen, *SHORT)
    assert told.status == 1
    assert told.err.startswith("quoth: too_large: ")


def test_nobody_is_there(alone: Command, tmp_path: Path) -> None:
    told = alone("--timeout", "0.1", "bench", "table", "--url", "tcp://127.0.0.1:1")
    assert (told.status, told.out) == (4, b"")
    assert told.err.startswith("quoth: disconnected: ")
    missing = alone("bench", "table", "--dir", str(tmp_path / "missing"))
    assert (missing.status, missing.out) == (3, b"")


# -- its parts ------------------------------------------------------------------------------------


def test_what_only_reads_is_measured_once_for_all_levels() -> None:
    assert len(Choice().rows()) == 30
    assert Choice((Work.READ,), (1,), (6,)).rows() == [Row(Work.READ, 1, 6, None)]


@pytest.mark.parametrize(
    ("published", "measured", "text"),
    [(40_000, 7_900, "40,000 (7,900)"), (60_000, None, "60,000"), (None, 9_300, "- (9,300)")],
)
def test_poe_has_one_figure_or_two(published: int | None, measured: int | None, text: str) -> None:
    assert table.poe_text({"published": published, "measured": measured}) == text


def test_poe_stands_beside_what_it_was_measured_with(alone: Command, broker: BrokerProcess) -> None:
    chosen = options(work="write", topics=1, clients=1, url=broker.url, format="json")
    _, written, synced = alone("bench", "table", *chosen, *SHORT).objects
    assert written["poe"] == {"published": None, "measured": 9_300}
    assert synced["poe"] is None


def test_a_broker_elsewhere_has_no_process_here(broker: BrokerProcess) -> None:
    for url in (broker.url, broker.url.replace("127.0.0.1", "localhost")):
        with quoth.connect(url) as client:
            assert running_broker(client) == Target(url, broker.pid)
    assert Target("tcp://192.0.2.1:5555").cpu() is None


def test_reads_go_on_by_pointer_and_begin_anew_at_the_end(broker: BrokerProcess) -> None:
    payload = Payload(7, 300_000)
    with quoth.connect(broker.url) as client, Topics(client, payload) as topics:
        names = topics.make(2, "written")
        places = list(map(Place, names, topics.fill(names)))
        stored = sum(len(place.cursors) for place in places)
        assert stored == 2 * 4
        requests = table._requests(Work.READ, places, payload)
        seen = []
        with driver.dealer(broker.url) as socket:
            for frames in islice(requests, 2 * stored):
                socket.send_multipart(frames)
                answer = binary_codec.decode_answer(socket.recv_multipart()[1:])
                assert isinstance(answer.reply, Fetched)
                seen.append(batch.check(answer.payload, answer.reply.log).base)
    assert seen[:stored] == seen[stored:], "the second round is not the first one"
    assert len(set(seen)) == stored


@pytest.mark.parametrize("work", [Work.WRITE, Work.ALTERNATING])
def test_what_was_written_once_is_stored_once(broker: BrokerProcess, work: Work) -> None:
    payload = Payload(5, 1)
    with quoth.connect(broker.url) as client, Topics(client, payload) as topics:
        places = [Place(name, [0]) for name in topics.make(3, "synced")]
        requests = table._requests(work, places, payload)
        with driver.dealer(broker.url) as socket:
            first = driver.round_trips(socket, requests, 0)
            others = driver.round_trips(socket, islice(requests, 11))
        assert (len(first), len(others)) == (1, 11), "time was over, or it was not"
        batches = 12 if work is Work.WRITE else 6
        found = [client.topic(place.topic) for place in places]
        assert [topic.count for topic in found] == [batches // 3 * payload.records] * 3
        assert {topic.settings["durability"] for topic in found} == {"synced"}
