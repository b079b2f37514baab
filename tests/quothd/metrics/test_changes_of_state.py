"""The metrics since a serial: what changes about a topic although no client uses it. Default intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.broker.memory_broker import MemoryBroker
from kit.broker.open_topic import NAME, pending
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import encoded
from quothwire.errors import error
from quothwire.protocol.messages import DeleteTopic, Fetch, Publish
from quothwire.protocol.metric_messages import GetMetrics


class Follower:
    """A client of the metrics that asks for what has changed since its last question."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._serial = 1
        self.changed()

    def changed(self) -> dict[str, dict[str, Any]]:
        """Return the rows that have changed, by name."""
        request = GetMetrics(since=self._serial)
        rows, self._serial, more = self._broker.dispatcher.registry.page(request, None)
        assert not more
        return {row["name"]: row for row in rows}


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(syncs=False)


@pytest.fixture
def broker(tmp_path: Path, disk: FaultyDisk) -> MemoryBroker:
    """A broker with an open topic of one record that was reported."""
    broker = MemoryBroker(tmp_path, disk)
    publish(broker)
    report(broker)
    return broker


@pytest.fixture
def awake(tmp_path: Path) -> MemoryBroker:
    """A broker with such a topic that does not hibernate, and has nothing to report."""
    broker = MemoryBroker(tmp_path, worker_timeout=60.0)
    publish(broker)
    report(broker)
    report(broker)
    return broker


def publish(broker: MemoryBroker, durability: str = "written") -> str:
    request = broker.ask(pending(Publish(durability), encoded([b"x"])))
    broker.settle()
    return broker.code(request)


def report(broker: MemoryBroker) -> None:
    """Let so much time pass that the topic reports."""
    broker.pass_time(broker.config.check_interval)
    broker.settle()


def sleep(broker: MemoryBroker) -> None:
    """Let so much time pass that the topic hibernates."""
    broker.pass_time(2 * broker.config.worker_timeout)
    broker.settle()
    assert not broker.dispatcher.registry.entries[NAME].is_active


def test_a_topic_that_hibernates_has_changed(broker: MemoryBroker) -> None:
    """Also if its closing changes nothing else."""
    sleep(broker)
    broker.ask(pending(Fetch()))
    broker.settle()
    report(broker)
    follower = Follower(broker)
    sleep(broker)
    assert follower.changed()[NAME]["open"] is False
    assert follower.changed() == {}


def test_a_topic_that_is_opened_again_has_changed(broker: MemoryBroker) -> None:
    sleep(broker)
    follower = Follower(broker)
    broker.ask(pending(Fetch()))
    broker.settle()
    assert follower.changed()[NAME]["open"] is True


def test_a_topic_that_reports_nothing_new_has_not_changed(awake: MemoryBroker) -> None:
    broker = awake
    follower = Follower(broker)
    report(broker)
    assert follower.changed() == {}


def test_the_problem_of_a_failed_fsync_comes_with_the_next_report(
    broker: MemoryBroker, disk: FaultyDisk
) -> None:
    """The topic stays open, and serves what it has."""
    follower = Follower(broker)
    disk.fail("sync")
    assert publish(broker, "synced") == "storage_failed"
    disk.heal()
    report(broker)
    found = follower.changed()[NAME]
    assert "Input/output error" in found["problem"]
    assert found["open"] is True


def test_a_problem_that_is_all_that_is_new_comes_with_the_next_report(awake: MemoryBroker) -> None:
    broker = awake
    follower = Follower(broker)
    broker.threads[0].topic._log.appender.write_failure.fail(error("storage_failed", "the disk has failed"))
    report(broker)
    assert follower.changed()[NAME]["problem"] == "the disk has failed"
    assert follower.changed() == {}


def test_a_topic_that_cannot_be_opened_has_changed(broker: MemoryBroker, disk: FaultyDisk) -> None:
    sleep(broker)
    follower = Follower(broker)
    disk.fail("open", lasting=True)
    assert publish(broker) != ""
    found = follower.changed()[NAME]
    assert found["open"] is False
    assert found["problem"] == broker.dispatcher.registry.entries[NAME].metadata.problem_text


def test_a_topic_with_a_defect_has_changed(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(broker)

    def fail(*_: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(broker.threads[0].topic, "_append", fail)
    assert publish(broker) == "internal"
    assert follower.changed()[NAME]["open"] is False


def test_a_topic_that_was_deleted_comes_no_more(broker: MemoryBroker) -> None:
    follower = Follower(broker)
    broker.ask(pending(DeleteTopic()))
    broker.settle()
    assert NAME not in broker.dispatcher.registry.entries
    assert follower.changed() == {}
