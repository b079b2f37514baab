"""Series of failed handshakes and their meaning: as a table, and with what is no broker with keys."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.client.keyed import KeyedBroker
from kit.deadlines import DEADLINE_S, becomes, eventually, hold
from kit.keys import KeyFiles, new_key
from kit.machine.ports import free_port
from quoth.connection.attempts import Attempts
from quoth.connection.connection import RETRY_S, Link
from quoth.connection.endpoint import Endpoint
from quoth.connection.handshake import TRIES, Handshakes, Reason
from quothwire.security.key_file import read_key

AUTH = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
PROTOCOL = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
NO_DETAIL = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
MISMATCH = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
UNSPECIFIED = int(zmq.PROTOCOL_ERROR_ZMTP_UNSPECIFIED)
EPIPE = 32
SERVER = new_key("broker")
FIRST, SECOND = SERVER.public_key, new_key("broker").public_key
KEYLESS = Endpoint("tcp://127.0.0.1:1")


def endpoint(*server_keys: str) -> Endpoint:
    """Return an endpoint with a client's key for these keys of the broker."""
    return Endpoint("tcp://127.0.0.1:1", new_key("alice")._replace(server_keys=server_keys))


# -- reported reasons ---------------------------------------------------------------------------------------

REPORTED = {
    "unknown key": ((FIRST,), AUTH, 400, Reason.UNKNOWN_KEY),
    "authenticator failed": ((FIRST,), AUTH, 500, Reason.UNABLE),
    "no keys there": ((FIRST,), PROTOCOL, MISMATCH, Reason.NO_KEYS_THERE),
    "no key given": ((), PROTOCOL, MISMATCH, Reason.NO_KEY_GIVEN),
    "other bytes": ((FIRST,), PROTOCOL, UNSPECIFIED, None),
}


@pytest.mark.parametrize(("keys", "event", "value", "reason"), REPORTED.values(), ids=REPORTED)
def test_a_reported_reason_counts_at_once(
    keys: tuple[str, ...], event: int, value: int, reason: Reason | None
) -> None:
    handshakes = Handshakes(endpoint(*keys) if keys else KEYLESS)
    handshakes.failed(event, value)
    assert handshakes.are_failing
    assert not handshakes.decide()
    assert handshakes.reason is reason


# -- handshakes that end without a reason -------------------------------------------------------------------

ANSWERED = {
    ("CURVE", True): Reason.OTHER_SERVER_KEY,
    ("CURVE", False): Reason.NO_KEY_GIVEN,
    ("NULL", True): Reason.NO_KEYS_THERE,
    ("NULL", False): None,
    ("", True): None,
    ("", False): None,
}


@pytest.mark.parametrize(("answer", "has_key"), ANSWERED)
@pytest.mark.parametrize(("event", "value"), [(NO_DETAIL, EPIPE), (PROTOCOL, UNSPECIFIED)])
def test_the_mechanism_is_asked_for_after_the_second_one(
    answer: str, has_key: bool, event: int, value: int
) -> None:
    handshakes = Handshakes(endpoint(FIRST) if has_key else KEYLESS)
    asked = []
    for _ in range(TRIES):
        handshakes.failed(event, value)
        asked.append(handshakes.decide())
    assert asked == [False, True]
    handshakes.answered(answer)
    assert handshakes.reason is None, "something else may have closed the connections of before"
    handshakes.failed(event, value)
    assert not handshakes.decide()
    assert handshakes.reason is ANSWERED[answer, has_key]


def test_what_is_no_broker_is_asked_less_and_less_often() -> None:
    handshakes = Handshakes(endpoint(FIRST))
    asked = []
    for number in range(1, 40):
        handshakes.failed(NO_DETAIL, EPIPE)
        if handshakes.decide():
            asked.append(number)
            handshakes.answered("")
    assert asked == [2, 4, 8, 16, 32]


def test_both_keys_of_the_broker_are_tried_twice_in_turn() -> None:
    handshakes = Handshakes(endpoint(FIRST, SECOND))
    tried = []
    while True:
        tried.append(handshakes.server_key)
        handshakes.failed(NO_DETAIL, EPIPE)
        if handshakes.decide():
            break
    assert tried == [FIRST, SECOND, FIRST, SECOND]


def test_both_keys_are_tried_once_more_after_an_answer() -> None:
    handshakes = Handshakes(endpoint(FIRST, SECOND))
    tried = []
    while handshakes.reason is None:
        tried.append(handshakes.server_key)
        handshakes.failed(NO_DETAIL, EPIPE)
        if handshakes.decide():
            handshakes.answered("CURVE")
        assert handshakes.has_tries or handshakes.reason, "the next one follows at once"
    assert tried == [FIRST, SECOND] * (TRIES + 1)
    assert handshakes.reason is Reason.OTHER_SERVER_KEY


def test_the_key_that_has_succeeded_is_the_first_one_of_the_next_connection() -> None:
    shared = endpoint(FIRST, SECOND)
    handshakes = Handshakes(shared)
    handshakes.failed(NO_DETAIL, EPIPE)
    handshakes.decide()
    handshakes.succeeded()
    assert shared.server_key == SECOND
    assert Handshakes(shared).server_key == SECOND


