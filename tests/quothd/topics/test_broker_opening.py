"""A topic that takes long to open says how far it is, and what openings found is known afterwards."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.clocks import ManualClock
from kit.deadlines import eventually
from kit.disk.damage import truncate
from kit.disk.logs import boundaries, encoded, segments
from quothd import Broker
from quothd.topics import opening
from quothlog import Log
from quothlog.datadir import topic_file
from quothlog.file_format import FOOTER_BYTES
from quothwire.errors import QuothError
from quothwire.protocol.messages import DeleteTopic, RollTopic

BATCHES = 40_000


def test_readers_who_have_to_wait_are_told_how_far_it_is(
    tmp_path: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the same stands in the daemon's log."""
    monkeypatch.setattr(opening, "REPORT_EVERY_S", 0.01)
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
    with Broker(tmp_path / "data", host="127.0.0.1", recovering_after=0.0) as broker:
        fast = peers.fast(broker)
        while True:
            try:
                found = fast.fetch("t")
            except QuothError as refusal:
                if refusal.code != "recovering":
                    raise
                texts.append(refusal.text)
            else:
                break
        assert found.reply.end == BATCHES + 1
        fast.close()
    told = [text for text in texts if "bytes have been looked through" in text]
    assert told
    done, _, size, *_ = told[-1].rpartition(" s, ")[2].split()
    assert 0 < int(done) < int(size) < segment.stat().st_size


def counter(fast: FastPeer, name: str) -> tuple[int, int]:
    """A counter of the topic `t`, and that of all topics."""
    return fast.describe("t").counters[name], fast.status(limit=0).counters[name]


def test_what_was_counted_is_not_forgotten_in_sleep(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(worker_timeout=0.01)
    fast = peers.fast(broker)
    for number in range(1, 4):
        fast.publish("t", [b"x"])
        fast.call(RollTopic(), "t")
        eventually(lambda: fast.status(limit=0).active == 0, "it sleeps")
        assert fast.describe("t").counters["rolls"] == number


def test_torn_bytes_are_known_to_the_topic_and_to_the_broker(start_broker: StartBroker, peers: Peers) -> None:
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
    eventually(lambda: counter(fast, "quarantined_bytes") == (100, 100), "it still lies there")
    assert counter(fast, "torn_bytes") == (0, 0)


def test_synced_records_that_are_gone_are_known_to_all(start_broker: StartBroker, peers: Peers) -> None:
    """The daemon's log, the topic, the broker and each reader report it."""
    broker = start_broker()
    fast = peers.fast(broker)
    first, *_, last = [fast.publish("t", [b"x", b"y"]) for _ in range(3)]
    fast.close()
    assert broker.terminate() == 0
    (folder,) = broker.topics_directory.iterdir()
    path = segments(folder)[-1]
    truncate(path, boundaries(path, int(folder.name[-16:], 16))[1])
    fast = peers.fast(broker.restart())
    assert fast.publish("t", [b"z"]).first > last.last
    assert counter(fast, "lost_records") == (4, 4)
    found = fast.fetch("t", first.last, ordinal=2)
    assert (found.reply.gone, found.reply.damaged) == (4, 4)
    broker.wait_for("event=records_lost topic=t records=4")


@pytest.mark.parametrize("name", ["01999999999999999.seg", "72057594037927935.seg"])
def test_a_stray_file_of_a_late_name_is_set_aside_and_moves_no_pointer(
    start_broker: StartBroker, peers: Peers, name: str
) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    before = fast.publish("t", [b"x"])
    fast.close()
    assert broker.terminate() == 0
    (folder,) = broker.topics_directory.iterdir()
    (folder / name).write_bytes(bytes(5_000))
    fast = peers.fast(broker.restart())
    after = fast.publish("t", [b"y"])
    assert before.last < after.first < before.last + 60_000_000
    assert [one.value for one in fast.read_all("t")] == [b"x", b"y"]
    broker.wait_for(f"event=stray_set_aside topic=t file={name}.1.damaged")
    assert "event=pointers_ahead" not in broker.stderr
    assert (folder / f"{name}.1.damaged").read_bytes() == bytes(5_000)


def test_a_topic_whose_pointers_run_ahead_of_the_clock_says_so(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    fast.close()
    assert broker.terminate() == 0
    (folder,) = broker.topics_directory.iterdir()
    late = ManualClock(time.time_ns() // 1_000 + 3_600_000_000)
    with Log.open(folder, others=(topic_file.NAME,), clock=late) as log:
        newest = log.append([b"y"]).last
    fast = peers.fast(broker.restart())
    assert fast.publish("t", [b"z"]).first > newest
    line = broker.wait_for("event=pointers_ahead topic=t ")
    assert 3_500 < int(line.rpartition("seconds=")[2].split()[0]) <= 3_620


def test_footer_and_index_that_are_missing_are_rebuilt_and_told(
    start_broker: StartBroker, peers: Peers
) -> None:
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
