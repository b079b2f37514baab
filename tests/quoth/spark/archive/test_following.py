"""Archiving for ever: it continues through outages and other work, until its topics are deleted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.spark.archives import of_archive, of_topic, publish
from quoth import Client
from quoth.spark.archive.archiver import TopicArchiver
from quoth.spark.archive.store import ArchiveStore
from quothwire.errors import Conflict, NotFound

RESUMED_S = 2.0
Archiver = Callable[..., TopicArchiver]


def test_following_continues_through_restarts_and_other_work_until_its_topic_is_deleted(
    start_broker: StartBroker,
    connect: Any,
    archiver: Archiver,
    root: Path,
    told: list[str],
    pool: ThreadPoolExecutor,
) -> None:
    broker = start_broker()
    client: Client = connect(broker)
    impatient: Client = connect(broker)
    impatient.timeout = 1.0
    archive = archiver("orders", impatient)

    def follows() -> None:
        expected = of_topic(client, "orders").records
        eventually(lambda: archive.tally.records == expected, "all of it is archived")

    def says(*codes: str) -> None:
        eventually(lambda: any(text.startswith(codes) for text in told), f"it says {codes}")

    publish(client, "orders", [5])
    following = pool.submit(archive.follow, 0.01)
    follows()
    store = eventually(lambda: free_store(root), "it is unlocked")
    assert store is not None
    with store:
        says("locked")
    publish(client, "orders", [7, 3])
    follows()
    broker.kill()
    says("disconnected", "timed_out")
    broker.restart()
    publish(client, "orders", [9])
    follows()
    expected = of_topic(client, "orders")
    client.delete_topic("orders")
    with pytest.raises(NotFound, match="unknown_topic"):
        following.result(DEADLINE_S)
    assert of_archive(root) == expected


def test_following_looks_again_soon_after_an_outage_however_long_its_interval_is(
    start_broker: StartBroker, connect: Any, archiver: Archiver, told: list[str], pool: ThreadPoolExecutor
) -> None:
    def sleep(seconds: float) -> None:
        if seconds > RESUMED_S:
            raise InterruptedError("it has looked")
        pause(seconds)

    broker = start_broker()
    client: Client = connect(broker)
    client.timeout = 1.0
    publish(client, "orders", [5])
    archive = archiver("orders", client, sleep)
    broker.kill()
    following = pool.submit(archive.follow, 3_600.0)
    eventually(lambda: len(told) > 1, "it has waited in vain, and again")
    broker.restart()
    with pytest.raises(InterruptedError):
        following.result(DEADLINE_S)
    assert archive.tally.records == 5


class DeletingClient(Client):
    """A client whose broker deletes a topic before the first request for it is executed."""

    deletes = ""

    def advance(self, topic: str, *which: Any, **limits: Any) -> Any:
        """See `Client.advance`."""
        if topic == self.deletes and topic in self.topics():
            self.delete_topic(topic)
        return super().advance(topic, *which, **limits)


def test_following_a_pattern_continues_though_one_of_its_topics_is_deleted_meanwhile(
    client: Client, archiver: Archiver, topic: str, told: list[str], pool: ThreadPoolExecutor
) -> None:
    names = [f"{topic}-{one}" for one in "abc"]
    for name in names:
        publish(client, name, [3])
    with DeletingClient(client.url, None, DEADLINE_S) as deleting:
        deleting.deletes = names[1]
        archive = archiver(f"{topic}-*", deleting)
        following = pool.submit(archive.follow, 0.01)
        eventually(lambda: following.done() or archive.tally.records == 6, "the others are archived")
        for name in (names[0], names[2]):
            client.delete_topic(name)
        with pytest.raises(NotFound, match="no topic matches"):
            following.result(DEADLINE_S)
    assert archive.tally.records == 6
    assert told[0] == f"unknown_topic: there is no topic '{names[1]}'; it goes on with what is there"


def free_store(root: Path) -> ArchiveStore | None:
    """Open the archive, unless it is locked."""
    with suppress(Conflict):
        return ArchiveStore(root)
    return None
