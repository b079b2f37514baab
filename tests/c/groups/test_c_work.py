"""quoth-work: a worker of a consumer group in C that runs a command for each record."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import eventually
from kit.machine.commands import COMMAND_S, Ended, Running

Start = Callable[..., Running]
GROUP = "billing"
LEASE_S = 6
"""A lease that is extended every third of it."""
WAIT = "sh", "-c", 'echo begun; timeout 60 cat "$0"'
"""A command that ends when its argument, a named pipe, is written; it prints what comes."""
SHOW = "-c", 'echo "$QUOTH_TOPIC $QUOTH_GROUP $QUOTH_POINTER $QUOTH_ATTEMPTS $(cat)"'


def publish(broker: BrokerProcess, topic: str, *values: bytes) -> list[int]:
    """Publish values, create the group without a pause between attempts, and return the pointers."""
    with (
        quoth.connect(broker.url) as client,
        client.group(topic, GROUP, backoff=[0], max_attempts=2) as group,
    ):
        ack = client.publish(topic, list(values))
        group.info()
    return list(range(ack.first, ack.last + 1))


def lag(broker: BrokerProcess, topic: str) -> int:
    """Return how many records the group has not finished."""
    with quoth.connect(broker.url) as client, client.group(topic, GROUP) as group:
        return group.lag().records


def reasons(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Return the reasons of the dead letters, once all records are finished."""
    assert eventually(lambda: lag(broker, topic) == 0, "all records are finished")
    with quoth.connect(broker.url) as client:
        return [letter.headers["quoth-reason"] for letter in client.read(f"{topic}.{GROUP}.dead")]


def ended(running: Running) -> Ended:
    out, err = running.process.communicate(timeout=COMMAND_S)
    return Ended(running.process.returncode, out, err.decode())


def wait_for_extension(broker: BrokerProcess, topic: str) -> None:
    """Wait until the time that is left of the first lease rises."""
    with quoth.connect(broker.url) as client, client.group(topic, GROUP) as group:
        left = [float(LEASE_S)]

        def has_risen() -> bool:
            left.append(group.pending()[0].seconds)
            return left[-1] > left[-2]

        eventually(has_risen, "the lease is extended")


def test_a_command_gets_each_record_and_acknowledges_it(
    start: Start, broker: BrokerProcess, topic: str
) -> None:
    pointers = publish(broker, topic, b"one", b"", b"three")
    done = ended(start("quoth-work", "-e", broker.url, topic, GROUP, "sh", *SHOW))
    expected = [
        f"{topic} {GROUP} {pointer} 1 {value}"
        for pointer, value in zip(pointers, ("one", "", "three"), strict=True)
    ]
    assert (done.status, done.lines, done.err) == (0, expected, "")
    assert lag(broker, topic) == 0


def test_the_exit_status_decides_what_becomes_of_a_record(
    start: Start, broker: BrokerProcess, topic: str
) -> None:
    publish(broker, topic, b"65", b"3", b"0")
    line = "status=$(cat); test $QUOTH_ATTEMPTS = 2 && test $status = 3 && kill $$; exit $status"
    done = ended(start("quoth-work", "-e", broker.url, topic, GROUP, "sh", "-c", line))
    assert (done.status, done.out, done.err) == (0, b"", "")
    assert sorted(reasons(broker, topic)) == [b"exit status 65", b"signal 15"]


def test_workers_share_the_records_and_a_lease_lasts_as_long_as_its_command(
    start: Start, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """The slow command waits until its lease was extended, and the other worker has finished."""
    os.mkfifo(end := tmp_path / "end")
    publish(broker, topic, b"slow", b"quick")
    options = "-l", str(LEASE_S), broker.url, topic, GROUP
    slow = start("quoth-work", *options, *WAIT, str(end))
    assert slow.line() == "begun"
    wait_for_extension(broker, topic)
    other = ended(start("quoth-work", "-e", broker.url, topic, GROUP, "cat"))
    assert (other.status, other.out, other.err) == (0, b"quick", "")
    end.write_text("done\n")
    assert slow.line() == "done"
    assert eventually(lambda: lag(broker, topic) == 0, "the slow one has acknowledged")
    os.kill(slow.process.pid, signal.SIGTERM)
    found = ended(slow)
    assert (found.status, found.out, found.err) == (128 + signal.SIGTERM, b"", "")
    with quoth.connect(broker.url) as client, client.group(topic, GROUP) as group:
        assert group.info().redelivered == 0


def test_a_signal_lets_the_command_finish(
    start: Start, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    os.mkfifo(end := tmp_path / "end")
    publish(broker, topic, b"one", b"two")
    running = start("quoth-work", broker.url, topic, GROUP, *WAIT, str(end))
    assert running.line() == "begun"
    os.kill(running.process.pid, signal.SIGINT)
    end.write_text("done\n")
    found = ended(running)
    assert (found.status, found.out, found.err) == (128 + signal.SIGINT, b"done\n", "")
    assert lag(broker, topic) == 1


def test_a_worker_waits_for_records_and_goes_on_after_a_restart(
    start: Start, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker()
    publish(broker, topic, b"one")
    running = start("quoth-work", broker.url, topic, GROUP, "sh", "-c", "cat; echo")
    assert running.line() == "one"
    broker.kill()
    broker.restart()
    publish(broker, topic, b"two")
    assert running.line() in ("one", "two"), "an ack that is not synced may be lost with its broker"
    os.kill(running.process.pid, signal.SIGTERM)
    assert ended(running).status == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["-x", "u", "t", "g", "c"], 2, "no such option"),
        (["-l", "0", "u", "t", "g", "c"], 2, "-l and -t take 1 to 43200 seconds"),
        (["u", "t", "g"], 2, "URL, TOPIC, GROUP and COMMAND"),
    ],
)
def test_wrong_usage(start: Start, words: list[str], status: int, text: str) -> None:
    done = ended(start("quoth-work", *words))
    assert (done.status, done.out) == (status, b"")
    assert done.err.startswith(f"quoth-work: usage: {text}")


def test_a_command_that_cannot_be_started_releases_its_record(
    start: Start, broker: BrokerProcess, topic: str
) -> None:
    publish(broker, topic, b"one")
    done = ended(start("quoth-work", broker.url, topic, GROUP, "./no-such-program"))
    assert (done.status, done.out) == (1, b"")
    assert done.err == "quoth-work: system: ./no-such-program: No such file or directory\n"
    with quoth.connect(broker.url) as client, client.group(topic, GROUP) as group:
        (message,) = group.fetch()
        assert message.attempts == 1
