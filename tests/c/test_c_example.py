"""The C example against real brokers. Warnings and wrong memory accesses are errors."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker, free_port
from kit.broker.peers import Context
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import flip, stored_batches
from kit.machine.commands import COMMAND_S, Ended, Running
from kit.machine.cprograms import copied, make

SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
LINES = 30_000

Start = Callable[..., Running]


@pytest.fixture
def start(program: Path) -> Iterator[Start]:
    """Start the example, and kill it at the end of the test if it still runs."""
    started: list[Running] = []

    def start_it(*arguments: str, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE) -> Running:
        process = subprocess.Popen(
            [program, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, **SANITIZERS},
        )
        started.append(Running(process))
        return started[-1]

    yield start_it
    for one in started:
        if one.process.poll() is None:
            os.kill(one.process.pid, signal.SIGKILL)
        one.process.communicate(timeout=DEADLINE_S)


def publish(start: Start, url: str, topic: str, lines: bytes, *options: str) -> Ended:
    """Publish lines with the example."""
    process = start("publish", *options, url, topic, stdin=subprocess.PIPE).process
    out, err = process.communicate(lines, timeout=COMMAND_S)
    return Ended(process.returncode, out, err.decode())


def end(running: Running, number: int) -> Ended:
    """End it by a signal, and return the rest of its output."""
    process = running.process
    assert process.stdout is not None
    assert process.stderr is not None
    os.kill(process.pid, number)
    out, err = process.stdout.read(), process.stderr.read()
    return Ended(process.wait(DEADLINE_S), out, err.decode())


def read_lines(running: Running, count: int) -> bytes:
    """Return the next lines of its output."""
    assert running.process.stdout is not None
    return b"".join(running.process.stdout.readline() for _ in range(count))


def stored(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Return all values of a topic."""
    with quoth.connect(broker.url) as client:
        return [message.value for batch in client.batches(topic) for message in batch]


def count_of(broker: BrokerProcess, topic: str) -> int:
    """Return the number of records of a topic."""
    with quoth.connect(broker.url) as client:
        return client.topic(topic).count if topic in client.topics() else 0


def arbitrary_lines(rng: random.Random, count: int) -> bytes:
    """Return lines of all kinds, also empty and binary ones. The last one has no newline."""
    kinds: list[Callable[[], bytes]] = [
        lambda: b"",
        lambda: b"%d" % rng.randrange(10**9),
        lambda: rng.randbytes(rng.randrange(100)).replace(b"\n", b"\r"),
        lambda: b"\0" * rng.randrange(3),
    ]
    lines = [rng.choice(kinds)() for _ in range(count - 2)]
    return b"\n".join([*lines, rng.randbytes(200_000).replace(b"\n", b"\0"), b"\xff\0last"])


def test_makefile_builds_the_example_and_removes_what_it_built(tmp_path: Path) -> None:
    folder = copied(tmp_path / "examples")
    before = sorted(folder.iterdir())
    make(folder)
    assert subprocess.run([folder / "quothpipe"], capture_output=True, check=False).returncode == 2
    make(folder, "clean")
    assert sorted(folder.iterdir()) == before


def test_lines_come_back_byte_for_byte(
    start: Start, broker: BrokerProcess, topic: str, rng: random.Random
) -> None:
    assert publish(start, broker.url, topic, b"") == (0, b"", "quothpipe: 0 acknowledged\n")
    assert count_of(broker, topic) == 0
    lines = arbitrary_lines(rng, LINES)
    ended = publish(start, broker.url, topic, lines)
    assert ended == (0, b"", f"quothpipe: {LINES} acknowledged\n")
    tail = start("tail", broker.url, topic)
    assert read_lines(tail, LINES) == lines + b"\n"
    ended = end(tail, signal.SIGTERM)
    with quoth.connect(broker.url) as client:
        newest = client.topic(topic).last
    assert ended == (128 + signal.SIGTERM, b"", f"quothpipe: cursor {newest}\n")


