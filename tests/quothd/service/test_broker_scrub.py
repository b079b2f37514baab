"""The scrub of sealed segments: a process in the background, with a bounded rate."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.deadlines import becomes, eventually
from kit.disk.damage import flip, truncate
from kit.disk.logs import segments
from kit.machine.processes import children, needs_proc, runs
from quothd import Broker
from quothd.service.scrub_process import Throttle, scrub
from quothlog.file_format import FOOTER_BYTES
from quothlog.recovery.repair import repair
from quothwire.protocol.messages import CreateTopic

NAMES = ("a", "b", "c")


def fill(fast: FastPeer, topic: str) -> int:
    """Create a topic of three segments, two sealed, with ten records each; returns its log id."""
    log_id = int(fast.call(CreateTopic({"count_limit": 10}), topic).log)
    for _ in range(3):
        fast.publish(topic, [bytes(1_000)] * 10)
    return log_id


def counted(fast: FastPeer, name: str) -> int:
    return int(fast.status(limit=0).counters[name])


def test_a_round_finds_a_damaged_segment_and_counts_its_records(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Until it is whole again, or repaired. A topic without a header block is damaged."""
    broker = start_broker(scrub_interval=0.2)
    fast = peers.fast(broker)
    log_ids = {name: fill(fast, name) for name in NAMES}
    eventually(lambda: counted(fast, "scrub_rounds") > 0, "a round is done")
    assert (counted(fast, "scrub_damages"), counted(fast, "scrub_missing_records")) == (0, 0)
    path = segments(broker.folder("b"))[1]
    flip(path, 500)
    becomes(
        lambda: (counted(fast, "scrub_damages"), counted(fast, "scrub_missing_records")),
        (1, 10),
        "the damage is found",
    )
    line = broker.wait_for("event=damage_found")
    assert f"file={path} " in line
    assert " records=10 ordinal=10 " in line
    flip(path, 500)
    eventually(lambda: counted(fast, "scrub_damages") == 0, "it is whole again")
    for headless in segments(broker.folder("c")):
        flip(headless, 20)
    broker.wait_for("event=scrub_failed")
    becomes(lambda: counted(fast, "scrub_damages"), 1, "the damage is counted once, for the whole topic")
    fast.close()
    broker.terminate()
    shutil.rmtree(broker.folder("c"))
    flip(path, 500)
    assert len(list(repair(broker.folder("b"), log_id=log_ids["b"], others=("topic.json",)))) == 1
    broker.restart()
    fast = peers.fast(broker)
    eventually(lambda: counted(fast, "scrub_rounds") > 0, "a round is done")
    assert counted(fast, "scrub_damages") == 0
    assert fast.describe("b").counters["quarantined_bytes"] > 10_000
    assert counted(fast, "quarantined_bytes") > 10_000


def test_a_missing_footer_or_index_is_no_damage(tmp_path: Path) -> None:
    """The next opening rebuilds it. The active segment is not checked."""
    with Broker(tmp_path) as broker, FastPeer(broker.context, broker.url) as fast:
        for name in "abcde":
            fill(fast, name)
    a, b, c, d, e = (segments(path) for path in sorted((tmp_path / "topics").iterdir()))
    truncate(a[0], a[0].stat().st_size - FOOTER_BYTES)
    truncate(b[0], b[0].stat().st_size - FOOTER_BYTES // 2)
    flip(c[0], c[0].stat().st_size - 1)
    d[0].with_suffix(".idx").unlink()
    flip(e[-1], 500)
    reports = list(scrub(tmp_path, lambda _size: None))
    assert len(reports) == 2 * len("abcde"), "one for each sealed segment"
    assert not any(one["damages"] or "problem" in one for one in reports)


@needs_proc
def test_the_process_ends_with_its_broker(start_broker: StartBroker, peers: Peers) -> None:
    """In the middle of a slow round, which does not delay the stop. An interval of 0 starts no process."""
    broker = start_broker(scrub_interval=0, check_interval=0.01)
    fast = peers.fast(broker)
    fill(fast, "a")
    for _ in range(50):
        fast.publish("a", [b"x"])
    assert children(broker.pid) == []
    assert counted(fast, "scrub_rounds") == 0
    fast.close()
    broker.terminate()
    for end in (broker.kill, broker.terminate):
        broker.restart(scrub_interval=0.1, scrub_rate=100)  # a round takes minutes
        (scrubber,) = eventually(lambda: children(broker.pid), "a round is begun")
        end()
        eventually(lambda scrubber=scrubber: not runs(scrubber), "it has ended")  # type: ignore[misc]


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


def test_every_sealed_byte_is_read_once_and_deleted_topics_are_skipped(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, FastPeer(broker.context, broker.url) as fast:
        for name in NAMES:
            fill(fast, name)
    read: list[int] = []
    reports = list(scrub(tmp_path, read.append))
    topics = list((tmp_path / "topics").iterdir())
    sizes = [path.stat().st_size for one in topics for path in segments(one)[:-1]]
    assert sum(read) == sum(sizes) == sum(one["bytes"] for one in reports)
    assert len(reports) == len(sizes)

    def delete(_size: int) -> None:
        for one in topics:
            shutil.rmtree(one, ignore_errors=True)

    assert not any(one["damages"] or "problem" in one for one in scrub(tmp_path, delete))
    assert list(scrub(tmp_path, delete)) == []
