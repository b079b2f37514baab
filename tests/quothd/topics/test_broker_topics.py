"""The life of a topic through a broker: created, opened, changed, listed, emptied by retention, deleted."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, found_in, hibernate, refused, replied
from kit.clocks import ManualClock
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import truncate
from kit.disk.logs import boundaries, encoded, segments, size_of
from kit.scale import times
from quothd import Broker
from quothd.service.log_events import note
from quothd.topics.metadata import FORMER_NAMES
from quothlog import Log
from quothlog.datadir import topic_file
from quothlog.file_format import FOOTER_BYTES
from quothlog.storage.clock import SystemClock
from quothwire.errors import QuothError
from quothwire.protocol.messages import (
    CreateTopic,
    DeleteTopic,
    Fetch,
    GetStatus,
    ListTopics,
    RollTopic,
    Topics,
    Trimmed,
    TrimTopic,
    UpdateTopic,
)
from quothwire.settings import TopicSettings


def names(fast: FastPeer, after: str = "", limit: int = 1_000) -> list[str]:
    reply = fast.call(ListTopics(after=after, limit=limit))
    assert isinstance(reply, Topics)
    return reply.names


# -- create and update ----------------------------------------------------------------------------------


def test_a_topic_is_created_once_with_its_settings(fast: FastPeer, topic: str) -> None:
    """The rest has the broker's defaults. Of requests that are sent at once, the first succeeds."""
    asked = [fast.send(CreateTopic({"max_age": 60.0, "count_limit": 10}), topic) for _ in range(5)]
    assert sorted(map(code_of, fast.answers_to(asked))) == [""] + ["topic_exists"] * 4
    info = fast.describe(topic)
    assert info.settings == TopicSettings(max_age=60.0, count_limit=10).to_map()
    assert (info.name, info.count, info.first, info.last, info.segments) == (topic, 0, 0, 0, 1)
    assert topic in names(fast)


def test_a_wrong_setting_creates_and_changes_no_topic(fast: FastPeer, topic: str) -> None:
    wrong: list[dict[str, object]] = [{"max_agee": 1.0}, {"max_age": -1}, {"durability": "replicated"}]
    for settings in wrong:
        with refused("bad_setting"):
            fast.call(CreateTopic(settings), topic)
        assert topic not in names(fast), settings
    before = fast.call(CreateTopic(), topic).settings
    for settings in wrong:
        with refused("bad_setting"):
            fast.call(UpdateTopic({"max_age": 5.0, **settings}), topic)
        assert fast.describe(topic).settings == before, settings


def test_renamed_counters_have_their_former_names_too(fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"x"])
    counters = {**fast.status(limit=0).counters, **fast.describe(topic).counters}
    for name, former in FORMER_NAMES.items():
        assert counters.get(name) == counters.get(former)
        assert name in counters or name == "malformed_requests", "only this one appears with its first event"


def test_settings_outlive_restart_and_crash(broker: BrokerProcess, peers: Peers, topic: str) -> None:
    fast = peers.fast(broker)
    fast.call(CreateTopic({"max_bytes": 10_000}), topic)
    fast.call(UpdateTopic({"max_age": 100.0, "durability": "synced"}), topic)
    expected = TopicSettings(max_bytes=10_000, max_age=100.0, durability="synced").to_map()
    for end in (broker.kill, broker.terminate):
        end()
        fast.close()
        fast = peers.fast(broker.restart())
        assert fast.describe(topic).settings == expected


def test_an_update_holds_for_the_next_record_and_changes_nothing_else(fast: FastPeer, topic: str) -> None:
    """A size that is too small removes the oldest segments at once; the reply has what is left."""
    published = fast.publish(topic, [bytes(1_000)])
    info = fast.call(UpdateTopic({"count_limit": 1}), topic)
    assert (info.log, info.last, info.count) == (published.log, published.last, 1)
    assert info.settings == TopicSettings(count_limit=1).to_map()
    for _ in range(3):
        fast.publish(topic, [b"x"])
    assert fast.describe(topic).segments == 4
    assert fast.values(topic) == [bytes(1_000), b"x", b"x", b"x"]
    info = fast.call(UpdateTopic({"max_bytes": 1_000}), topic)
    assert info.bytes <= 1_000
    assert fast.values(topic) == [b"x"] * info.count


# -- listings -------------------------------------------------------------------------------------------


