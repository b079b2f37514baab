"""The ends of members: what becomes of their records, threads and descriptors."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kit.broker.peers import refused
from kit.client.records import Connect, numbered
from kit.deadlines import DEADLINE_S, eventually
from quoth import Client, ConsumerGroup, GroupMessage
from quothwire.errors import QuothError


def values_of(found: list[GroupMessage]) -> list[bytes]:
    return [message.value for message in found]


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("quoth-group")]


def test_a_member_that_is_dropped_leaves_no_thread(client: Client, topic: str) -> None:
    client.publish(topic, numbered(3))
    group = client.group(topic, "g")
    assert len(group.fetch()) == 3
    del group
    gc.collect()
    eventually(lambda: not threads(), "its thread ends")


def test_a_closed_member_leaves_no_descriptor_to_the_garbage_collector(client: Client, topic: str) -> None:
    def consume() -> None:
        with client.group(topic, "g") as group:
            group.fetch(timeout=0)

    client.create_topic(topic)
    consume()  # opens what the client keeps
    gc.collect()
    gc.disable()
    try:
        before = descriptors()
        for _ in range(10):
            consume()
        eventually(lambda: descriptors() < before + 10, "those of the members are closed")
    finally:
        gc.enable()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def waits(group: ConsumerGroup) -> bool:
    """Return True if the fetch of a member is on its way."""
    fetch = group._member._fetch
    return fetch is not None and fetch.is_sent


@pytest.mark.parametrize("way", ["fetch", "iteration"])
def test_a_wait_in_a_member_that_is_closed_ends_without_records(
    client: Client, topic: str, pool: ThreadPoolExecutor, way: str
) -> None:
    """Records that come meanwhile are released, and another member gets them."""
    client.create_topic(topic)
    group = client.group(topic, "g").__enter__()
    waiting = (
        pool.submit(group.fetch, timeout=DEADLINE_S) if way == "fetch" else pool.submit(next, iter(group))
    )
    eventually(partial(waits, group), "it waits")
    closing = pool.submit(group.close)
    eventually(lambda: group._member._is_closing, "the end has begun")
    client.publish(topic, numbered(3))
    closing.result(DEADLINE_S)
    with refused("closed"):
        waiting.result(DEADLINE_S)
    with client.group(topic, "g") as other:
        assert values_of(other.fetch(timeout=DEADLINE_S)) == numbered(3)


def test_a_client_that_is_closed_ends_its_members(connect: Connect, broker: Any, topic: str) -> None:
    client = connect(broker)
    client.publish(topic, numbered(3))
    group = client.group(topic, "g")
    message = group.fetch(1)[0]
    client.close()
    with refused("closed"):
        message.ack()
    with refused("closed"):
        group.fetch()
    eventually(lambda: not threads(), "its thread ends")


def test_a_forked_child_cannot_use_a_member(pooled: Client, topic: str) -> None:
    pooled.publish(topic, numbered(3))
    with pooled.group(topic, "g") as group:
        group.fetch(1)
        pid = os.fork()
        if not pid:
            try:
                group.fetch(1)
            except QuothError as problem:
                os._exit(0 if problem.code == "closed" else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert values_of(group.fetch(2)) == numbered(2, 1)


def test_ctrl_c_while_it_waits_gives_everything_back(
    pooled: Client, topic: str, pool: ThreadPoolExecutor
) -> None:
    """The end of the member waits for its fetch, and another member gets what that brings."""
    pooled.create_topic(topic)
    pooled._timing.group_wait = pooled._timing.interrupted = DEADLINE_S
    waiting = threading.get_ident()

    def interrupt(group: ConsumerGroup) -> None:
        eventually(partial(waits, group), "it waits")
        signal.pthread_kill(waiting, signal.SIGINT)
        eventually(lambda: group._member._is_closing, "the end has begun")
        pooled.publish(topic, b"a")

    def consume() -> None:
        with pooled.group(topic, "g") as group:
            pool.submit(interrupt, group)
            next(iter(group))

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            consume()
    finally:
        signal.signal(signal.SIGINT, previous)
    with pooled.group(topic, "g") as group:
        assert values_of(group.fetch(timeout=DEADLINE_S)) == [b"a"]
