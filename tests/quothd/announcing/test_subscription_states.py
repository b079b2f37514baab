"""The subscriptions of connections, without clients: what counts, and which connection has too many."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq

from quothd.announcing.sockets import Publisher
from quothd.announcing.subscribers import Subscribers
from quothd.announcing.subscriptions import LEFT_MAX, Subscriber, Subscriptions, every_prefix
from quothd.config.config import Config
from quothd.connections.kernel import AcceptedSocket
from quothd.connections.monitor import Monitor


def table_of(*descriptors: int, most: int = 100, most_of_one: int = 10) -> Subscriptions:
    table = Subscriptions(most, most_of_one, every_prefix)
    for descriptor in descriptors:
        table.accept(AcceptedSocket(descriptor, peer=f"127.0.0.1:{descriptor}"))
    return table


def found(table: Subscriptions, descriptor: int) -> Subscriber:
    subscriber = table.find(descriptor)
    assert subscriber is not None
    return subscriber


def add(table: Subscriptions, descriptor: int, *prefixes: bytes) -> tuple[Subscriber, str] | None:
    """Add prefixes; returns what the last one leads to."""
    for prefix in prefixes:
        table.add(found(table, descriptor), "", prefix)
    return table.excess(found(table, descriptor))


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.mark.parametrize(("size", "weight"), [(0, 1), (31, 1), (32, 2), (64, 3), (201, 7)])
def test_a_prefix_counts_as_much_as_its_length_takes(size: int, weight: int) -> None:
    table = table_of(5)
    add(table, 5, b"x" * size, b"x" * size)
    assert table.count == weight
    assert table.remove(found(table, 5), "", b"x" * size) == [b"x" * size]
    assert table.remove(found(table, 5), "", b"x" * size) == []
    assert table.count == 0


def test_the_limit_of_one_connection_ends_that_one() -> None:
    table = table_of(5, 6)
    assert add(table, 5, *numbered(10)) is None
    assert add(table, 6, b"a") is None
    assert add(table, 5, b"b") == (found(table, 5), "connection_subscriptions_max")


def test_the_limit_of_all_ends_the_one_with_most_and_counts_it_no_more() -> None:
    table = table_of(5, 6, 7, most=12)
    add(table, 5, *numbered(3))
    add(table, 6, *numbered(9))
    excess = add(table, 7, b"a")
    assert excess == (found(table, 6), "subscriptions_max")
    six = found(table, 6)
    assert table.end(six)
    assert table.count == 4
    assert table.find(6) is None
    assert not table.end(six)
    table.disconnect(6)
    assert table.count == 4


def test_what_an_old_connection_left_counts_for_no_limit_of_the_new_one() -> None:
    """Its messages may come after the reports of both. What the new one asks for has effect all the same."""
    table = table_of(5, most=1_000)
    table.disconnect(5)
    table.accept(AcceptedSocket(5, peer="127.0.0.1:1"))
    assert add(table, 5, *numbered(500)) is None
    assert table.add(found(table, 5), "", b"7") == (b"7",)
    table.settle()
    assert add(table, 5, *numbered(10, start=1_000)) is None
    assert add(table, 5, b"more") == (found(table, 5), "connection_subscriptions_max")


def test_what_may_be_left_of_an_old_connection_is_limited() -> None:
    """Else a flood of others, before whose end nothing is settled, would let it have any number."""
    table = table_of(5, most=10_000)
    table.disconnect(5)
    table.accept(AcceptedSocket(5, peer="127.0.0.1:1"))
    assert add(table, 5, *numbered(LEFT_MAX + 10)) is None
    assert add(table, 5, b"more") == (found(table, 5), "connection_subscriptions_max")


def test_the_connection_with_most_of_all_ends_even_if_another_one_may_have_left_them() -> None:
    table = table_of(5, 6, most=20, most_of_one=1_000)
    add(table, 6, b"t")
    table.disconnect(5)
    table.accept(AcceptedSocket(5))
    assert add(table, 5, *numbered(20)) == (found(table, 5), "subscriptions_max")


def test_a_report_of_a_connection_that_was_missed_ends_the_one_before() -> None:
    table = table_of(5)
    old = found(table, 5)
    add(table, 5, b"a")
    table.accept(AcceptedSocket(5, peer="127.0.0.1:1"))
    assert table.count == 0
    assert found(table, 5) is not old
    assert not table.end(old)
    assert table.count == 0


def test_rights_decide_what_a_prefix_gets() -> None:
    """A prefix that two subscriptions lead to ends with the second one."""
    rights = {(b""): [b"a.", b"b"], b"a.": [b"a."], b"secret": []}
    asked: list[tuple[str, bytes]] = []

    def prefixes_for(user_id: str, prefix: bytes) -> list[bytes]:
        asked.append((user_id, prefix))
        return rights[prefix]

    table = Subscriptions(100, 10, prefixes_for)
    table.accept(AcceptedSocket(5, peer=""))
    alice, key = found(table, 5), "alice's key"
    assert table.add(alice, key, b"") == (b"a.", b"b")
    assert table.add(alice, key, b"a.") == (b"a.",)
    assert table.add(alice, key, b"secret") == ()
    assert asked == [(key, prefix) for prefix in rights]
    assert table.count == 4
    assert table.remove(alice, key, b"") == [b"b"]
    assert table.remove(alice, key, b"a.") == [b"a."]
    assert table.remove(alice, key, b"secret") == []
    assert table.count == 0
    assert table.of_users(frozenset({key})) == [alice]
    assert table.of_users(frozenset({"bob's key"})) == []


def test_what_a_client_gets_counts_for_the_limit_of_all_and_not_for_its_own() -> None:
    """Else a client with rights on many topics could never subscribe to all of them."""
    table = Subscriptions(1_000, 10, lambda _user_id, _prefix: numbered(400))
    table.accept(AcceptedSocket(5))
    assert add(table, 5, b"") is None
    assert table.count == 400
    assert add(table, 5, b"a") is None
    assert add(table, 5, b"b") == (found(table, 5), "subscriptions_max")
    table.remove(found(table, 5), "", b"b")
    for prefix in (b"", b"a"):
        table.remove(found(table, 5), "", prefix)
    assert add(table, 5, b"x" * 32 * 9) is None
    assert add(table, 5, b"a") == (found(table, 5), "connection_subscriptions_max")


# -- messages of an earlier connection ----------------------------------------------------------------------


class FakeRemote:
    """An XPUB with messages: the descriptor and the key that come with each, and its bytes."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, str, bytes]] = []
        self.granted: list[bytes] = []

    def recv(self, _flags: int, *, copy: bool) -> FakeFrame:
        assert not copy
        if not self.messages:
            raise zmq.Again
        return FakeFrame(*self.messages.pop(0))

    def set(self, option: int, prefix: bytes) -> None:
        """Take an option, which libzmq applies to the connection of the last message."""
        self.granted.append((b"+" if option == zmq.SUBSCRIBE else b"-") + prefix)