def test_listings_and_the_status_have_pages(start_broker: StartBroker, peers: Peers) -> None:
    """Pages of any size are in the order of the names' bytes, through both protocols."""
    broker = start_broker()
    fast, simple = peers.fast(broker), peers.simple(broker)
    made = [f"t{i}" for i in range(30)] + ["Z", "ä", "a b", "😀"]
    for name in made:
        fast.publish(name, [b"x"])
    expected = sorted(made, key=str.encode)
    assert simple.topics() == names(fast) == expected
    for limit in (1, 7, 1_000):
        found: list[str] = []
        while page := names(fast, found[-1] if found else "", limit):
            assert len(page) <= limit
            found += page
        assert found == expected
    assert simple.topics("t5") == names(fast, "t5") == expected[expected.index("t5") + 1 :]
    assert names(fast, "no such topic") == [name for name in expected if name.encode() > b"no such topic"]
    status = fast.call(GetStatus(after="t1", limit=2))
    assert list(status.states) == expected[expected.index("t1") + 1 :][:2]
    assert (status.topics, status.pid) == (len(made), broker.pid)
    assert status.directory == str(broker.directory.resolve())
    assert fast.status(limit=0).states == {}


# -- retention ------------------------------------------------------------------------------------------


def test_old_records_of_topics_without_requests_are_removed(start_broker: StartBroker, peers: Peers) -> None:
    """Of a hibernating topic, and after a restart while another topic is busy."""
    broker = start_broker(worker_timeout=0.05, check_interval=0.02)
    fast = peers.fast(broker)
    fast.call(CreateTopic({"max_age": 0.5}), "t")
    newest = fast.publish("t", [b"old"] * 3).last
    hibernate(fast)
    eventually(lambda: fast.describe("t").count == 0, "the records are gone")
    info = fast.describe("t")
    assert (info.first, info.last, info.first_ordinal) == (0, newest, 3)
    assert len([*broker.topics_directory.glob("t~*/*.seg")]) == 1
    fast.call(UpdateTopic({"max_age": 0}), "t")
    assert fast.publish("t", [b"new"]).first > newest
    assert fast.fetch("t", 0, ordinal=0).values == [b"new"]
    assert fast.fetch("t", 0, ordinal=0).reply.gone == 3
    for row in range(5):
        fast.call(CreateTopic({"max_age": 0.5}), f"u{row}")
        fast.publish(f"u{row}", [b"x" * 1_000])
    fast.close()
    assert broker.terminate() == 0
    fast = peers.fast(broker.restart())

    def are_gone() -> bool:
        fast.publish("t", [b"x"])
        return all(size_of(path) < 1_000 for path in broker.topics_directory.glob("u*/*.seg"))

    eventually(are_gone, "the old records are gone from the disk")


# -- trim and delete, while another client reads ----------------------------------------------------------


