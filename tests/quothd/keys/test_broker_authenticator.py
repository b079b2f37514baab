"""The authenticator of a broker: it fails closed, is started again, and is tested before a broker serves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
import zmq.utils.z85

from kit.broker.peers import Context, FastPeer, Peers, refused
from kit.broker.supervisors import Supervisor
from kit.deadlines import DEADLINE_S, eventually
from kit.keys import (
    BROKEN_OFF,
    DENIED,
    SUCCEEDED,
    KeyFiles,
    connecting,
    end_of_handshake,
    handshake,
    new_key,
)
from quothd import Broker
from quothd.frontend import endpoints
from quothd.keys import authentication, authenticator, self_test
from quothd.keys.authenticator import ENDPOINT, LOGGED_MAX, WINDOW_S, Authenticator, DenialLog, secure
from quothwire.errors import QuothError
from quothwire.protocol.messages import Ping
from quothwire.security.key_file import Key
from quothwire.service.sd_notify import Notifier

EMBED = Callable[..., Broker]


def state(fast: FastPeer) -> dict[str, int]:
    counters = fast.status(limit=0).counters
    return {name: counters[name] for name in ("authenticator_running", "authenticator_restarts")}


def kill_authenticator(monkeypatch: pytest.MonkeyPatch, context: Context, broker: Broker, key: Key) -> None:
    """Let the thread fail at a handshake."""
    failed = threading.Event()

    def fail(_self: Authenticator, _request: list[bytes]) -> list[bytes]:
        failed.set()
        raise MemoryError("no memory is left")

    with monkeypatch.context() as failing:
        failing.setattr(Authenticator, "_reply", fail)
        with connecting(context, broker.urls[0], key):
            assert failed.wait(DEADLINE_S)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """Return a service manager."""
    supervisor = Supervisor.below(tmp_path)
    yield supervisor
    supervisor.close()


@pytest.fixture
def notifier(supervisor: Supervisor) -> Iterator[Notifier]:
    notifier = Notifier(supervisor.address)
    yield notifier
    notifier.close()


def test_a_dead_authenticator_closes_the_door_until_it_is_started_again(
    notifier: Notifier,
    embed_with_keys: EMBED,
    keys: KeyFiles,
    context: Context,
    peers: Peers,
    monkeypatch: pytest.MonkeyPatch,
    refuse_threads: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    supervisor: Supervisor,
) -> None:
    """Connected clients go on. The state is in the status of the broker, of its service, and in the log."""
    monkeypatch.setattr(authentication, "LOOK_S", 0.01)
    monkeypatch.setattr(authentication, "LOOKS_MAX", 1_000_000)
    monkeypatch.setattr(authentication, "PAUSE_S", 0.01)
    monkeypatch.setattr(authentication, "PAUSE_MAX_S", 0.05)
    caplog.set_level(logging.INFO, "quothd")
    alice = keys.add("alice")
    broker = embed_with_keys(check_interval=0.01, notifier=notifier)
    url = broker.urls[0]
    fast = peers.fast(url, key=alice)
    assert state(fast) == {"authenticator_running": 1, "authenticator_restarts": 0}
    refuse_threads("quoth-authenticator")
    kill_authenticator(monkeypatch, context, broker, alice)
    eventually(lambda: state(fast)["authenticator_running"] == 0, "the broker notices it")
    for key in (alice, new_key("stranger", keys.server)):
        with connecting(context, url, key) as monitor:
            assert end_of_handshake(monitor) == BROKEN_OFF, "at the latest when it has taken too long"
    fast.publish("a", [b"1"])
    supervisor.wait_for("STATUS", "authenticator down: new connections are refused")
    refuse_threads("")
    eventually(lambda: state(fast)["authenticator_running"] == 1, "it is started again")
    assert state(fast)["authenticator_restarts"] == 1
    assert handshake(context, url, alice) == SUCCEEDED
    assert handshake(context, url, new_key("stranger", keys.server)) == DENIED
    for event in ("authenticator_failed", "authenticator_down", "authenticator_up"):
        eventually(lambda event=event: f"event={event}" in caplog.text, "the log says so")  # type: ignore[misc]


def test_an_authenticator_that_hangs_is_noticed(
    embed_with_keys: EMBED, keys: KeyFiles, context: Context, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other one is started: its handshakes are answered once it goes on."""
    monkeypatch.setattr(authentication, "LOOK_S", 0.05)
    monkeypatch.setattr(authenticator, "BEAT_MS", 5)
    monkeypatch.setattr(endpoints, "HANDSHAKE_MS", 60_000)
    alice = keys.add("alice")
    broker = embed_with_keys(check_interval=0.01)
    fast = peers.fast(broker.urls[0], key=alice)
    eventually(lambda: state(fast)["authenticator_running"] == 1, "it is running")
    goes_on = threading.Event()
    answer = Authenticator._reply

    def hang(self: Authenticator, request: list[bytes]) -> list[bytes]:
        goes_on.wait()
        return answer(self, request)

    monkeypatch.setattr(Authenticator, "_reply", hang)
    with connecting(context, broker.urls[0], alice) as monitor:
        eventually(lambda: state(fast)["authenticator_running"] == 0, "the broker notices it")
        fast.publish("a", [b"1"])
        goes_on.set()
        assert end_of_handshake(monitor) == SUCCEEDED
    eventually(lambda: state(fast)["authenticator_running"] == 1, "the broker notices it")
    assert state(fast)["authenticator_restarts"] == 0