@pytest.mark.parametrize("options", [(), ("-w", "1")], ids=["pipelined", "one at a time"])
def test_publish_loses_no_line_when_the_broker_is_killed(
    start: Start, start_broker: StartBroker, topic: str, options: tuple[str, ...]
) -> None:
    broker = start_broker()
    lines = [b"line %d" % number for number in range(24_000)]
    running = start("publish", "-t", "60", *options, broker.url, topic, stdin=subprocess.PIPE)
    for begin in range(0, len(lines), 8_000):
        if begin:
            eventually(lambda: count_of(broker, topic) > begin - 4_000, "it publishes")  # noqa: B023
            broker.kill()
            broker.restart()
        running.write(b"\n".join(lines[begin : begin + 8_000]) + b"\n")
    ended = running.end()
    assert ended.status == 0
    assert ended.err.startswith(f"quothpipe: {len(lines)} acknowledged")
    found = stored(broker, topic)
    twice = sum(count - 1 for count in Counter(found).values())
    resent = int(ended.err.split(", ")[1].split()[0]) if ", " in ended.err else 0
    assert set(found) == set(lines)
    assert twice <= resent
    if options:
        assert list(dict.fromkeys(found)) == lines


def test_tail_goes_on_when_the_broker_is_killed(
    start: Start, start_broker: StartBroker, topic: str, rng: random.Random
) -> None:
    broker = start_broker()
    lines = arbitrary_lines(rng, LINES).split(b"\n")
    half = LINES // 2
    tail = start("tail", broker.url, topic)
    publish(start, broker.url, topic, b"\n".join(lines[:half]) + b"\n")
    got = read_lines(tail, half // 2)
    broker.kill()
    broker.restart()
    publish(start, broker.url, topic, b"\n".join(lines[half:]))
    got += read_lines(tail, LINES - half // 2)
    assert got == b"\n".join(lines) + b"\n"
    assert end(tail, signal.SIGINT).status == 130


def test_tail_goes_on_at_the_cursor_that_it_printed(start: Start, broker: BrokerProcess, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(5_000))
    publish(start, broker.url, topic, lines)
    first = start("tail", broker.url, topic)
    got = read_lines(first, 1_234)
    ended = end(first, signal.SIGINT)
    cursor = ended.err.removeprefix("quothpipe: cursor ").strip()
    got += ended.out
    second = start("tail", broker.url, topic, cursor)
    publish(start, broker.url, topic, b"more\n")
    assert got + read_lines(second, 5_001 - got.count(b"\n")) == lines + b"more\n"
    assert end(second, signal.SIGINT).status == 130


def test_tail_reports_damage_and_goes_on_behind_it(start: Start, broker: BrokerProcess, topic: str) -> None:
    """In the header of a batch and in the body of another one."""
    with quoth.connect(broker.url) as client:
        for value in (b"1", b"2", b"3", b"4", b"5"):
            client.publish(topic, value)
        _, second, _, fourth, _ = stored_batches(broker.topics_directory, client.topic(topic).log)
    flip(second.path, second.start + 20)
    flip(fourth.path, fourth.start + 74)
    tail = start("tail", broker.url, topic)
    assert [tail.line(), tail.line(), tail.line()] == ["1", "3", "5"]
    ended = end(tail, signal.SIGINT)
    assert ended.err.count("quothpipe: damaged: ") == 2
    assert ended.status == 130


def test_publish_sends_again_to_a_busy_broker(start: Start, start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(topic_requests_max=1)
    lines = [b"%d" % number for number in range(3_000)]
    ended = publish(start, broker.url, topic, b"\n".join(lines), "-w", "500")
    assert ended.status == 0
    assert "3000 acknowledged\n" in ended.err
    assert "quothpipe: busy: " in ended.err
    assert "(trying again)" in ended.err
    assert sorted(stored(broker, topic)) == sorted(lines)


def test_publish_that_gets_a_signal_prints_what_was_acknowledged(
    start: Start, broker: BrokerProcess, topic: str
) -> None:
    running = start("publish", broker.url, topic, stdin=subprocess.PIPE)
    running.write(b"one\ntwo\nthr")
    eventually(lambda: count_of(broker, topic) == 2, "two lines are stored")
    assert running.end(signal.SIGTERM) == (143, b"", "quothpipe: 2 acknowledged\n")
    assert stored(broker, topic) == [b"one", b"two"]


@pytest.mark.parametrize("lines", [3, LINES], ids=["then silence", "and more to come"])
def test_tail_ends_silently_when_its_reader_is_gone(
    start: Start, broker: BrokerProcess, topic: str, lines: int
) -> None:
    publish(start, broker.url, topic, b"line\n" * lines)
    tail = start("tail", broker.url, topic)
    assert read_lines(tail, 3) == b"line\n" * 3
    tail.close_output()
    assert tail.end() == (0, b"", "")


WRONG: list[tuple[list[str], str]] = [
    ([], "usage: publish or tail?"),
    (["read"], "usage: publish or tail?"),
    (["publish", "URL"], "usage: URL and TOPIC"),
    (["publish", "URL", "t", "0"], "usage: URL and TOPIC"),
    (["tail", "URL", "t", "0", "1"], "usage: URL and TOPIC"),
    (["tail", "-x", "URL", "t"], "usage: no such option"),
    (["tail", "-t", "soon", "URL", "t"], "usage: -t takes 1 to 86400 seconds"),
    (["publish", "-w", "0", "URL", "t"], "usage: -w takes 1 to 1000 requests"),
    (["tail", "URL", "t", "yesterday"], "bad_pointer: yesterday is no pointer"),
    (["tail", "URL", "t", "100000000000000000"], "bad_pointer: "),
    (["tail", "nonsense", "t"], "bad_request: nonsense: Invalid argument"),
    (["tail", "URL", "a/b"], "bad_topic: 'a/b' is not a topic's name"),
    (["publish", "URL", "a\nb"], "bad_topic: "),
]


def test_wrong_arguments_are_reported(start: Start, broker: BrokerProcess) -> None:
    for arguments, text in WRONG:
        typed = [broker.url if word == "URL" else word for word in arguments]
        process = start(*typed, stdin=subprocess.PIPE).process
        out, err = process.communicate(b"a line\n", timeout=COMMAND_S)
        assert (process.returncode, out) == (2, b""), arguments
        assert err.decode().startswith(f"quothpipe: {text}")


@pytest.mark.parametrize("command", ["publish", "tail"])
def test_code_of_a_later_broker_is_reported_and_not_retried(
    start: Start, context: Context, command: str
) -> None:
    with context.socket(zmq.ROUTER) as later:
        later.set(zmq.RCVTIMEO, round(DEADLINE_S * 1_000))
        port = later.bind_to_random_port("tcp://127.0.0.1")
        running = start(command, f"tcp://127.0.0.1:{port}", "t", stdin=subprocess.PIPE)
        running.write(b"a line\n")
        *route, operation = later.recv_multipart()
        assert operation == b"ping"
        later.send_multipart([*route, b"ok", b"1767323045000001"])
        connection, number, empty, *_ = later.recv_multipart()
        later.send_multipart([connection, number, empty, b"error", b"over_quota", b"no more today"])
        ended = running.end()
        assert ended.status not in (0, None)
        assert ended.err.startswith("quothpipe: over_quota: no more today\n")
        assert later.poll(0) == 0, "nothing was sent again"


def test_missing_broker_is_reported(start: Start) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    for running in [start(command, "-t", "1", url, "t") for command in ("publish", "tail")]:
        ended = running.end()
        assert ended == (4, b"", f"quothpipe: disconnected: no broker answers at {url} within 1 s\n")


def test_publish_prints_how_many_lines_are_unknown_when_the_broker_stays_away(
    start: Start, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker()
    running = start("publish", "-t", "2", broker.url, topic, stdin=subprocess.PIPE)
    running.write(b"one\n")
    eventually(lambda: count_of(broker, topic) == 1, "a line is stored")
    broker.freeze()
    running.write(b"two\nthree\n")
    ended = running.end()
    assert ended.status == 4
    assert ended.err.splitlines()[-1] == "quothpipe: 1 acknowledged; of 2 more it is not known"
    broker.kill()


def test_publish_ends_when_the_broker_accepts_no_frame_of_this_size(
    start: Start, start_broker: StartBroker, topic: str
) -> None:
    """libzmq closes the connection each time."""
    broker = start_broker(frame_bytes_max=2_000)
    ended = publish(start, broker.url, topic, b"first\n" + b"x" * 5_000, "-t", "2", "-w", "1")
    assert ended.status == 4
    assert ended.err.endswith("quothpipe: 1 acknowledged; of 1 more it is not known\n")


def test_line_that_no_record_can_hold_is_refused_and_earlier_ones_are_stored(
    start: Start, broker: BrokerProcess, topic: str
) -> None:
    longest = 16 * 2**20 - 1024
    lines = [b"first", b"x" * longest, b"y" * (longest + 1), b"last"]
    ended = publish(start, broker.url, topic, b"\n".join(lines))
    assert ended.status == 1
    assert f"too_large: line 3 has more than {longest} bytes" in ended.err
    assert "2 acknowledged" in ended.err
    assert stored(broker, topic) == lines[:2]
