"""Openings of topics: their progress, and the findings that topic, broker and log report."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, hibernates
from kit.clocks import ManualClock
from kit.deadlines import eventually
from kit.disk.damage import truncate
from kit.disk.logs import boundaries, encoded, segments
from quothd import Broker
from quothlog import Log
from quothlog.datadir import topic_file
from quothlog.file_format import FOOTER_BYTES
from quothlog.storage.clock import SystemClock
from quothwire.errors import QuothError
from quothwire.protocol.messages import DeleteTopic, RollTopic

BATCHES = 40_000


class FastClock(SystemClock):
    """A clock on which fifty seconds pass in one."""

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return 50 * super().monotonic()


def ended(broker: BrokerProcess, fast: FastPeer) -> Path:
    """End a broker; returns the folder of its only topic."""
    fast.close()
    assert broker.terminate() == 0
    (folder,) = broker.topics_directory.iterdir()
    return folder


def test_a_long_opening_reports_its_progress(
    tmp_path: Path, peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    """In the error for readers, and in the log."""
    caplog.set_level(logging.INFO, "quothd")
    with Broker(tmp_path / "data", host="127.0.0.1") as broker:
        fast = peers.fast(broker)
        fast.publish("t", [b"first"])
        fast.close()
    (folder,) = (tmp_path / "data" / "topics").iterdir()
    with Log.open(folder) as log:
        raw = encoded([b"x"])
        for _ in range(BATCHES // 1_000):
            log.append_batches([raw] * 1_000)
    (segment,) = segments(folder)
    segment.with_suffix(".idx").unlink()  # as after a crash
    texts = []
    with Broker(tmp_path / "data", host="127.0.0.1", recovering_after=0.0, clock=FastClock()) as broker:
        fast = peers.fast(broker)
        while True:
            try:
                found = fast.fetch("t")
            except QuothError as problem:
                if problem.code != "recovering":
                    raise
                texts.append(problem.text)
            else:
                break
        assert found.reply.end == BATCHES + 1
        fast.close()
    reports = [text for text in texts if "bytes have been looked through" in text]
    assert reports
    done, _, size, *_ = reports[-1].rpartition(" s, ")[2].split()
    assert 0 < int(done) < int(size) < segment.stat().st_size
    assert "event=topic_opening topic=t" in caplog.text


def counter(fast: FastPeer, name: str) -> tuple[int, int]:
    """A counter of the topic `t`, and that of all topics."""
    return fast.describe("t").counters[name], fast.status(limit=0).counters[name]


def test_counters_survive_hibernation(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(worker_timeout=0.01)
    fast = peers.fast(broker)
    for number in range(1, 4):
        fast.publish("t", [b"x"])
        fast.call(RollTopic(), "t")
        eventually(lambda: hibernates(fast), "it hibernates")
        assert fast.describe("t").counters["rolls"] == number


def test_torn_bytes_are_counted_by_topic_and_broker_until_the_next_opening(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(worker_timeout=0.01)
    fast = peers.fast(broker)
    for name in ("t", "other"):
        fast.publish(name, [b"x"])
    for name in ("torn_bytes", "quarantined_bytes", "damaged_bytes", "clock_steps"):
        assert counter(fast, name) == (0, 0)
    fast.close()
    broker.kill()
    for folder in broker.topics_directory.iterdir():
        with segments(folder)[-1].open("ab") as file:
            file.write(os.urandom(100))
    fast = peers.fast(broker.restart())
    eventually(lambda: fast.status(limit=0).counters["unopened"] == 0, "both have been opened")
    eventually(lambda: counter(fast, "torn_bytes") == (100, 200), "both are counted")
    assert counter(fast, "quarantined_bytes") == (100, 200)
    fast.publish("t", [b"y"])
    assert counter(fast, "torn_bytes") == (100, 200)
    fast.call(DeleteTopic(), "other")
    assert counter(fast, "torn_bytes") == (100, 100)
    fast.close()
    assert broker.terminate() == 0
    fast = peers.fast(broker.restart())
    eventually(lambda: counter(fast, "quarantined_bytes") == (100, 100), "the file is still there")
    assert counter(fast, "torn_bytes") == (0, 0)


def test_lost_records_are_reported(start_broker: StartBroker, peers: Peers) -> None:
    """By the log, the topic, the broker and each reply to a reader."""
    broker = start_broker()
    fast = peers.fast(broker)
    first, *_, last = [fast.publish("t", [b"x", b"y"]) for _ in range(3)]
    folder = ended(broker, fast)
    path = segments(folder)[-1]
    truncate(path, boundaries(path, int(folder.name[-16:], 16))[1])
    fast = peers.fast(broker.restart())
    assert fast.publish("t", [b"z"]).first > last.last
    assert counter(fast, "lost_records") == (4, 4)
    found = fast.fetch("t", first.last, ordinal=2)
    assert (found.reply.gone, found.reply.damaged) == (4, 4)
    broker.wait_for("event=records_lost topic=t records=4")


def test_a_stray_file_of_a_late_name_is_quarantined_and_moves_no_pointer(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    previous = fast.publish("t", [b"0"])
    for number, name in enumerate(("01999999999999999.seg", "72057594037927935.seg"), 1):
        folder = ended(broker, fast)
        (folder / name).write_bytes(bytes(5_000))
        fast = peers.fast(broker.restart())
        published = fast.publish("t", [b"%d" % number])
        assert previous.last < published.first < previous.last + 60_000_000
        assert [one.value for one in fast.read_all("t")] == [b"0", b"1", b"2"][: number + 1]
        broker.wait_for(f"event=stray_set_aside topic=t file={name}.1.damaged")
        assert "event=pointers_ahead" not in broker.stderr
        assert (folder / f"{name}.1.damaged").read_bytes() == bytes(5_000)
        previous = published


def test_pointers_ahead_of_the_clock_are_logged(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    folder = ended(broker, fast)
    late = ManualClock(time.time_ns() // 1_000 + 3_600_000_000)
    with Log.open(folder, others=(topic_file.NAME,), clock=late) as log:
        newest = log.append([b"y"]).last
    fast = peers.fast(broker.restart())
    assert fast.publish("t", [b"z"]).first > newest
    line = broker.wait_for("event=pointers_ahead topic=t ")
    assert 3_500 < int(line.rpartition("seconds=")[2].split()[0]) <= 3_620


def test_missing_footer_and_index_are_rebuilt_and_logged(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    fast.call(RollTopic(), "t")
    fast.publish("t", [b"y"])
    fast.close()
    broker.kill()
    (folder,) = broker.topics_directory.iterdir()
    sealed = segments(folder)[0]
    content = sealed.read_bytes()
    truncate(sealed, len(content) - FOOTER_BYTES)
    sealed.with_suffix(".idx").unlink()
    fast = peers.fast(broker.restart())
    assert [one.value for one in fast.read_all("t")] == [b"x", b"y"]
    broker.wait_for(f"event=derived_rebuilt topic=t segments={sealed.name}")
    assert sealed.read_bytes() == content
    assert sealed.with_suffix(".idx").exists()
