"""Keys in C: clients that a broker takes, refuses, forgets and takes again, and the rotation of its key."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.client.doors import Doors, new_pair
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.commands import COMMAND_S, Ended, Running
from kit.machine.cprograms import ENVIRONMENT, MakeCalls

Start = Callable[..., Running]
PROGRAMS = {
    "quoth-pub": (),
    "quoth-tail": (),
    "quoth-work": ("billing", "true"),
    "quoth-copy": ("copy",),
}
"""The example programs, with their arguments behind URL and TOPIC."""
REFUSED_S = 2.0
"""The time in which a program ends whose key is refused."""
CALLS = (
    ["ping"],
    ["publish", "t", 0, "00:~:~"],
    ["read", "t", 0, 0, 0, 0, 0],
    ["produce", "t", 0, 3, 1, 1, 20_000],
    ["group_join", "t", "billing", 10, 0],
)
KEPT_MS = 20_000
"""Timeout of calls that are to end long before."""

Rejection = tuple[Callable[[Doors], list[str]], str]
"""Prepares the doors and returns the options of a program; what it prints."""


def unknown_key(doors: Doors) -> list[str]:
    return ["-k", str(doors.key_file(new_pair(), name="mallory"))]


def no_key(_doors: Doors) -> list[str]:
    return []


def wrong_server_key(doors: Doors) -> list[str]:
    return ["-k", str(doors.key_file(doors.alice, new_pair()))]


def two_wrong_server_keys(doors: Doors) -> list[str]:
    return ["-k", str(doors.key_file(doors.alice, new_pair(), new_pair()))]


def no_authenticator(doors: Doors) -> list[str]:
    doors.open(doors.alice, checks=False)
    return ["-k", str(doors.key_file())]


def no_keys_at_the_broker(doors: Doors) -> list[str]:
    doors.url = doors.broker_url
    return ["-k", str(doors.key_file())]


OTHER_SERVER = "has another key than the server-key in "
REJECTIONS: dict[str, Rejection] = {
    "unknown key": (unknown_key, "does not know the key of mallory, or has revoked it"),
    "no key": (no_key, "wants a key, and none was given"),
    "wrong server key": (wrong_server_key, OTHER_SERVER),
    "two wrong server keys": (two_wrong_server_keys, OTHER_SERVER),
    "no authenticator": (no_authenticator, OTHER_SERVER),
    "broker without keys": (no_keys_at_the_broker, "takes no keys, and one was given"),
}


def published(start: Start, doors: Doors, topic: str, lines: bytes, *options: str) -> Ended:
    """Publish lines with quoth-pub."""
    process = start("quoth-pub", *options, doors.url, topic, stdin=subprocess.PIPE).process
    out, err = process.communicate(lines, timeout=COMMAND_S)
    return Ended(process.returncode, out, err.decode())


def stored(doors: Doors, topic: str) -> list[bytes]:
    """Return all values of a topic."""
    with quoth.connect(doors.broker_url) as client:
        return [message.value for batch in client.batches(topic) for message in batch]


# -- keys that are taken -------------------------------------------------------------------------------------


def test_a_client_with_its_key_publishes_reads_works_and_copies(
    start: Start, doors: Doors, topic: str
) -> None:
    key = "-k", str(doors.key_file())
    assert published(start, doors, topic, b"one\ntwo\n", *key) == (0, b"", "quoth-pub: 2 acknowledged\n")
    tail = start("quoth-tail", *key, doors.url, topic)
    assert [tail.line(), tail.line()] == ["one", "two"]
    assert tail.end(signal.SIGTERM).status == 143
    work = start("quoth-work", "-e", *key, doors.url, topic, "billing", "cat").end()
    assert (work.status, work.out) == (0, b"onetwo")
    copy = start("quoth-copy", *key, doors.url, topic, f"{topic}.copy")
    eventually(lambda: f"{topic}.copy" in topics(doors) and stored(doors, f"{topic}.copy"), "it copies")
    assert copy.end(signal.SIGTERM) == (143, b"", "")
    assert stored(doors, f"{topic}.copy") == [b"one", b"two"]


def topics(doors: Doors) -> list[str]:
    """Return the topics of the broker."""
    with quoth.connect(doors.broker_url) as client:
        return client.topics()


def test_the_variable_names_the_key_file(
    start: Start, doors: Doors, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "QUOTH_KEY_FILE", str(doors.key_file()))
    assert published(start, doors, topic, b"one\n").err == "quoth-pub: 1 acknowledged\n"
    unknown = str(doors.key_file(new_pair()))
    assert published(start, doors, topic, b"one\n", "-k", unknown).status == 1, "an option is stronger"


# -- rejections ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("rejection", REJECTIONS)
def test_a_refused_program_ends_at_once_with_one_line(
    start: Start, doors: Doors, topic: str, name: str, rejection: str
) -> None:
    prepare, text = REJECTIONS[rejection]
    options = prepare(doors)
    began = time.monotonic()
    ended = start(name, *options, doors.url, topic, *PROGRAMS[name]).end()
    assert time.monotonic() - began < REFUSED_S
    assert (ended.status, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"{name}: auth_failed: the broker at {doors.url} {text}")


def test_a_client_is_refused_before_anything_was_sent(make_calls: MakeCalls, doors: Doors) -> None:
    calls = make_calls(doors.url, str(KEPT_MS), "0", str(doors.key_file(new_pair())))
    assert calls.greeting[0].startswith("error auth_failed 0 "), "it is certain that nothing was done"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_when_its_key_is_revoked(start: Start, doors: Doors, topic: str, name: str) -> None:
    key = "-k", str(doors.key_file())
    first = published(start, doors, topic, b"one\n", *key)
    assert first.status == 0
    arguments = ("billing", "cat") if name == "quoth-work" else PROGRAMS[name]
    running = start(name, *key, doors.url, topic, *arguments, stdin=subprocess.PIPE)
    if name == "quoth-pub":
        running.write(b"two\n")
        eventually(lambda: len(stored(doors, topic)) == 2, "it publishes")
        running.write(b"three\n")
    elif name == "quoth-copy":
        eventually(lambda: "copy" in topics(doors) and stored(doors, "copy"), "it copies")
    else:
        assert running.process.stdout is not None
        assert running.process.stdout.read(3) == b"one"
    began = time.monotonic()
    doors.open()
    if name == "quoth-pub":
        running.write(b"four\n")
    ended = running.end() if name != "quoth-pub" else ended_of(running)
    assert time.monotonic() - began < REFUSED_S
    assert ended.status == 1
    text = f"{name}: auth_failed: the broker at {doors.url} does not know the key of alice, or has revoked it"
    assert ended.err.splitlines()[0] == text
    assert ended.err.count("auth_failed") == 1


def ended_of(running: Running) -> Ended:
    """Wait for the end of a program whose input stays open."""
    status = running.process.wait(COMMAND_S)
    assert running.process.stderr is not None
    return Ended(status, b"", running.process.stderr.read().decode())


@pytest.mark.parametrize("words", CALLS, ids=lambda words: str(words[0]))
def test_a_call_after_a_rejection_tries_again(
    make_calls: MakeCalls, doors: Doors, words: list[object]
) -> None:
    calls = make_calls(doors.url, str(KEPT_MS), "0", str(doors.key_file()))
    assert calls("publish", "t", 0, "00:~:~")[0].startswith("ok ")
    for _ in range(2):
        doors.open()
        for _ in range(3):
            began = time.monotonic()
            found = [line for line in calls(*words) if line.startswith(("error", "failed"))]
            assert "auth_failed" in found[-1]
            assert time.monotonic() - began < REFUSED_S
        doors.open(doors.alice)
        assert not [line for line in calls(*words) if line.startswith(("error", "failed"))]


def test_it_is_not_known_whether_a_publish_in_flight_was_stored_when_the_key_is_revoked(
    make_calls: MakeCalls, start_broker: StartBroker, doors_of: Callable[[BrokerProcess], Doors]
) -> None:
    broker = start_broker()
    doors = doors_of(broker)
    doors.open(doors.alice)
    calls = make_calls(doors.url, str(KEPT_MS), "0", str(doors.key_file()))
    broker.freeze()
    calls.begin("publish", "t", 0, "00:~:~")
    doors.open()
    (line,) = calls.take()
    assert line.startswith("error auth_failed 1 ")
    broker.kill()


# -- outages -------------------------------------------------------------------------------------------------


def close_at_once(listener: socket.socket, closed: list[int]) -> None:
    """Accept connections and close them, as a forwarder does whose target is away."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.close()
        closed.append(1)