# -- the test at the start --------------------------------------------------------------------------------


def accept_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Authenticator,
        "_reply",
        lambda _self, request: [b"1.0", request[1], b"200", b"OK", b"stranger", b""],
    )


def ask_for_no_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    def secure(socket: zmq.Socket[bytes], secret_key: str) -> None:
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, secret_key.encode())

    monkeypatch.setattr(authentication, "secure", secure)
    monkeypatch.setattr(authenticator, "ENDPOINT", "inproc://elsewhere")


def require_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "secure", lambda _socket, _secret_key: None)


def secure_requests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    secure = authenticator.secure

    def secure_router(socket: zmq.Socket[bytes], secret_key: str) -> None:
        if socket.type == zmq.ROUTER:
            secure(socket, secret_key)

    monkeypatch.setattr(authentication, "secure", secure_router)


def answer_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "ENDPOINT", "inproc://elsewhere")


def use_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    secure, other = authenticator.secure, new_key("another broker").secret_key
    monkeypatch.setattr(authentication, "secure", lambda socket, _secret_key: secure(socket, other))


OPEN_DOORS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    accept_all: "accepts a client with an unknown key",
    ask_for_no_domain: "accepts a client with an unknown key",
    require_no_key: "does not ask the authenticator",
    secure_requests_alone: "does not ask the authenticator",
    answer_nothing: "does not ask the authenticator",
    use_another_key: "does not ask the authenticator",
}


