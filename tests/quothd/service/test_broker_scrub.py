"""The scrub of sealed segments: a process in the background, with a bounded rate."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.deadlines import eventually
from kit.disk.damage import flip, truncate
from kit.disk.logs import segments
from kit.machine.processes import children, needs_proc, runs
from quothd.service.scrub_process import Throttle, scrub
from quothlog.file_format import FOOTER_BYTES
from quothlog.recovery.repair import repair
from quothwire.protocol.messages import CreateTopic, DeleteTopic

NAMES = ("a", "b", "c")


def fill(fast: FastPeer, topic: str) -> int:
    """Create a topic of three segments, two sealed, with ten records each; returns its log id."""
    log_id = int(fast.call(CreateTopic({"count_limit": 10}), topic).log)
    for _ in range(3):
        fast.publish(topic, [bytes(1_000)] * 10)
    return log_id


def folder(broker: BrokerProcess, topic: str) -> Path:
    """Return the folder of a topic."""
    (found,) = broker.topics_directory.glob(f"{topic}~*")
    return found


def counted(fast: FastPeer, name: str) -> int:
    """Return a counter of the broker."""
    return int(fast.status(limit=0).counters[name])


def test_a_round_finds_a_damaged_segment_and_counts_its_records(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(scrub_interval=0.2)
    fast = peers.fast(broker)
    for name in NAMES:
        fill(fast, name)
    eventually(lambda: counted(fast, "scrub_rounds") > 1, "rounds are done")
    assert (counted(fast, "scrub_damages"), counted(fast, "scrub_missing_records")) == (0, 0)
    path = segments(folder(broker, "b"))[1]
    flip(path, 500)
    eventually(lambda: counted(fast, "scrub_damages") == 1, "the damage is found")
    assert counted(fast, "scrub_missing_records") == 10
    line = broker.wait_for("event=damage_found")
    assert f"file={path} " in line
    assert " records=10 ordinal=10 " in line
    flip(path, 500)
    eventually(lambda: counted(fast, "scrub_damages") == 0, "it is whole again")


def test_the_active_segment_is_not_scrubbed(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(scrub_interval=0.2)
    fast = peers.fast(broker)
    fill(fast, "a")
    flip(segments(folder(broker, "a"))[-1], 500)
    rounds = counted(fast, "scrub_rounds")
    eventually(lambda: counted(fast, "scrub_rounds") > rounds + 1, "another round is done")
    assert counted(fast, "scrub_damages") == 0


def test_a_topic_without_a_header_block_is_damaged(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(scrub_interval=0.2)
    fast = peers.fast(broker)
    fill(fast, "a")
    for path in segments(folder(broker, "a")):
        flip(path, 20)
    broker.wait_for("event=scrub_failed")
    assert counted(fast, "scrub_damages") == 1


def test_a_repaired_segment_is_no_damage_any_more(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(scrub_interval=0.2)
    log_id = fill(peers.fast(broker), "a")
    broker.terminate()
    flip(segments(folder(broker, "a"))[0], 500)
    assert len(list(repair(folder(broker, "a"), log_id=log_id, others=("topic.json",)))) == 1
    broker.restart()
    fast = peers.fast(broker)
    eventually(lambda: counted(fast, "scrub_rounds") > 1, "rounds are done")
    assert counted(fast, "scrub_damages") == 0
    assert fast.describe("a").counters["quarantined_bytes"] > 10_000
    assert counted(fast, "quarantined_bytes") > 10_000


def test_a_missing_footer_or_index_is_no_damage(start_broker: StartBroker, peers: Peers) -> None:
    """The next opening rebuilds it."""
    broker = start_broker(scrub_interval=0.2)
    fast = peers.fast(broker)
    for name in "abcd":
        fill(fast, name)
    eventually(lambda: counted(fast, "scrub_rounds") > 0, "a round is done")
    a, b, c, d = (segments(folder(broker, name))[0] for name in "abcd")
    truncate(a, a.stat().st_size - FOOTER_BYTES)
    truncate(b, b.stat().st_size - FOOTER_BYTES // 2)
    flip(c, c.stat().st_size - 1)
    d.with_suffix(".idx").unlink()
    rounds = counted(fast, "scrub_rounds")
    eventually(lambda: counted(fast, "scrub_rounds") > rounds + 1, "a round has seen them")
    assert (counted(fast, "scrub_damages"), counted(fast, "scrub_missing_records")) == (0, 0)
    assert "event=damage_found" not in broker.stderr
    assert "event=scrub_failed" not in broker.stderr


def test_topics_may_be_created_and_deleted_during_a_round(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(scrub_interval=0.01, sync_interval=0.001)
    fast = peers.fast(broker)
    until = counted(fast, "scrub_rounds") + 5
    while counted(fast, "scrub_rounds") < until:
        fill(fast, "a")
        fast.call(DeleteTopic(), "a")
    assert counted(fast, "scrub_damages") == 0


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_process_ends_with_its_broker(start_broker: StartBroker, peers: Peers, number: int) -> None:
    """In the middle of a slow round, which does not delay the stop."""
    broker = start_broker(scrub_interval=0)
    fill(peers.fast(broker), "a")
    broker.terminate()
    broker.restart(scrub_interval=0.1, scrub_rate=100)  # a round takes minutes
    (scrubber,) = eventually(lambda: children(broker.pid), "a round is begun")
    broker.kill() if number == signal.SIGKILL else broker.terminate()
    eventually(lambda: not runs(scrubber), "it has ended")


@needs_proc
def test_a_scrub_interval_of_0_starts_no_process(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(scrub_interval=0, check_interval=0.01)
    fast = peers.fast(broker)
    fill(fast, "a")
    for _ in range(50):
        fast.publish("a", [b"x"])
    assert children(broker.pid) == []
    assert counted(fast, "scrub_rounds") == 0


def test_a_throttle_waits_as_long_as_its_rate_demands() -> None:
    """The throttle does not make up for time in which it could not work."""
    waited: list[float] = []
    throttle = Throttle(1_000_000, waited.append)
    begin = time.monotonic()
    for _ in range(100):
        throttle(10_000)
    took = time.monotonic() - begin
    assert max(waited) + took >= 0.9  # no real wait, so the time that is due grows
    assert max(waited) <= 1.0


def test_every_sealed_byte_is_read_once(start_broker: StartBroker, peers: Peers, tmp_path: Path) -> None:
    broker = start_broker()
    for name in NAMES:
        fill(peers.fast(broker), name)
    broker.terminate()
    read: list[int] = []
    reports = list(scrub(broker.directory, read.append))
    sizes = [path.stat().st_size for name in NAMES for path in segments(folder(broker, name))[:-1]]
    assert sum(read) == sum(sizes) == sum(one["bytes"] for one in reports)
    assert len(reports) == len(sizes)
