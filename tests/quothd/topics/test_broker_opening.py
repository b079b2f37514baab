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
from kit.scale import times
from quothd import Broker
from quothlog import Log
from quothlog.datadir import topic_file
from quothlog.file_format import FOOTER_BYTES
from quothlog.storage.clock import SystemClock
from quothwire.errors import QuothError
from quothwire.protocol.messages import DeleteTopic, RollTopic

BATCHES = times(8_000, 40_000)


class FastClock(SystemClock):
    """A clock on which hours pass in a minute."""

    def monotonic(self) -> float:
        return 200 * super().monotonic()


def folder_of(broker: BrokerProcess, topic: str) -> Path:
    (folder,) = broker.topics_directory.glob(f"{topic}~*")
    return folder


def test_a_long_opening_reports_its_progress(
    tmp_path: Path, peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    """In the error for readers, and in the log."""
    caplog.set_level(logging.INFO, "quothd")
    with Broker(tmp_path / "data", host="127.0.0.1") as broker, peers.fast(broker) as fast:
        fast.publish("t", [b"first"])
    (folder,) = (tmp_path / "data" / "topics").iterdir()
    with Log.open(folder) as log:
        raw = encoded([b"x"])
        for _ in range(BATCHES // 1_000):
            log.append_batches([raw] * 1_000)
    (segment,) = segments(folder)
    segment.with_suffix(".idx").unlink()  # as after a crash
    texts = []
    settings = {"recovering_after": 0.0, "worker_timeout": 1e6, "clock": FastClock()}
    with (
        Broker(tmp_path / "data", host="127.0.0.1", **settings) as broker,  # type: ignore[arg-type]
        peers.fast(broker) as fast,
    ):
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
    reports = [text for text in texts if "bytes have been looked through" in text]
    assert reports
    done, _, size, *_ = reports[-1].rpartition(" s, ")[2].split()
    assert 0 < int(done) < int(size) < segment.stat().st_size
    assert "event=topic_opening topic=t" in caplog.text


# -- what an opening finds ------------------------------------------------------------------------------

STRAYS = ("01999999999999999.seg", "72057594037927935.seg")
"""Names of segments from the future."""


def spoil(broker: BrokerProcess) -> bytes:
    """Give each topic of a stopped broker something to find; returns the whole bytes of a cut segment."""
    with segments(folder_of(broker, "torn"))[-1].open("ab") as file:
        file.write(os.urandom(100))
    lost = segments(folder_of(broker, "lost"))[-1]
    truncate(lost, boundaries(lost, int(lost.parent.name[-16:], 16))[1])
    for name in STRAYS:
        (folder_of(broker, "stray") / name).write_bytes(bytes(5_000))
    late = ManualClock(time.time_ns() // 1_000 + 3_600_000_000)
    with Log.open(folder_of(broker, "ahead"), others=(topic_file.NAME,), clock=late) as log:
        log.append([b"y"])
    sealed = segments(folder_of(broker, "cut"))[-2]
    content = sealed.read_bytes()
    truncate(sealed, len(content) - FOOTER_BYTES)
    for index in sealed.parent.glob("*.idx"):
        index.unlink()  # as after a crash
    return content


def test_findings_of_an_opening_are_logged_and_counted(start_broker: StartBroker, peers: Peers) -> None:
    """By the topic and the broker, until the next opening; quarantined bytes as long as their files exist."""
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    published: dict[str, list[int]] = {}
    for name in ("torn", "lost", "stray", "ahead", "cut"):
        for _ in range(3):
            published.setdefault(name, []).append(fast.publish(name, [b"x", b"y"]).last)
            fast.call(RollTopic(), name) if name == "cut" else None
    fast.close()
    assert broker.terminate() == 0
    content = spoil(broker)
    fast = peers.fast(broker.restart())
    eventually(lambda: fast.status(limit=0).counters["unopened"] == 0, "all have been opened")

    def counted(topic: str, name: str) -> tuple[int, int]:
        """A counter of a topic, and that of all topics."""
        return fast.describe(topic).counters[name], fast.status(limit=0).counters[name]

    eventually(lambda: counted("torn", "torn_bytes") == (100, 100), "torn bytes are counted")
    assert counted("torn", "quarantined_bytes") == (100, 10_100)
    assert counted("stray", "quarantined_bytes") == (10_000, 10_100)
    assert counted("lost", "lost_records") == (4, 4)
    for line in (
        "event=topic_recovered topic=torn torn_bytes=100",
        "event=records_lost topic=lost records=4",
        *(f"event=stray_set_aside topic=stray file={name}.1.damaged" for name in STRAYS),
        f"event=derived_rebuilt topic=cut segments={segments(folder_of(broker, 'cut'))[-2].name}",
    ):
        broker.wait_for(line)
    seconds = broker.wait_for("event=pointers_ahead topic=ahead ").rpartition("seconds=")[2]
    assert 3_500 < int(seconds.split()[0]) <= 3_620
    assert broker.stderr.count("event=pointers_ahead") == 1, "a stray file moves no pointer"
    sealed = segments(folder_of(broker, "cut"))[-2]
    assert (sealed.read_bytes(), sealed.with_suffix(".idx").exists()) == (content, True)
    for name, pointers in published.items():
        assert fast.publish(name, [b"z"]).first > pointers[-1]
    found = fast.fetch("lost", published["lost"][0], ordinal=2)
    assert (found.reply.gone, found.reply.damaged) == (4, 4)
    assert counted("torn", "torn_bytes") == (100, 100)
    fast.call(DeleteTopic(), "stray")
    assert counted("torn", "quarantined_bytes") == (100, 100)
    fast.close()
    assert broker.terminate() == 0
    fast = peers.fast(broker.restart())
    eventually(lambda: counted("torn", "quarantined_bytes") == (100, 100), "the file is still there")
    assert counted("torn", "torn_bytes") == (0, 0)


def test_counters_survive_hibernation(start_broker: StartBroker, peers: Peers) -> None:
    fast: FastPeer = peers.fast(start_broker(worker_timeout=0.01))
    for number in (1, 2):
        fast.publish("t", [b"x"])
        fast.call(RollTopic(), "t")
        eventually(lambda: hibernates(fast), "it hibernates")
        assert fast.describe("t").counters["rolls"] == number