@pytest.mark.parametrize("keys", [(FIRST,), (FIRST, SECOND)], ids=["one key", "two keys"])
def test_a_success_in_between_makes_the_next_one_the_first(keys: tuple[str, ...]) -> None:
    """A broker that is killed in the middle of a handshake, again and again, refuses nothing."""
    handshakes = Handshakes(endpoint(*keys))
    for _ in range(20):
        handshakes.failed(NO_DETAIL, EPIPE)
        assert not handshakes.decide()
        assert handshakes.reason is None
        handshakes.succeeded()


# -- what listens there -------------------------------------------------------------------------------------


class Acceptor:
    """Accepts connections on a port and closes each at once, as what stands in front of a broker may do."""

    def __init__(self, port: int) -> None:
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._run, name="acceptor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.accepted += 1
                connection.close()


@pytest.fixture
def port() -> int:
    """A port on which nothing listens."""
    return free_port()


@pytest.fixture
def link(stack: ExitStack, port: int) -> Iterator[Link]:
    """A link with a key to that port."""
    context = stack.enter_context(zmq.Context())
    with closing(Link(context, Endpoint(f"tcp://127.0.0.1:{port}", new_key("alice", SERVER)))) as link:
        yield link


def test_what_accepts_connections_and_closes_them_refuses_no_key(
    port: int, stack: ExitStack, link: Link
) -> None:
    acceptor = stack.enter_context(closing(Acceptor(port)))

    def is_tried() -> bool:
        link.wait(0.1)
        return acceptor.accepted > 2 * TRIES

    eventually(is_tried, "it is tried again and again")
    assert link.refused is None


def test_an_idle_link_does_not_try_for_ever(port: int, stack: ExitStack, link: Link) -> None:
    """Events that it does not read would pile up, and a broker would see it fail again and again."""
    acceptor = stack.enter_context(closing(Acceptor(port)))
    eventually(lambda: link.wait(0.1) or acceptor.accepted, "it is tried")
    accepted = acceptor.accepted
    hold(lambda: acceptor.accepted <= accepted + 1, "it is not tried", 3 * RETRY_S)


def test_a_client_waits_behind_what_closes_connections_until_the_broker_is_there(
    start_broker: StartBroker, port: int, tmp_path: Path
) -> None:
    files = KeyFiles(tmp_path)
    alice = files.write_key(files.add("alice"))
    acceptor = Acceptor(port)

    def replace() -> None:
        eventually(lambda: acceptor.accepted > 2 * TRIES, "it is tried")
        acceptor.close()
        start_broker(port=port, **files.settings)

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        with quoth.connect(f"tcp://127.0.0.1:{port}", key=alice, wait=DEADLINE_S) as client:
            client.ping()
    finally:
        replacing.join()


def test_a_broker_that_has_just_followed_on_what_closes_connections_refuses_no_key(
    start_broker: StartBroker, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is about to ask for the mechanism of what has closed its connections."""
    files = KeyFiles(tmp_path)
    alice = files.write_key(files.add("alice"))
    acceptor, mechanism, found = Acceptor(port), Attempts.mechanism, list[str]()

    def replace_and_ask(attempts: Attempts) -> str:
        acceptor.close()
        start_broker(port=port, **files.settings)
        found.append(eventually(lambda: mechanism(attempts), "it answers in the time of a step"))
        return found[0]

    monkeypatch.setattr(Attempts, "mechanism", replace_and_ask)
    with quoth.connect(f"tcp://127.0.0.1:{port}", key=alice, wait=DEADLINE_S) as client:
        client.ping()
    assert found == ["CURVE"]


def test_a_broker_that_is_frozen_refuses_no_key(link: Link, port: int) -> None:
    """Its host accepts connections, and nothing answers on them."""
    with socket.create_server(("127.0.0.1", port)):
        link._handshakes.failed(NO_DETAIL, EPIPE)
        link._handshakes.failed(NO_DETAIL, EPIPE)
        link.read_events()
        assert link.refused is None


def test_the_mechanism_of_what_listens_is_asked_for(
    keyed: KeyedBroker, broker: BrokerProcess, port: int
) -> None:
    for url, mechanism in ((keyed.url, "CURVE"), (broker.url, "NULL")):
        becomes(Attempts(url).mechanism, mechanism, "it answers in the time of a step")
    assert Attempts(f"tcp://127.0.0.1:{port}").mechanism() == ""
    with closing(Acceptor(port)):
        assert Attempts(f"tcp://127.0.0.1:{port}").mechanism() == ""


def test_a_refused_link_does_not_connect_by_itself(keyed: KeyedBroker) -> None:
    with zmq.Context() as context:
        endpoint = Endpoint(keyed.url, keyed.mallory)
        with closing(Link(context, endpoint)) as link:
            eventually(partial(_is_refused, link), "it is refused")
            keyed.allow(read_key(keyed.mallory))
            eventually(lambda: not link.wait(0.2), "its events are read")
            assert not link.connected
            link.redial()
            eventually(lambda: link.wait(0.1) or link.connected, "it is connected")


def test_a_refused_connection_can_be_tried_any_number_of_times(keyed: KeyedBroker) -> None:
    """Each time libzmq has given up by itself, or goes on to try."""
    for given in (keyed.mallory, new_key("alice", SERVER)):
        with zmq.Context() as context, closing(Link(context, Endpoint(keyed.url, given))) as link:
            for _ in range(5):
                eventually(partial(_is_refused, link), "it is refused")
                assert "not known" not in link.auth_failed("ping", is_sent=True).text
                link.redial()


def _is_refused(link: Link) -> bool:
    link.wait(0.1)
    return link.refused is not None
