"""Keys that change while clients are connected: revoked, allowed again, replaced at the broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import quoth
from kit.broker.proxies import Wire
from kit.client.keyed import FOREVER_S, KeyedBroker, auth_error_of
from kit.client.records import Connect, values
from kit.deadlines import DEADLINE_S, becomes, eventually, hold
from kit.keys import new_key
from kit.text.wording import error_of
from quoth import AuthError, Client, ProducerError
from quoth.connection.send_loop import REFUSED_S
from quothwire.security.key_file import read_key

UNKNOWN = "does not know the key of alice"


@pytest.fixture
def client(keyed: KeyedBroker, connect: Connect) -> Client:
    """A client that is connected with a key."""
    return connect(keyed.url, key=keyed.alice, timeout=FOREVER_S)


@pytest.fixture(autouse=True)
def _topic(client: Client, topic: str) -> None:
    client.create_topic(topic)


# -- revoked ------------------------------------------------------------------------------------------------


def test_a_client_whose_key_is_revoked_fails_at_once_until_it_is_known_again(
    keyed: KeyedBroker, client: Client, topic: str
) -> None:
    keyed.revoke()
    for _ in range(3):
        assert UNKNOWN in auth_error_of(client.ping).text
        assert UNKNOWN in auth_error_of(client.publish, topic, [b"refused"]).text
        assert UNKNOWN in auth_error_of(client.read, topic).text
    keyed.allow()
    client.publish(topic, [b"known again"])
    assert [message.value for message in client.read(topic)] == [b"known again"]


WAITING: dict[str, Callable[[Client, str], object]] = {
    "tail": lambda client, topic: next(client.tail(topic)),
    "tail_many": lambda client, topic: next(client.tail_many([topic])),
    "group": lambda client, topic: client.group(topic, "group").fetch(1, timeout=FOREVER_S),
}


def waits_are(beside: Client, count: int) -> None:
    """Wait until so many requests wait at the broker."""
    becomes(lambda: beside.status().waits, count, f"{count} requests wait")


@pytest.mark.parametrize("wait", WAITING.values(), ids=WAITING)
def test_a_call_that_waits_ends_when_the_key_is_revoked(
    keyed: KeyedBroker,
    client: Client,
    connect: Connect,
    topic: str,
    pool: ThreadPoolExecutor,
    wait: Callable[[Client, str], object],
) -> None:
    waiting = pool.submit(wait, client, topic)
    waits_are(connect(keyed.url, key=keyed.owner), 1)
    keyed.revoke()
    assert UNKNOWN in auth_error_of(waiting.result, DEADLINE_S).text
    keyed.allow()
    client.publish(topic, [b"known again"])


def test_all_calls_that_wait_end_when_the_key_is_revoked(
    keyed: KeyedBroker, client: Client, connect: Connect, topic: str, pool: ThreadPoolExecutor
) -> None:
    waiting = [pool.submit(next, client.tail(topic)) for _ in range(4)]
    waits_are(connect(keyed.url, key=keyed.owner), 4)
    keyed.revoke()
    for one in waiting:
        assert "whether it took effect is not known" in auth_error_of(one.result, DEADLINE_S).text


def test_an_iteration_goes_on_when_the_key_is_known_again(
    keyed: KeyedBroker, stack: ExitStack, topic: str
) -> None:
    """In an event loop an error ends it."""
    client = stack.enter_context(quoth.connect(keyed.url, key=keyed.alice, timeout=FOREVER_S))
    client.publish(topic, [b"one"])
    with client.tail_many([topic], after=0) as tail:
        assert next(tail).value == b"one"
        keyed.revoke()
        assert UNKNOWN in auth_error_of(next, tail).text
        assert UNKNOWN in auth_error_of(next, tail).text
        keyed.allow()
        client.publish(topic, [b"two"])
        assert next(tail).value == b"two"


def test_a_handshake_that_has_failed_before_ends_no_later_call(
    keyed: KeyedBroker, client: Client, topic: str
) -> None:
    """An idle client may have been refused long ago."""
    keyed.revoke()
    auth_error_of(client.ping)
    keyed.restart()
    keyed.allow()
    client.publish(topic, [b"one"])


def test_a_producer_reports_a_revoked_key_and_goes_on_when_it_is_known_again(
    keyed: KeyedBroker, client: Client, topic: str
) -> None:
    with client.producer(topic, linger=FOREVER_S) as producer:
        producer.send(b"one")
        producer.flush()
        keyed.revoke()
        for _ in range(3):
            producer.send(b"refused")
            promised = producer.future()
            producer.send(b"refused, too")
            with pytest.raises(ProducerError) as found:
                producer.flush()
            assert found.value.code == "auth_failed"
            assert UNKNOWN in found.value.text
            assert {value for one in found.value.failures for value in one.values} >= {b"refused, too"}
            assert isinstance(promised.exception(DEADLINE_S), AuthError)
        keyed.allow()
        producer.send(b"two")
        producer.flush()
    assert [message.value for message in client.read(topic)] == [b"one", b"two"]


def test_a_producer_takes_no_record_after_it_was_refused_until_it_is_reported(
    keyed: KeyedBroker, client: Client, connect: Connect, topic: str
) -> None:
    producer = client.producer(topic, batch=1)
    producer.send(b"one")
    producer.flush()
    keyed.revoke()
    accepted: list[bytes] = []

    def refused() -> bool:
        accepted.append(b"%d" % len(accepted))
        try:
            producer.send(accepted[-1])
        except AuthError:
            accepted.pop()
            return True
        return False

    eventually(refused, "a record is refused")
    hold(refused, "no other one is taken", 0.5)
    with pytest.raises(ProducerError) as found:
        producer.close()
    lost = [value for one in found.value.failures for value in one.values]
    assert lost == accepted
    beside = connect(keyed.url, key=keyed.owner)
    assert values(beside, topic) == [b"one"]


def test_refused_connections_of_a_producer_are_paced(
    keyed: KeyedBroker, client: Client, connect: Connect, topic: str
) -> None:
    beside = connect(keyed.url, key=keyed.owner)
    with client.producer(topic, batch=1) as producer:
        producer.send(b"one")
        producer.flush()
        keyed.revoke()
        began, before = time.monotonic(), beside.status().counters["connections_denied"]
        for _ in range(10):
            producer.send(b"refused")
            with pytest.raises(ProducerError):
                producer.flush()
        seconds = time.monotonic() - began
        denied = beside.status().counters["connections_denied"] - before
        assert denied <= 3 + 2 * seconds / REFUSED_S
        assert seconds > 8 * REFUSED_S


@pytest.mark.parametrize("keyed", ["tcp"], indirect=True)
def test_a_publish_whose_answer_is_lost_with_the_key_is_not_mistaken_for_the_next_one(
    keyed: KeyedBroker, topic: str, connect: Connect, stack: ExitStack, pool: ThreadPoolExecutor
) -> None:
    wire = stack.enter_context(Wire(keyed.url))
    client = connect(wire, key=keyed.alice, timeout=FOREVER_S)
    client.ping()
    wire.lose_answers()
    publishing = pool.submit(client.publish, topic, [b"one"])
    beside = connect(keyed.url, key=keyed.owner)
    eventually(lambda: beside.read(topic), "it is stored")
    keyed.revoke()
    wire.cut()
    assert "whether it took effect is not known" in auth_error_of(publishing.result, DEADLINE_S).text
    keyed.allow()
    assert not client.publish(topic, [b"two"]).duplicate
    assert [message.value for message in beside.read(topic)] == [b"one", b"two"]


def test_a_part_of_a_transaction_ends_with_the_reason(keyed: KeyedBroker, client: Client, topic: str) -> None:
    """``denied`` on a connection of its own, from which the broker had nothing before."""
    part = client.transaction(topic, "app", 0).part(0)
    keyed.revoke()
    part.write(b"refused")
    problem = error_of(part.finish)
    assert isinstance(problem, AuthError)
    assert problem.text.startswith("part 0 of ")
    assert "does not know" in problem.text


# -- replaced at the broker ---------------------------------------------------------------------------------


def test_clients_with_both_keys_of_the_broker_are_served_before_and_after_it_is_replaced(
    keyed: KeyedBroker, connect: Connect, topic: str
) -> None:
    following = new_key("broker")
    servers = keyed.server.public_key, following.public_key
    both = keyed.files.write_key(read_key(keyed.alice)._replace(server_keys=servers))
    client = connect(keyed.url, key=both)
    with client.producer(topic) as producer:
        for number, server in enumerate((keyed.server, following, keyed.server, following)):
            keyed.restart(server)
            client.publish(topic, [b"%d" % number])
            producer.send(b"produced %d" % number)
            producer.flush()
    connect(keyed.url, key=both).ping()
    found = [message.value for message in client.read(topic)]
    assert sorted(found) == sorted(b"%s%d" % (what, n) for n in range(4) for what in (b"", b"produced "))


def test_a_client_reads_its_key_file_again_before_it_fails(
    keyed: KeyedBroker, client: Client, topic: str
) -> None:
    """Keys can be replaced while clients are running."""
    replaced = new_key("broker")
    following = new_key("alice", replaced)
    with client.producer(topic) as producer, client.group(topic, "group") as group:
        prepared = read_key(keyed.alice)._replace(server_keys=following.server_keys)
        for number, key in enumerate((prepared, following)):
            keyed.files.write_key(key, "alice")
            keyed.files.allow(key)
            keyed.restart(replaced)
            client.publish(topic, [b"%d" % number])
            producer.send(b"produced")
            producer.flush()
            assert len(group.fetch(2, timeout=DEADLINE_S)) > 0
    keyed.alice.chmod(0o644)
    keyed.restart(new_key("another"))
    assert "does not have the server-key of alice's key file" in auth_error_of(client.ping).text


def test_a_broker_with_neither_key_is_refused_at_once(keyed: KeyedBroker, connect: Connect) -> None:
    servers = tuple(new_key("other").public_key for _ in range(2))
    both = keyed.files.write_key(read_key(keyed.alice)._replace(server_keys=servers))
    problem = auth_error_of(lambda: connect(keyed.url, key=both, timeout=FOREVER_S))
    assert "does not have the server-key" in problem.text
