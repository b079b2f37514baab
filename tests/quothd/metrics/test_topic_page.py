"""The topics in one reply about metrics, for clients that do not see all: pages, serials, bounded work."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kit.broker.open_topic import LOG_ID
from quothd.access.ledger import Ledger
from quothd.access.rights import KnownClient, Right
from quothd.access.topic_scope import TopicScope
from quothd.frontend.registry import Registry, RegistryEntry
from quothd.topics.metadata import TopicMetadata
from quothlog.datadir.topic_file import TopicFile
from quothwire.protocol.metric_messages import GetMetrics
from quothwire.settings import TopicSettings

START = 1_000_000


class Topics:
    """A registry with topics that change when a test says so."""

    def __init__(self, *names: str, examined_max: int) -> None:
        self.registry = Registry([], Ledger(lambda _: {}), START)
        self.registry.changes.examined_max = examined_max
        for name in names:
            metadata = TopicMetadata(None, TopicFile(name, LOG_ID, TopicSettings()))
            self.registry._add(RegistryEntry(metadata, is_new=True))

    def change(self, *names: str) -> None:
        for name in names:
            self.registry.changes.touch(self.registry.entries[name])

    def page(self, client: KnownClient | None, **fields: Any) -> tuple[list[str], int, bool]:
        rows, serial, more = self.registry.page(GetMetrics(**fields), client)
        return [row["name"] for row in rows], serial, more

    def changed(self, client: KnownClient | None, since: int, limit: int = 100) -> tuple[list[str], int]:
        """Return all that has changed since, and the last serial."""
        found: list[str] = []
        more = True
        while more:
            names, serial, more = self.page(client, since=since, limit=limit)
            assert not more or serial > since, "each page goes on"
            found += names
            since = serial
        return found, since


def reader(*patterns: str) -> KnownClient:
    return KnownClient("alice", ("key",), {Right.READ: TopicScope(patterns)})


FEW, MANY = 100, 3
"""Bounds on what a request looks at: above, and below the number of topics that alice sees."""


@pytest.mark.parametrize("examined_max", [FEW, MANY])
def test_pages_of_a_client_have_all_that_it_sees_and_nothing_else(seed: int, examined_max: int) -> None:
    rng = random.Random(seed)
    names = [f"{who}{number}" for who in "ab" for number in range(10)]
    topics = Topics(*names, examined_max=examined_max)
    alice = reader("a*")
    listed, serial, _ = topics.page(alice)
    assert listed == names[:10]
    topics.changed(alice, serial)
    for _ in range(200):
        changed = rng.choices(names, k=rng.randrange(30))
        topics.change(*changed)
        last = [name for at, name in enumerate(changed) if name not in changed[at + 1 :]]
        found, after = topics.changed(alice, serial, rng.randrange(1, 5))
        visible = [name for name in last if name.startswith("a")]
        assert [name for name in found if name in visible] == visible
        assert not set(found) - set(names[:10])
        assert topics.changed(alice, after)[0] == []
        serial = after


@pytest.mark.parametrize("patterns", [("absent",), ("a1", "a2")])
def test_the_serial_of_a_client_does_not_grow_by_topics_that_it_does_not_see(
    patterns: tuple[str, ...],
) -> None:
    topics = Topics("a1", "a2", "b", examined_max=FEW)
    alice = reader(*patterns)
    _, serial, _ = topics.page(alice)
    topics.change(*["b"] * 1_000)
    for since in (0, 1, serial, 10**15):
        assert topics.page(alice, since=since)[1:] == (serial, False)
    assert topics.page(None)[1] > serial + 900


def test_the_serial_of_a_client_with_many_topics_grows_by_others_only_while_there_is_more() -> None:
    topics = Topics("a1", "a2", "a3", "a4", "b", examined_max=MANY)
    alice = reader("a*")
    _, serial, _ = topics.page(alice)
    topics.change("a1")
    _, serial = topics.changed(alice, serial)
    topics.change("b", "b")
    assert topics.page(alice, since=serial) == ([], serial, False)
    topics.change("b", "b", "a2")
    assert topics.page(alice, since=serial) == ([], serial + 3, True)
    assert topics.page(alice, since=serial + 3) == (["a2"], serial + 5, False)


def test_a_page_that_ends_at_its_limit_goes_on_with_the_next_change() -> None:
    topics = Topics("a1", "a2", "a3", "b", examined_max=FEW)
    alice = reader("a*")
    topics.change("a2", "b", "a1")
    assert topics.page(alice, since=1, limit=2) == (["a3", "a2"], START + 5, True)
    assert topics.page(alice, since=START + 5, limit=2) == (["a1"], START + 7, False)


@pytest.mark.parametrize("client", [None, reader("*"), reader("a*"), reader("a1")])
def test_a_request_looks_at_no_more_topics_than_it_may(
    client: KnownClient | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = Topics(*(f"{who}{number:03}" for who in "ab" for number in range(100)), examined_max=10)
    looked_at = 0
    live = type(topics.registry.changes)._live

    def counting(order: Any, first: int, end: int) -> Any:
        nonlocal looked_at
        looked_at += min(end, len(order._changed)) - first
        return live(order, first, end)

    monkeypatch.setattr(type(topics.registry.changes), "_live", counting)
    topics.page(client, since=1)
    assert looked_at <= 10
