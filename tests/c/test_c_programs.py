"""The example programs in C against real brokers. Warnings and wrong memory accesses are errors."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context
from kit.broker.proxies import Meddler
from kit.client.numbered import numbered
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import flip, stored_batches
from kit.machine.commands import COMMAND_S, Ended, Running
from kit.machine.ports import free_port
from kit.scale import times
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Call, decode_call, encode_error, encode_reply
from quothwire.protocol.messages import Operation, Welcome

LINES = 30_000
COPIED, COPIED_S = times(20_000, 1_000_000), times(60, 600)
Start = Callable[..., Running]


def publish(start: Start, url: str, topic: str, lines: bytes, *options: str) -> Ended:
    """Publish lines with quoth-pub."""
    process = start("quoth-pub", *options, url, topic, stdin=subprocess.PIPE).process
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


def test_lines_come_back_byte_for_byte(
    start: Start, broker: BrokerProcess, topic: str, rng: random.Random
) -> None:
    assert publish(start, broker.url, topic, b"") == (0, b"", "quoth-pub: 0 acknowledged\n")
    assert count_of(broker, topic) == 0
    lines = arbitrary_lines(rng, LINES)
    ended = publish(start, broker.url, topic, lines)
    assert ended == (0, b"", f"quoth-pub: {LINES} acknowledged\n")
    tail = start("quoth-tail", broker.url, topic)
    assert read_lines(tail, LINES) == lines + b"\n"
    ended = end(tail, signal.SIGTERM)
    with quoth.connect(broker.url) as client:
        newest = client.topic(topic).last
    assert ended == (128 + signal.SIGTERM, b"", f"quoth-tail: cursor {newest}\n")


@pytest.mark.parametrize("options", [(), ("-w", "1")], ids=["pipelined", "one at a time"])
def test_each_line_is_stored_once_and_in_order_when_the_broker_is_killed(
    start: Start, start_broker: StartBroker, topic: str, options: tuple[str, ...]
) -> None:
    broker = start_broker()
    lines = [b"line %d" % number for number in range(24_000)]
    running = start("quoth-pub", "-t", "60", *options, broker.url, topic, stdin=subprocess.PIPE)
    for begin in range(0, len(lines), 8_000):
        if begin:
            eventually(lambda: count_of(broker, topic) > begin - 4_000, "it publishes")  # noqa: B023
            broker.kill()
            broker.restart()
        running.write(b"\n".join(lines[begin : begin + 8_000]) + b"\n")
    assert running.end() == (0, b"", f"quoth-pub: {len(lines)} acknowledged\n")
    assert stored(broker, topic) == lines, "each once, in order"


def test_tail_goes_on_when_the_broker_is_killed(
    start: Start, start_broker: StartBroker, topic: str, rng: random.Random
) -> None:
    broker = start_broker()
    lines = arbitrary_lines(rng, LINES).split(b"\n")
    half = LINES // 2
    tail = start("quoth-tail", broker.url, topic)
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
    first = start("quoth-tail", broker.url, topic)
    got = read_lines(first, 1_234)
    ended = end(first, signal.SIGINT)
    cursor = ended.err.removeprefix("quoth-tail: cursor ").strip()
    got += ended.out
    second = start("quoth-tail", broker.url, topic, cursor)
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
    tail = start("quoth-tail", broker.url, topic)
    assert [tail.line(), tail.line(), tail.line()] == ["1", "3", "5"]
    ended = end(tail, signal.SIGINT)
    assert ended.err.count("quoth-tail: damaged: ") == 2
    assert ended.status == 130


def test_lines_keep_their_order_through_a_busy_broker(
    start: Start, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker(topic_requests_max=1)
    lines = [b"%d" % number for number in range(30_000)]
    assert publish(start, broker.url, topic, b"\n".join(lines)) == (
        0,
        b"",
        "quoth-pub: 30000 acknowledged\n",
    )
    assert stored(broker, topic) == lines


def test_publish_that_gets_a_signal_prints_what_was_acknowledged(
    start: Start, broker: BrokerProcess, topic: str
) -> None:
    running = start("quoth-pub", broker.url, topic, stdin=subprocess.PIPE)
    running.write(b"one\ntwo\nthr")
    eventually(lambda: count_of(broker, topic) == 2, "two lines are stored")
    assert running.end(signal.SIGTERM) == (143, b"", "quoth-pub: 2 acknowledged\n")
    assert stored(broker, topic) == [b"one", b"two"]


@pytest.mark.parametrize("lines", [3, LINES], ids=["then silence", "and more to come"])
def test_tail_ends_silently_when_its_reader_is_gone(
    start: Start, broker: BrokerProcess, topic: str, lines: int
) -> None:
    publish(start, broker.url, topic, b"line\n" * lines)
    tail = start("quoth-tail", broker.url, topic)
    assert read_lines(tail, 3) == b"line\n" * 3
    tail.close_output()
    assert tail.end() == (0, b"", "")


WRONG: list[tuple[list[str], str]] = [
    (["quoth-pub"], "usage: URL and TOPIC"),
    (["quoth-pub", "URL"], "usage: URL and TOPIC"),
    (["quoth-pub", "URL", "t", "0"], "usage: URL and TOPIC"),
    (["quoth-tail", "URL", "t", "0", "1"], "usage: URL and TOPIC"),
    (["quoth-tail", "-x", "URL", "t"], "usage: no such option"),
    (["quoth-tail", "-t", "soon", "URL", "t"], "usage: -t takes 1 to 86400 seconds"),
    (["quoth-pub", "-w", "0", "URL", "t"], "usage: -w takes 1 to 32 batches"),
    (["quoth-tail", "URL", "t", "yesterday"], "bad_pointer: yesterday is no pointer"),
    (["quoth-tail", "URL", "t", "100000000000000000"], "bad_pointer: "),
    (["quoth-tail", "nonsense", "t"], "bad_request: nonsense: Invalid argument"),
    (["quoth-tail", "URL", "a/b"], "bad_topic: 'a/b' is not a topic's name"),
    (["quoth-pub", "URL", "a\nb"], "bad_topic: "),
    (["quoth-copy", "URL"], "usage: quoth-copy [-k KEY_FILE] URL FROM TO"),
]


def test_wrong_arguments_are_reported(start: Start, broker: BrokerProcess) -> None:
    for (name, *arguments), text in WRONG:
        typed = [broker.url if word == "URL" else word for word in arguments]
        process = start(name, *typed, stdin=subprocess.PIPE).process
        out, err = process.communicate(b"a line\n", timeout=COMMAND_S)
        assert (process.returncode, out) == (2, b""), arguments
        assert err.decode().startswith(f"{name}: {text}")


@pytest.mark.parametrize("name", ["quoth-pub", "quoth-tail"])
def test_code_of_a_later_broker_is_reported_and_not_retried(
    start: Start, context: Context, name: str
) -> None:
    with context.socket(zmq.ROUTER) as later:
        later.set(zmq.RCVTIMEO, round(DEADLINE_S * 1_000))
        later.bind(url := f"tcp://127.0.0.1:{free_port()}")
        running = start(name, url, "t", stdin=subprocess.PIPE)
        running.write(b"a line\n")
        route, call = received(later)
        assert call.operation is Operation.HELLO
        welcome = Welcome("later", [1], [], {}, "")
        later.send_multipart([*route, *encode_reply(Operation.HELLO, call.correlation, welcome, None)])
        route, call = received(later)
        problem = QuothError("over_quota", "no more today")
        later.send_multipart([*route, *encode_error(call.operation, call.correlation, problem)])
        ended = running.end()
        assert ended.status not in (0, None)
        assert ended.err.startswith(f"{name}: over_quota: no more today\n")
        assert later.poll(0) == 0, "nothing was sent again"


def received(broker: zmq.Socket[bytes]) -> tuple[list[bytes], Call]:
    """Return the next request to a socket, and the frames in front of it."""
    connection, empty, *frames = broker.recv_multipart()
    return [connection, empty], decode_call(frames)


def test_missing_broker_is_reported(start: Start) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    for name in ("quoth-pub", "quoth-tail"):
        ended = start(name, "-t", "1", url, "t").end()
        assert ended == (4, b"", f"{name}: disconnected: hello: no broker answers at {url}\n")


def test_publish_prints_how_many_lines_are_unknown_when_the_broker_stays_away(
    start: Start, start_broker: StartBroker, context: Context, topic: str
) -> None:
    broker = start_broker()
    with Meddler(context, broker.url) as meddler:
        running = start("quoth-pub", "-t", "4", meddler.url, topic, stdin=subprocess.PIPE)
        acknowledged = threading.Event()

        def notice(call: Call, _: object) -> bool:
            if call.operation is Operation.PUBLISH:
                acknowledged.set()
            return False

        meddler.on_reply = notice
        running.write(b"one\n")
        assert acknowledged.wait(DEADLINE_S)
        broker.freeze()
        running.write(b"two\nthree\n")
        ended = running.end()
    assert ended.status == 4
    assert ended.err.splitlines()[-1] == "quoth-pub: 1 acknowledged; of 2 more it is not known"
    broker.kill()


def test_line_that_is_larger_than_the_brokers_frames_is_refused(
    start: Start, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker(frame_bytes_max=2_000)
    ended = publish(start, broker.url, topic, b"first\n" + b"x" * 5_000, "-t", "60", "-w", "1")
    assert ended.status == 1
    assert ended.err.startswith("quoth-pub: too_large: line 2: ")
    assert ended.err.endswith("quoth-pub: 1 acknowledged\n")


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


def test_records_of_all_kinds_come_back_from_a_program_in_c(
    start: Start, broker: BrokerProcess, topic: str
) -> None:
    """Python publishes, C copies as they arrive, Python reads; each of the three checks all checksums."""
    with quoth.connect(broker.url) as client:
        copying = start("quoth-copy", broker.url, topic, f"{topic}.copy")
        with client.producer(topic) as producer:
            for number in range(COPIED):
                one = numbered(number)
                producer.send(one.value, key=one.key, headers=one.headers)
        eventually(lambda: count_of(broker, f"{topic}.copy") == COPIED, "all is copied", COPIED_S)
        assert end(copying, signal.SIGTERM) == (143, b"", "")
        count = 0
        for batch in client.batches(f"{topic}.copy"):
            for message in batch:
                assert (message.value, message.key, message.headers) == numbered(count)
                count += 1
    assert count == COPIED


def test_the_header_serves_cpp_as_it_is(start: Start, broker: BrokerProcess, topic: str) -> None:
    assert start("greeting", broker.url, topic).end() == (0, b"from C++, hello\n", "")