@pytest.mark.parametrize("open_door", OPEN_DOORS, ids=lambda one: str(one.__name__))
def test_a_broker_that_lets_unknown_keys_in_does_not_start(
    tmp_path: Path,
    keys: KeyFiles,
    monkeypatch: pytest.MonkeyPatch,
    open_door: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """The error says so, and nothing is left: the same directory serves once the door is shut."""
    broker = Broker(tmp_path / "data", host="127.0.0.1", **keys.settings)
    with monkeypatch.context() as opened:
        open_door(opened)
        with pytest.raises(Exception) as caught:  # noqa: PT011  # the code is what counts
            broker.start()
    assert getattr(caught.value, "code", "") == "unusable_system"
    assert OPEN_DOORS[open_door] in str(caught.value)
    with broker:
        assert broker.urls


@pytest.mark.parametrize("with_keys", [True, False])
def test_a_libzmq_with_known_holes_is_refused_at_the_start(
    tmp_path: Path, keys: KeyFiles, monkeypatch: pytest.MonkeyPatch, with_keys: bool
) -> None:
    """With the version that it needs; the first one that is good enough serves."""
    broker = Broker(tmp_path / "data", host="127.0.0.1", **(keys.settings if with_keys else {}))
    with monkeypatch.context() as older:
        older.setattr(zmq, "zmq_version_info", lambda: (4, 3, 3))
        with pytest.raises(QuothError, match="known holes") as caught:
            broker.start()
    assert caught.value.code == "unusable_system"
    assert "4.3.4" in (caught.value.hint or "")
    monkeypatch.setattr(zmq, "zmq_version_info", lambda: (4, 3, 4))
    with broker:
        assert broker.urls


def test_a_silent_authenticator_is_an_error_at_the_start(
    tmp_path: Path, keys: KeyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "DEADLINE_S", 0.1)
    monkeypatch.setattr(Authenticator, "_key_of", lambda _request: (_ for _ in ()).throw(AssertionError))
    monkeypatch.setattr(Authenticator, "_answer_all", lambda _self, _zap, pipe: pipe.recv())
    with refused("unusable_system"):
        Broker(tmp_path / "data", host="127.0.0.1", **keys.settings).start()


def test_the_test_at_the_start_takes_little_time_and_is_in_no_log(
    embed_with_keys: EMBED, keys: KeyFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys.add("alice")
    broker = embed_with_keys(host="::", listen=[f"ipc://{tmp_path}/socket", "tcp://127.0.0.1:0"])
    assert len(broker.urls) == 4
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# -- the protocol between libzmq and the authenticator -------------------------------------------------------


@pytest.fixture
def own_context() -> Iterator[Context]:
    with zmq.Context() as context:
        yield context


@pytest.fixture
def denied() -> list[tuple[str, str]]:
    """Return the denied handshakes of `door`: the key and the address of each."""
    return []


@pytest.fixture
def door(own_context: Context, denied: list[tuple[str, str]]) -> Iterator[Authenticator]:
    door = Authenticator(own_context, DenialLog(lambda *about: denied.append(about), time.monotonic))
    door.start()
    yield door
    door.stop()


def test_messages_carry_the_public_key_of_their_client(
    own_context: Context, door: Authenticator, keys: KeyFiles, context: Context, peers: Peers
) -> None:
    """As the User-Id, in Z85, on every frame. A client cannot set it."""
    alice = keys.add("alice")
    door.accept([alice.public_key])
    with own_context.socket(zmq.ROUTER) as router:
        secure(router, keys.server.secret_key)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        peers.fast(f"tcp://127.0.0.1:{port}", key=alice, identity=b"bob").send(Ping())
        frames = router.recv_multipart(copy=False)
        assert [frame.get("User-Id") for frame in frames] == [alice.public_key] * len(frames)


def test_requests_that_are_no_handshake_with_a_known_key_are_denied(
    own_context: Context, door: Authenticator, denied: list[tuple[str, str]]
) -> None:
    key = new_key("alice")
    raw = zmq.utils.z85.decode(key.public_key)
    good = [b"1.0", b"7", b"quoth", b"10.0.0.1", b"", b"CURVE", raw]
    wrong: list[list[bytes]] = [
        [b""], good[:1], good[:2], good[:6], [*good, b""], [b"2.0", *good[1:]],
        [*good[:2], b"another domain", *good[3:]], [*good[:2], b"", *good[3:]],
        [*good[:5], b"NULL"], [*good[:5], b"NULL", raw], [*good[:5], b"PLAIN", b"alice", b"secret"],
        [*good[:6], b""], [*good[:6], raw[:31]], [*good[:6], raw + b"x"], [*good[:6], bytes(32)],
    ]  # fmt: skip
    door.accept([key.public_key])
    with own_context.socket(zmq.REQ) as asking:
        asking.connect(ENDPOINT)
        for request in (good, *wrong, good):
            asking.send_multipart(request)
            version, number, status, _, user, metadata = asking.recv_multipart()
            assert (version, metadata) == (b"1.0", b"")
            assert number == (request[1] if len(request) > 1 else b"")
            assert (status, user) == (
                (b"400", b"") if request in wrong else (b"200", key.public_key.encode())
            )
    door.stop()
    assert len(denied) == len(wrong)
    assert denied[-1] == (zmq.utils.z85.encode(bytes(32)).decode(), "10.0.0.1")
    assert all(key == "" for key, _ in denied[:-1])


def test_denials_are_logged_per_address_and_window_and_counted_beyond(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    denied: list[tuple[str, str]] = []
    denials = DenialLog(lambda *about: denied.append(about), lambda: now)

    def logged() -> list[dict[str, object]]:
        return [getattr(record, "fields") for record in caplog.records]  # noqa: B009

    for number in range(100):
        denials.add(f"key {number}", "10.0.0.1")
    denials.add("key", "10.0.0.2")
    assert [fields["address"] for fields in logged()] == ["10.0.0.1"] * 3 + ["10.0.0.2"]
    for number in range(100):
        denials.add("key", f"10.0.1.{number}")
    assert len(logged()) == LOGGED_MAX
    now = WINDOW_S
    denials.tick()
    assert logged()[-1] == {"number": 201 - LOGGED_MAX}
    denials.add("key", "10.0.0.1")
    assert logged()[-1] == {"key": "key", "address": "10.0.0.1"}
    assert denials.total == len(denied) == 202