def test_readers_during_a_trim_get_records_in_order_up_to_the_last(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """A reply has the next record, or the first one of a later segment that was left meanwhile."""
    reader = peers.fast(broker)
    fast.call(CreateTopic({"count_limit": 5}), topic)
    for row in range(times(2, 200)):
        pointers = [fast.publish(topic, [b"%d" % i]).first for i in range(100)]
        reads = [reader.send_fetch(topic, pointers[i] - 1, records_max=1) for i in range(0, 95, 2)]
        trim = fast.send(TrimTopic(before=pointers[90]), topic)
        more = [reader.send_fetch(topic, pointers[i] - 1, records_max=1) for i in range(0, 95, 2)]
        assert replied(fast.answer_to(trim)).records >= 80
        for i, answer in zip([*range(0, 95, 2)] * 2, reader.answers_to(reads + more), strict=True):
            found = found_in(answer, pointers[i] - 1)
            assert found.records, f"nothing above record {i} in round {row}"
            assert found.records[0].pointer in (pointers[i], *pointers[i // 5 * 5 + 5 : 91 : 5])
        assert [record.pointer for record in reader.read_all(topic)] == pointers[-10:]
        fast.call(TrimTopic(before=2**55), topic)


def test_a_deleted_topic_and_its_files_are_removed(broker: BrokerProcess, peers: Peers, topic: str) -> None:
    """No reply and no folder has it, before and after a crash. The next one of its name has another log."""
    fast = peers.fast(broker)
    fast.publish(topic, [b"1", b"2"])
    fast.call(RollTopic(), topic)
    old = fast.publish(topic, [b"3"])
    reply = fast.call(DeleteTopic(), topic)
    assert isinstance(reply, Trimmed)
    assert (reply.records, reply.first) == (3, 0)
    assert reply.bytes > 0
    for ask in (Fetch(), RollTopic(), DeleteTopic(), TrimTopic(1), UpdateTopic()):
        with refused("unknown_topic"):
            fast.call(ask, topic)
    for end in (None, broker.kill):
        if end is not None:
            end()
            fast.close()
            fast = peers.fast(broker.restart())
        assert topic not in names(fast)
        assert not [*broker.topics_directory.glob(f"*{old.log:016x}*")]
    new = fast.publish(topic, [b"new"])
    assert new.log != old.log
    assert new.first > old.last
    with refused("unknown_topic"):  # a deletion that was sent twice
        fast.call(DeleteTopic(old.log), topic)
    found = fast.fetch(topic, 0)
    assert (found.reply.log, found.values) == (new.log, [b"new"])
    assert fast.call(DeleteTopic(new.log), topic).records == 1


# -- openings -----------------------------------------------------------------------------------------------

BATCHES = times(8_000, 40_000)


class FastClock(SystemClock):
    """A clock on which hours pass in a minute."""

    def monotonic(self) -> float:
        return 200 * super().monotonic()


PROGRESS = re.compile(r" s, (\d+) of (\d+) bytes have been looked through$")


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what lets the opening of a topic go on that has reported some progress."""
    reported = threading.Event()

    def hold(event: str, *problem: BaseException, **fields: Any) -> None:
        note(event, *problem, **fields)
        if event == "topic_opening" and fields["bytes_done"]:
            reported.wait(DEADLINE_S)

    monkeypatch.setattr("quothd.topics.opening.note", hold)
    return reported


def test_a_long_opening_reports_its_progress(
    tmp_path: Path, peers: Peers, caplog: pytest.LogCaptureFixture, reported: threading.Event
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
    reports = []
    settings = {"recovering_after": 0.0, "worker_timeout": 1e6, "stop_timeout": 1e6, "clock": FastClock()}
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
                if (progress := PROGRESS.search(problem.text)) is not None:
                    reports.append((int(progress[1]), int(progress[2])))
                    if reports[-1][0]:
                        reported.set()
            else:
                break
        assert found.reply.end == BATCHES + 1
    assert reports
    done, size = reports[-1]
    assert 0 < done < size < segment.stat().st_size
    assert "event=topic_opening topic=t" in caplog.text


FALSE_SEGMENTS = ("01999999999999999.seg", "72057594037927935.seg")
"""Names of segments from the future."""


def spoil(broker: BrokerProcess) -> bytes:
    """Give each topic of a stopped broker something to find; returns the whole bytes of a cut segment."""
    with segments(broker.folder("torn"))[-1].open("ab") as file:
        file.write(os.urandom(100))
    lost = segments(broker.folder("lost"))[-1]
    truncate(lost, boundaries(lost, int(lost.parent.name[-16:], 16))[1])
    for name in FALSE_SEGMENTS:
        (broker.folder("false") / name).write_bytes(bytes(5_000))
    late = ManualClock(time.time_ns() // 1_000 + 3_600_000_000)
    with Log.open(broker.folder("ahead"), others=(topic_file.NAME,), clock=late) as log:
        log.append([b"y"])
    sealed = segments(broker.folder("cut"))[-2]
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
    for name in ("torn", "lost", "false", "ahead", "cut"):
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
    assert counted("false", "quarantined_bytes") == (10_000, 10_100)
    assert counted("lost", "lost_records") == (4, 4)
    for line in (
        "event=topic_recovered topic=torn torn_bytes=100",
        "event=records_lost topic=lost records=4",
        *(f"event=stray_set_aside topic=false file={name}.1.damaged" for name in FALSE_SEGMENTS),
        f"event=derived_rebuilt topic=cut segments={segments(broker.folder('cut'))[-2].name}",
    ):
        broker.wait_for(line)
    seconds = broker.wait_for("event=pointers_ahead topic=ahead ").rpartition("seconds=")[2]
    assert 3_500 < int(seconds.split()[0]) <= 3_620
    assert broker.stderr.count("event=pointers_ahead") == 1, "a false segment moves no pointer"
    sealed = segments(broker.folder("cut"))[-2]
    assert (sealed.read_bytes(), sealed.with_suffix(".idx").exists()) == (content, True)
    for name, pointers in published.items():
        assert fast.publish(name, [b"z"]).first > pointers[-1]
    found = fast.fetch("lost", published["lost"][0], ordinal=2)
    assert (found.reply.gone, found.reply.damaged) == (4, 4)
    assert counted("torn", "torn_bytes") == (100, 100)
    fast.call(DeleteTopic(), "false")
    assert counted("torn", "quarantined_bytes") == (100, 100)
    fast.close()
    assert broker.terminate() == 0
    fast = peers.fast(broker.restart())
    eventually(lambda: counted("torn", "quarantined_bytes") == (100, 100), "the file is still there")
    assert counted("torn", "torn_bytes") == (0, 0)
