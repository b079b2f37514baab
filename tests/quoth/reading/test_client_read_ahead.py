"""Pages that follow each other and are fetched ahead, by both clients."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.broker.proxies import Meddler
from kit.client.records import Connect, at_once
from kit.deadlines import DEADLINE_S
from quoth import Client, Message
from quoth.core import paging
from quothwire.pointer import POINTER_MAX

VALUES = [b"%d" % row for row in range(1_000)]


@pytest.fixture
def stored(client: Client, topic: str) -> list[bytes]:
    """Records in batches of 7."""
    for row in range(0, len(VALUES), 7):
        client.publish(topic, VALUES[row : row + 7])
    return VALUES


@pytest.fixture(autouse=True)
def kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep page readers for a minute, because this machine may be slow."""
    for name in ("KEPT_S", "SOON_S"):
        monkeypatch.setattr(paging, name, 60.0)


def pages(client: Client, topic: str, limit: int, after: int = 0) -> Iterator[list[Message]]:
    """Yield page after page, to the last one that has records."""
    while found := list(client.read(topic, after=after, limit=limit)):
        yield found
        after = found[-1].pointer


def values(found: Iterator[list[Message]]) -> list[bytes]:
    """Return the values of all pages."""
    return [message.value for page in found for message in page]


def test_pages_of_each_size_have_all_records(client: Client, topic: str, stored: list[bytes]) -> None:
    for limit in (3, 7, 10, 100, 999, 1_000, 5_000):
        assert values(pages(client, topic, limit)) == stored, limit


def test_pages_of_a_topic_that_is_published_to_end_with_its_newest_record(
    client: Client, topic: str, stored: list[bytes], rng: random.Random
) -> None:
    found: list[bytes] = []
    expected = [*stored]
    for page in pages(client, topic, 30):
        found += (message.value for message in page)
        if len(expected) < 1_500:
            new = [b"new %d" % rng.randrange(100)] * rng.choice((1, 5, 40))
            client.publish(topic, new)
            expected += new
    assert found == expected


def test_two_topics_are_read_in_turn(client: Client, topic: str, stored: list[bytes]) -> None:
    client.publish(f"{topic}-2", [b"other"] * 500)
    one, other = pages(client, topic, 20), pages(client, f"{topic}-2", 10)
    both = [page for pair in zip(one, other, strict=True) for page in pair]
    assert values(iter(both[::2])) == stored
    assert values(iter(both[1::2])) == [b"other"] * 500


def test_what_the_client_has_trimmed_is_not_returned(client: Client, topic: str, stored: list[bytes]) -> None:
    """The client had fetched those records ahead."""
    client.roll(topic)
    following = pages(client, topic, 20)
    assert values(iter((next(following), next(following)))) == stored[:40]
    client.trim(topic, POINTER_MAX)
    assert list(following) == []


def test_what_the_client_has_deleted_is_not_returned(client: Client, topic: str, stored: list[bytes]) -> None:
    following = pages(client, topic, 20)
    assert values(iter((next(following), next(following)))) == stored[:40]
    client.delete_topic(topic)
    with refused("unknown_topic"):
        next(following)


def test_many_threads_read_the_same_pages(client: Client, topic: str, stored: list[bytes]) -> None:
    """Each place is taken by one of them."""
    together = threading.Barrier(6)

    def read(_me: int) -> None:
        together.wait()
        for limit in (10, 33):
            assert values(pages(client, topic, limit)) == stored

    at_once(6, read)


def test_pages_go_on_after_an_outage(own_broker: BrokerProcess, connect: Connect, topic: str) -> None:
    client = connect(own_broker, timeout=60.0)
    client.publish(topic, VALUES)
    following = pages(client, topic, 10)
    found = [next(following) for _ in range(3)]
    own_broker.kill()
    own_broker.start()
    assert values(iter([*found, *following])) == VALUES


def test_pages_go_on_though_answers_are_lost(
    impatient: Client, meddler: Meddler, client: Client, topic: str, stored: list[bytes]
) -> None:
    """The fetch that was sent ahead is sent again, as every one."""
    following = pages(impatient, topic, 10)
    found = [next(following) for _ in range(2)]
    lost = iter((True, False) * 3)
    meddler.on_reply = lambda call, answer: next(lost, False)
    assert values(iter([*found, *following])) == stored
    assert next(lost, None) is None, "answers were lost"


def test_a_closed_client_returns_nothing_that_is_at_hand(client: Client, topic: str) -> None:
    client.publish(topic, VALUES)
    following = pages(client, topic, 10)
    for _ in range(5):
        next(following)
    client.close()
    with refused("closed"):
        next(following)


def test_records_that_another_client_has_deleted_are_not_returned_for_long(
    client: Client, connect: Connect, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However soon each page follows the one before."""
    monkeypatch.setattr(paging, "KEPT_S", 0.1)
    client.publish(topic, [b"x"] * 100_000)
    following = pages(client, topic, 2)
    for _ in range(5):
        next(following)
    connect(broker).delete_topic(topic)
    began = time.monotonic()
    with refused("unknown_topic"):
        while time.monotonic() - began < DEADLINE_S:
            next(following)


def test_pages_take_few_fetches(connect: Connect, meddler: Meddler, topic: str) -> None:
    client = connect(meddler)
    for _ in range(100):
        client.publish(topic, [b"x"] * 100)
    before = len(meddler.requests)
    assert sum(1 for _ in pages(client, topic, 10)) == 1_000
    assert len(meddler.requests) - before < 20