class FakeFrame:
    def __init__(self, descriptor: int, user_id: str, message: bytes) -> None:
        self.bytes = message
        self._about: dict[int | str, int | str] = {zmq.SRCFD: descriptor, "User-Id": user_id}

    def get(self, name: int | str) -> int | str:
        return self._about[name]


@pytest.mark.parametrize("order", [("alice", "bob"), ("bob", "alice")])
def test_a_message_gets_what_its_own_client_may_have_whatever_comes_before_it(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """Alice's connection has ended, and bob's has its descriptor, before any message is received."""
    rights = {"alice": [b"a."], "bob": [b"b."]}
    remote = FakeRemote()
    with zmq.Context() as context, context.socket(zmq.XPUB) as watched:
        publisher = Publisher(remote, watched, Monitor(context, watched))  # type: ignore[arg-type]
        config = Config(dir=tmp_path, server_key="broker.key")
        subscribers = Subscribers(publisher, config, lambda: 0.0, lambda user_id, _prefix: rights[user_id])
        table = subscribers.subscriptions
        for _ in range(2):
            table.accept(AcceptedSocket(5))
        remote.messages = [(5, user_id, b"\1") for user_id in order]
        subscribers.take(10)
        assert remote.granted == [b"+" + rights[user_id][0] for user_id in order]
        assert table.of_users(frozenset({"bob"})) == [found(table, 5)]
        remote.messages = [(5, "bob", b"\0")]
        subscribers.take(10)
        assert remote.granted[2:] == [b"-b."]
        subscribers.end_users(frozenset({"bob"}))
        assert table.find(5) is None
        publisher.monitor.close()
