"""Archiving for ever: it continues through outages and other work, until its topics are deleted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S, eventually
from kit.spark.archives import FILE_BYTES, of_archive, of_topic, publish
from quoth import Client
from quoth.spark.archive.archiver import Policy, TopicArchiver
from quoth.spark.archive.manifest import NAME
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.workers import LocalWorkers
from quothwire.errors import Conflict, NotFound


def test_following_goes_on_through_restarts_and_other_work_until_its_topic_is_deleted(
    start_broker: Any, connect: Any, root: Path, told: list[str], pool: ThreadPoolExecutor
) -> None:
    broker: BrokerProcess = start_broker()
    client: Client = connect(broker)
    impatient: Client = connect(broker)
    impatient.timeout = 1.0
    publish(client, "orders", [5])
    archiver = TopicArchiver(
        impatient, root, LocalWorkers(), "orders", Policy(file_bytes=FILE_BYTES), told.append
    )
    following = pool.submit(archiver.follow, 0.01)

    def follows() -> None:
        expected = of_topic(client, "orders")
        eventually(lambda: manifest_there(root) and of_archive(root) == expected, "all of it is archived")

    follows()
    store = eventually(lambda: free_store(root), "it is unlocked")
    assert store is not None
    with store:
        eventually(lambda: any(text.startswith("locked") for text in told), "it says what it waits for")
    publish(client, "orders", [7, 3])
    follows()
    broker.kill()
    eventually(
        lambda: any(text.startswith(("disconnected", "timed_out")) for text in told), "that it is away"
    )
    broker.restart()
    publish(client, "orders", [9])
    follows()
    client.delete_topic("orders")
    with pytest.raises(NotFound, match="unknown_topic"):
        following.result(DEADLINE_S)
    assert archiver.tally.records == 24


def test_following_a_pattern_goes_on_though_one_of_its_topics_is_deleted_meanwhile(
    client: Client, root: Path, topic: str, told: list[str], pool: ThreadPoolExecutor, monkeypatch: Any
) -> None:
    names = [f"{topic}-{one}" for one in "abc"]
    for name in names:
        publish(client, name, [3])
    asked = client.advance

    def advance(name: str, after: int = 0, **limits: Any) -> Any:
        if name == names[1] and name in client.topics():
            client.delete_topic(name)
        return asked(name, after, **limits)

    monkeypatch.setattr(client, "advance", advance)
    archiver = TopicArchiver(
        client, root, LocalWorkers(), f"{topic}-*", Policy(file_bytes=FILE_BYTES), told.append
    )
    following = pool.submit(archiver.follow, 0.01)
    eventually(lambda: following.done() or archiver.tally.records == 6, "the others are archived")
    for name in (names[0], names[2]):
        client.delete_topic(name)
    with pytest.raises(NotFound, match="no topic matches"):
        following.result(DEADLINE_S)
    assert archiver.tally.records == 6
    assert told[0] == f"unknown_topic: there is no topic '{names[1]}'; it goes on with what is there"


def manifest_there(root: Path) -> bool:
    return (root / NAME).exists()


def free_store(root: Path) -> ArchiveStore | None:
    """Open the archive, unless it is locked."""
    try:
        return ArchiveStore(root)
    except Conflict:
        return None
