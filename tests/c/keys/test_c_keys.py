"""Keys in C: clients that a broker takes, refuses, forgets and takes again, and the rotation of its key."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import quoth
from kit.broker.proxies import Wire
from kit.client.keyed import UNCHECKED_S, KeyedBroker, without_authenticator
from kit.deadlines import DEADLINE_S, eventually
from kit.keys import KeyFiles, new_key
from kit.machine.commands import COMMAND_S, Ended, Running
from kit.machine.cprograms import ENVIRONMENT, MakeCalls
from quothwire.security.key_file import Key, read_key

Start = Callable[..., Running]
PROGRAMS = {
    "quoth-pub": (),
    "quoth-tail": (),
    "quoth-work": ("billing", "true"),
    "quoth-copy": ("copy",),
}
"""The example programs, with their arguments behind URL and TOPIC."""
KEPT_S, KEPT_MS = 60, 60_000
"""Timeout of programs and of calls that are to end long before."""
PATIENT = {name: ("-t", str(KEPT_S)) for name in PROGRAMS if name != "quoth-copy"}
"""The option of those that have one."""
REFUSED_S = KEPT_S / 3
"""The time in which a program ends whose key is refused, on a busy machine."""
CALLS = (
    ["ping"],
    ["publish", "t", 0, "00:~:~"],
    ["read", "t", 0, 0, 0, 0, 0],
    ["produce", "t", 0, 3, 1, 1, KEPT_MS],
    ["group_join", "t", "billing", 10, 0],
)

Rejection = tuple[Callable[[KeyedBroker], list[str]], str]
"""Prepares the broker and returns the options of a program; what it prints."""


def unknown_key(keyed: KeyedBroker) -> list[str]:
    return ["-k", str(keyed.mallory)]


def no_key(_keyed: KeyedBroker) -> list[str]:
    return []


def wrong_server_key(keyed: KeyedBroker) -> list[str]:
    return ["-k", with_server_keys(keyed, new_key("other"))]


def two_wrong_server_keys(keyed: KeyedBroker) -> list[str]:
    return ["-k", with_server_keys(keyed, new_key("other"), new_key("other"))]


def no_keys_at_the_broker(keyed: KeyedBroker) -> list[str]:
    keyed.restart_without_keys()
    return ["-k", str(keyed.alice)]


def with_server_keys(keyed: KeyedBroker, *servers: Key) -> str:
    """Write the key file of alice with other keys of the broker; returns its path."""
    publics = tuple(one.public_key for one in servers)
    return str(keyed.files.write_key(read_key(keyed.alice)._replace(server_keys=publics)))


OTHER_SERVER = "has another key than the server-key in "
REJECTIONS: dict[str, Rejection] = {
    "unknown key": (unknown_key, "does not know the key of mallory, or has revoked it"),
    "no key": (no_key, "wants a key, and none was given"),
    "wrong server key": (wrong_server_key, OTHER_SERVER),
    "two wrong server keys": (two_wrong_server_keys, OTHER_SERVER),
    "broker without keys": (no_keys_at_the_broker, "takes no keys, and one was given"),
}


def published(start: Start, keyed: KeyedBroker, topic: str, lines: bytes, *options: str) -> Ended:
    """Publish lines with quoth-pub."""
    process = start("quoth-pub", *options, keyed.url, topic, stdin=subprocess.PIPE).process
    out, err = process.communicate(lines, timeout=COMMAND_S)
    return Ended(process.returncode, out, err.decode())


def stored(keyed: KeyedBroker, topic: str) -> list[bytes]:
    """Return all values of a topic."""
    with quoth.connect(keyed.url, key=keyed.owner) as client:
        return [message.value for batch in client.batches(topic) for message in batch]


# -- keys that are taken -------------------------------------------------------------------------------------


def test_a_client_with_its_key_publishes_reads_works_and_copies(
    start: Start, keyed: KeyedBroker, topic: str
) -> None:
    key = "-k", str(keyed.alice)
    assert published(start, keyed, topic, b"one\ntwo\n", *key) == (0, b"", "quoth-pub: 2 acknowledged\n")
    tail = start("quoth-tail", *key, keyed.url, topic)
    assert [tail.line(), tail.line()] == ["one", "two"]
    assert tail.end(signal.SIGTERM).status == 143
    work = start("quoth-work", "-e", *key, keyed.url, topic, "billing", "cat").end()
    assert (work.status, work.out) == (0, b"onetwo")
    copy = start("quoth-copy", *key, keyed.url, topic, f"{topic}.copy")
    eventually(lambda: f"{topic}.copy" in topics(keyed) and stored(keyed, f"{topic}.copy"), "it copies")
    assert copy.end(signal.SIGTERM) == (143, b"", "")
    assert stored(keyed, f"{topic}.copy") == [b"one", b"two"]


def topics(keyed: KeyedBroker) -> list[str]:
    """Return the topics of the broker."""
    with quoth.connect(keyed.url, key=keyed.owner) as client:
        return client.topics()


def test_the_variable_names_the_key_file(
    start: Start, keyed: KeyedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "QUOTH_KEY_FILE", str(keyed.alice))
    assert published(start, keyed, topic, b"one\n").err == "quoth-pub: 1 acknowledged\n"
    unknown = str(keyed.mallory)
    assert published(start, keyed, topic, b"one\n", "-k", unknown).status == 1, "an option is stronger"


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_empty_path_of_a_key_file_is_refused(
    start: Start, keyed: KeyedBroker, topic: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Such a path comes from a variable that is not set: lines would be published in the clear."""
    monkeypatch.setitem(ENVIRONMENT, "QUOTH_KEY_FILE", str(keyed.alice))
    keyed.restart_without_keys()
    ended = start(name, "-k", "", keyed.url, topic, *PROGRAMS[name]).end()
    assert ended.status == 2
    (line,) = ended.err.splitlines()
    assert line.startswith(f"{name}: bad_setting: the key file is an empty path")