@pytest.mark.parametrize("keys", [1, 2])
def test_connections_that_a_forwarder_closes_are_an_outage_and_no_rejection(
    start: Start, doors: Doors, topic: str, keys: int
) -> None:
    key = doors.key_file(doors.alice, doors.pair, *([new_pair()] if keys == 2 else []))
    running = start("quoth-tail", "-t", "20", "-k", str(key), doors.url, topic)
    published(start, doors, topic, b"one\n", "-k", str(key))
    assert running.line() == "one"
    doors.close()
    closed: list[int] = []
    with socket.create_server(("127.0.0.1", doors.port)) as listener:
        thread = threading.Thread(target=close_at_once, args=(listener, closed))
        thread.start()
        eventually(lambda: len(closed) >= 12, "it tries again and again")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    doors.open(doors.alice)
    assert published(start, doors, topic, b"two\n", "-k", str(key)).status == 0
    assert running.line() == "two"
    assert running.end(signal.SIGINT).status == 130


# -- rotation ------------------------------------------------------------------------------------------------


def test_a_client_with_two_server_keys_goes_on_while_the_brokers_key_is_replaced(
    start: Start, make_calls: MakeCalls, doors: Doors, topic: str
) -> None:
    coming = new_pair()
    key = str(doors.key_file(doors.alice, doors.pair, coming))
    calls = make_calls(doors.url, str(KEPT_MS), "0", key)
    tail = start("quoth-tail", "-k", key, doors.url, topic)
    for step, pair in enumerate((doors.pair, coming, doors.pair, coming)):
        doors.open(doors.alice, pair=pair)
        (line,) = calls("produce", topic, 11 * step, 3)
        assert line.split()[:3] == ["ok", "3", "0"]
        assert calls("publish", topic, 0, "66:~:~")[0].startswith("ok ")
        found = [tail.line() for _ in range(4)]
        assert [line.split()[:2] for line in found] == [
            *(["value", str(11 * step + number)] for number in range(3)),
            ["f"],
        ]
    assert tail.end(signal.SIGINT).status == 130


def test_the_key_that_is_found_is_tried_first_by_later_connections(
    make_calls: MakeCalls, doors: Doors, topic: str
) -> None:
    coming = new_pair()
    doors.open(doors.alice, pair=coming)
    calls = make_calls(doors.url, str(KEPT_MS), "0", str(doors.key_file(doors.alice, doors.pair, coming)))
    assert calls("produce", topic, 0, 3)[0].startswith("ok 3 0 ")
    assert calls("read", topic, 0, 0, 0, 0, int(DEADLINE_S * 1_000))[-1].startswith("end ")