# -- rejections ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("rejection", REJECTIONS)
def test_a_refused_program_ends_at_once_with_one_line(
    start: Start, keyed: KeyedBroker, topic: str, name: str, rejection: str
) -> None:
    prepare, text = REJECTIONS[rejection]
    options = prepare(keyed)
    began = time.monotonic()
    ended = start(name, *PATIENT.get(name, ()), *options, keyed.url, topic, *PROGRAMS[name]).end()
    assert time.monotonic() - began < REFUSED_S
    assert (ended.status, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"{name}: auth_failed: the broker at {keyed.url} {text}")


def test_a_program_ends_soon_if_the_authenticator_of_the_broker_has_ended(
    start: Start, files: KeyFiles, tmp_path: Path
) -> None:
    key = str(files.write_key(files.add("alice")))
    with without_authenticator(files, tmp_path / "data") as url:
        began = time.monotonic()
        ended = start("quoth-tail", *PATIENT["quoth-tail"], "-k", key, url, "t").end()
        assert time.monotonic() - began < UNCHECKED_S
    assert (ended.status, ended.out) == (1, b"")
    assert ended.err.startswith(f"quoth-tail: auth_failed: the broker at {url} {OTHER_SERVER}")


def test_a_client_is_refused_before_anything_was_sent(make_calls: MakeCalls, keyed: KeyedBroker) -> None:
    calls = make_calls(keyed.url, str(KEPT_MS), "0", str(keyed.mallory))
    assert calls.greeting[0].startswith("error auth_failed 0 "), "it is certain that nothing was done"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_when_its_key_is_revoked(
    start: Start, keyed: KeyedBroker, topic: str, name: str
) -> None:
    key = "-k", str(keyed.alice)
    first = published(start, keyed, topic, b"one\n", *key)
    assert first.status == 0
    arguments = ("billing", "cat") if name == "quoth-work" else PROGRAMS[name]
    options = *PATIENT.get(name, ()), *key
    running = start(name, *options, keyed.url, topic, *arguments, stdin=subprocess.PIPE)
    if name == "quoth-pub":
        running.write(b"two\n")
        eventually(lambda: len(stored(keyed, topic)) == 2, "it publishes")
        running.write(b"three\n")
    elif name == "quoth-copy":
        eventually(lambda: "copy" in topics(keyed) and stored(keyed, "copy"), "it copies")
    else:
        assert running.process.stdout is not None
        assert running.process.stdout.read(3) == b"one"
    began = time.monotonic()
    keyed.revoke()
    if name == "quoth-pub":
        with suppress(BrokenPipeError):  # it has ended, if the third line was still on its way
            running.write(b"four\n")
    ended = running.end() if name != "quoth-pub" else ended_of(running)
    assert time.monotonic() - began < REFUSED_S
    assert ended.status == 1
    text = f"{name}: auth_failed: the broker at {keyed.url} does not know the key of alice, or has revoked it"
    assert ended.err.splitlines()[0] == text
    assert ended.err.count("auth_failed") == 1


def ended_of(running: Running) -> Ended:
    """Wait for the end of a program whose input stays open."""
    status = running.process.wait(COMMAND_S)
    assert running.process.stderr is not None
    return Ended(status, b"", running.process.stderr.read().decode())


@pytest.mark.parametrize("words", CALLS, ids=lambda words: str(words[0]))
def test_a_call_after_a_rejection_tries_again(
    make_calls: MakeCalls, keyed: KeyedBroker, words: list[object]
) -> None:
    calls = make_calls(keyed.url, str(KEPT_MS), "0", str(keyed.alice))
    assert calls("publish", "t", 0, "00:~:~")[0].startswith("ok ")
    for _ in range(2):
        keyed.revoke()
        for _ in range(3):
            began = time.monotonic()
            found = [line for line in calls(*words) if line.startswith(("error", "failed"))]
            assert "auth_failed" in found[-1]
            assert time.monotonic() - began < REFUSED_S
        keyed.allow()
        assert not [line for line in calls(*words) if line.startswith(("error", "failed"))]


def test_it_is_not_known_whether_a_publish_in_flight_was_stored_when_the_key_is_revoked(
    make_calls: MakeCalls, keyed: KeyedBroker
) -> None:
    with Wire(keyed.url) as wire:
        calls = make_calls(wire.url, str(KEPT_MS), "0", str(keyed.alice))
        wire.lose_answers()
        calls.begin("publish", "t", 0, "00:~:~")
        eventually(lambda: "t" in topics(keyed) and stored(keyed, "t"), "it is stored")
        keyed.revoke()
        wire.cut()
        (line,) = calls.take()
        assert line.startswith("error auth_failed 1 ")


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
    start: Start, keyed: KeyedBroker, topic: str, keys: int
) -> None:
    key = with_server_keys(keyed, keyed.server, *([new_key("other")] if keys == 2 else []))
    running = start("quoth-tail", "-t", "20", "-k", key, keyed.url, topic)
    published(start, keyed, topic, b"one\n", "-k", key)
    assert running.line() == "one"
    assert keyed.process.terminate() == 0
    closed: list[int] = []
    with socket.create_server(("127.0.0.1", int(keyed.url.rpartition(":")[2]))) as listener:
        thread = threading.Thread(target=close_at_once, args=(listener, closed))
        thread.start()
        eventually(lambda: len(closed) >= 12, "it tries again and again")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    keyed.process.start()
    assert published(start, keyed, topic, b"two\n", "-k", key).status == 0
    assert running.line() == "two"
    assert running.end(signal.SIGINT).status == 130


# -- rotation ------------------------------------------------------------------------------------------------


def test_a_client_with_two_server_keys_goes_on_while_the_brokers_key_is_replaced(
    start: Start, make_calls: MakeCalls, keyed: KeyedBroker, topic: str
) -> None:
    coming = new_key("broker")
    first = keyed.server
    key = with_server_keys(keyed, first, coming)
    calls = make_calls(keyed.url, str(KEPT_MS), "0", key)
    tail = start("quoth-tail", "-k", key, keyed.url, topic)
    for step, pair in enumerate((first, coming, first, coming)):
        keyed.restart(pair)
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
    make_calls: MakeCalls, keyed: KeyedBroker, topic: str
) -> None:
    coming = new_key("broker")
    key = with_server_keys(keyed, keyed.server, coming)
    keyed.restart(coming)
    calls = make_calls(keyed.url, str(KEPT_MS), "0", key)
    assert calls("produce", topic, 0, 3)[0].startswith("ok 3 0 ")
    assert calls("read", topic, 0, 0, 0, 0, int(DEADLINE_S * 1_000))[-1].startswith("end ")
