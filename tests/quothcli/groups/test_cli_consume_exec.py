"""`quoth consume --exec` runs a command for records, and settles them by its exit status."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.client.leases import extended
from kit.client.records import numbered, values
from kit.deadlines import eventually, hold
from kit.machine.commands import COMMAND, Command
from kit.machine.screens import Terminal
from quoth import Client


class Gate:
    """A command that waits until the test lets it go on: it prints the value, its process id and its record's
    pointer, waits, and prints what the test gives it.

    line: for the shell.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        fifo = f'{shlex.quote(str(directory))}/"$QUOTH_POINTER"'
        self.line = f'mkfifo {fifo} 2> /dev/null; echo "$(cat) $$ $QUOTH_POINTER"; cat {fifo}'
        self._processes: list[int] = []
        self._waiting: list[str] = []

    def value_of(self, line: str) -> str:
        """Return the value that a waiting command has printed."""
        value, process, pointer = line.split()
        self._processes.append(int(process))
        self._waiting.append(pointer)
        return value

    def open(self, text: str = "done\n") -> None:
        """Let the command go on that waits for the longest time."""
        with (self._directory / self._waiting.pop(0)).open("w") as fifo:
            fifo.write(text)

    def are_over(self) -> bool:
        """Return True if no command runs any more."""
        return not any(map(is_running, self._processes))

    def close(self) -> None:
        """Kill what runs."""
        for process in filter(is_running, self._processes):
            os.killpg(process, signal.SIGKILL)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


STATUSES = {
    # the value, which is the exit status: what becomes of its record
    0: "acknowledged",
    1: "dead",
    65: "dead at once",
    75: "dead",
}
LINE = 'read -r status; echo "$status $QUOTH_ATTEMPTS"; exit "$status"'


def test_exit_status_settles_the_record(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, [b"%d\n" % status for status in STATUSES])
    consume = ("consume", topic, "-g", "g", "--max-attempts", "2", "--backoff", "0", "--exec", LINE)
    ended = quoth(*consume, "--until-empty")
    assert ended.status == 1, "commands have failed"
    runs = ["0 1", "1 1", "65 1", "75 1", "1 2", "75 2"]
    assert sorted(ended.lines) == sorted(runs)
    said = [
        line for line in ended.err.splitlines() if "the command has ended with status 65: rejected" in line
    ]
    assert len(said) == 1
    assert ended.err.count("given back") == 4
    info = client.group(topic, "g", create=False).info
    eventually(lambda: info().dead == 3, "the others are dead letters")
    letters = {int(one.value): one.headers for one in client.read(f"{topic}.g.dead")}
    assert letters.keys() == {1, 65, 75}
    assert letters[65]["quoth-reason"] == b"the command has ended with status 65"
    assert (letters[65]["quoth-attempts"], letters[75]["quoth-attempts"]) == (b"1", b"2")
    assert info().lag == 0
    assert quoth(*consume, "--until-empty").status == 0, "nothing has failed this time"


def test_command_finds_its_record_in_the_environment(quoth: Command, client: Client, topic: str) -> None:
    names = (
        "TOPIC",
        "GROUP",
        "POINTER",
        "ATTEMPTS",
        "KEY",
        "KEY_BASE64",
        "HEADER_TRACE_ID",
        "HEADER_MORE",
        "URL",
    )
    line = "cat; " + "; ".join(f'echo "{name}=${{QUOTH_{name}-none}}"' for name in names)
    headers = {"trace-id": b"7\n8", "Trace.ID": b"second", "more": b"\0"}
    first, second = (
        client.publish(topic, b"value\n", key=key, headers=headers if key == b"k" else None).first
        for key in (b"k", b"a\0b")
    )
    found = quoth("consume", topic, "-g", "g", "--limit", "1", "--exec", line).out.decode()
    assert found == (
        f"value\nTOPIC={topic}\nGROUP=g\nPOINTER={first}\nATTEMPTS=1\nKEY=k\nKEY_BASE64=none\n"
        f"HEADER_TRACE_ID=7\n8\nHEADER_MORE=none\nURL={quoth.url}\n"
    )
    found = quoth("consume", topic, "-g", "g", "--limit", "1", "--exec", line).out.decode()
    assert f"POINTER={second}\nATTEMPTS=1\nKEY=none\nKEY_BASE64=YQBi\nHEADER_TRACE_ID=none\n" in found


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTEXTS = {
    # the headers of a record, and TRACEPARENT, TRACESTATE and BAGGAGE of its command
    "a trace": ({"traceparent": PARENT.encode()}, [PARENT, "none", "none"]),
    "all": (
        {"traceparent": PARENT.encode(), "tracestate": b"a=1,b=2", "baggage": b"c=3"},
        [PARENT, "a=1,b=2", "c=3"],
    ),
    "none": ({}, ["outer", "outer", "outer"]),
    "baggage alone": ({"baggage": b"c=3"}, ["outer", "outer", "c=3"]),
    "no lines": (
        {"traceparent": b"a\nb", "tracestate": b"\xff", "baggage": b"\0"},
        ["outer", "outer", "outer"],
    ),
    "too long": ({"traceparent": PARENT.encode(), "baggage": b"x" * 60_000}, [PARENT, "none", "none"]),
}


@pytest.mark.parametrize(("headers", "expected"), CONTEXTS.values(), ids=CONTEXTS)
def test_command_is_in_the_trace_of_its_record(
    quoth: Command, client: Client, topic: str, headers: dict[str, bytes], expected: list[str]
) -> None:
    """Otherwise in that of `quoth consume`, and never in a part of both."""
    names = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
    line = "; ".join(f'echo "${{{name}-none}}"' for name in names)
    client.publish(topic, b"x", headers=headers)
    consume = ("consume", topic, "-g", "g", "--limit", "1", "--exec", line)
    assert quoth(*consume, environment=dict.fromkeys(names, "outer")).lines == expected


def test_variables_of_another_record_are_not_handed_on(quoth: Command, client: Client, topic: str) -> None:
    """As a command of `quoth consume --exec` has them that runs `quoth consume --exec`."""
    names = ("TOPIC", "GROUP", "POINTER", "ATTEMPTS", "KEY", "KEY_BASE64", "RECORDS", "HEADER_TRACE")
    outer = {f"QUOTH_{name}": "outer" for name in names} | {"OTHER": "kept"}
    client.publish(topic, b"x")
    consume = ("consume", topic, "-g", "g", "--limit", "1", "--exec", "env | grep outer; echo $OTHER")
    assert quoth(*consume, environment=outer).lines == ["kept"]
    quoth("group", "seek", topic, "g", "--to", "begin")
    assert quoth(*consume, "--batch", "2", environment=outer).lines == ["kept"]


def test_key_that_is_too_long_for_a_variable_is_left_out(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, b"x", key=b"k" * 200_000, headers={"long": b"x" * 60_000})
    line = 'echo "${QUOTH_KEY-none} ${#QUOTH_HEADER_LONG}"'
    assert quoth("consume", topic, "-g", "g", "--limit", "1", "--exec", line).lines == ["none 60000"]


def test_quoth_in_a_command_asks_the_same_broker(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, numbered(3), headers={"url": b"tcp://nowhere:1"})
    line = f"{shlex.join(COMMAND)} pub {shlex.quote(topic)}.out --header by=me"
    url, quoth.url = quoth.url, ""
    ended = quoth("--url", url, "consume", topic, "-g", "g", "--until-empty", "--exec", line)
    assert (ended.status, len(ended.lines)) == (0, 3)
    assert values(client, f"{topic}.out") == numbered(3)


def test_batch_gives_lines_of_json_and_is_settled_as_one(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, numbered(5))
    line = 'echo "$QUOTH_RECORDS $QUOTH_TOPIC $QUOTH_GROUP ${QUOTH_POINTER-none}"; cat'
    ended = quoth("consume", topic, "-g", "g", "--batch", "3", "--until-empty", "--exec", line)
    rows = [row if row.startswith(b"{") else row.decode() for row in ended.out.splitlines()]
    assert (rows[0], rows[4]) == (f"3 {topic} g none", f"2 {topic} g none")
    assert [b'"value": "%d"' % number in row for number, row in enumerate([*rows[1:4], *rows[5:]])] == [
        True
    ] * 5
    failing = quoth("consume", topic, "-g", "h", "--batch", "3", "--limit", "3", "--exec", "exit 65")
    assert failing.status == 1
    assert "quoth: 3 records from " in failing.err
    info = client.group(topic, "h", create=False).info
    eventually(lambda: info().dead == 3, "all three are dead letters")
    assert info().lag == 2


def test_concurrency_runs_so_many_at_once(quoth: Command, client: Client, topic: str, gate: Gate) -> None:
    client.publish(topic, numbered(7))
    consume = quoth.start(
        "consume", topic, "-g", "g", "--concurrency", "3", "--limit", "7", "--exec", gate.line
    )
    first = sorted(gate.value_of(consume.line()) for _ in range(3))
    assert first == ["0", "1", "2"]
    info = client.group(topic, "g", create=False).info
    hold(lambda: info().in_flight == 3, "no other record is fetched", 0.2)
    for number in range(7):
        gate.open("")
        if number < 4:
            first.append(gate.value_of(consume.line()))
    assert consume.end().status == 0
    assert sorted(first) == list("0123456")
    assert info().lag == 0


OFTEN = "from quothcli.groups import leases; leases.EXTENDED_PART = 0.01"
"""A prelude: leases that a busy machine does not lose are extended again and again during a test."""


def test_lease_is_extended_while_a_command_runs(
    quoth: Command, client: Client, topic: str, gate: Gate
) -> None:
    """Again and again, so another member gets nothing."""
    client.publish(topic, b"x")
    often = quoth.prepared(OFTEN)
    consume = often.start("consume", topic, "-g", "g", "--lease", "30s", "--limit", "1", "--exec", gate.line)
    assert gate.value_of(consume.line()) == "x"
    with client.group(topic, "g") as other:
        extended(other)
        assert other.fetch(1, timeout=0) == []
    gate.open()
    assert consume.end().status == 0
    info = client.group(topic, "g", create=False).info()
    assert (info.lag, info.redelivered) == (0, 0)


def test_lost_lease_is_reported(quoth: Command, client: Client, topic: str, gate: Gate) -> None:
    client.publish(topic, b"x")
    often = quoth.prepared(OFTEN)
    consume = often.start("consume", topic, "-g", "g", "--lease", "30s", "--exec", gate.line)
    assert gate.value_of(consume.line()) == "x"
    consume.error_line()
    client.group(topic, "g", create=False).seek("begin")
    assert "the lease is lost, another member may get it, too" in consume.error_line()
    gate.open()
    assert consume.line() == "done"
    assert gate.value_of(consume.line()) == "x", "it comes again"
    gate.open()
    info = client.group(topic, "g", create=False).info
    eventually(lambda: info().lag == 0, "the second ack counts")
    assert consume.end(signal.SIGINT).status == 0


# -- ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_first_signal_lets_commands_finish(
    quoth: Command, client: Client, topic: str, gate: Gate, number: signal.Signals, status: int
) -> None:
    client.publish(topic, numbered(3))
    consume = quoth.start("consume", topic, "-g", "g", "--exec", gate.line)
    assert gate.value_of(consume.line()) == "0"
    consume.error_line()
    os.kill(consume.process.pid, number)
    gate.open()
    ended = consume.end()
    assert (ended.status, ended.out) == (status, b"done\n")
    info = client.group(topic, "g", create=False).info()
    assert (info.lag, info.in_flight) == (2, 0), "the record at work is acknowledged, no other one was begun"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_second_signal_ends_commands_and_gives_records_back(
    quoth: Command, client: Client, topic: str, gate: Gate, number: signal.Signals, status: int
) -> None:
    client.publish(topic, numbered(3))
    consume = quoth.start(
        "consume", topic, "-g", "g", "--concurrency", "2", "--limit", "2", "--exec", gate.line
    )
    assert sorted(gate.value_of(consume.line()) for _ in range(2)) == ["0", "1"]
    consume.error_line()
    os.kill(consume.process.pid, number)
    assert "waits for the commands that run" in consume.error_line()
    assert not gate.are_over()
    ended = consume.end(number)
    assert ended.status == status
    assert ended.err.count("SIGTERM has ended the command: given back") == 2
    assert gate.are_over()
    assert quoth("consume", topic, "-g", "g", "--until-empty", "--exec", "cat").out == b"012"


def test_ctrl_c_at_a_terminal_does_not_interrupt_the_command(
    quoth: Command, client: Client, topic: str, gate: Gate
) -> None:
    client.publish(topic, b"value")
    terminal = Terminal(*COMMAND, "consume", topic, "-g", "g", "--exec", gate.line, QUOTH_URL=quoth.url)
    assert terminal.read_until(lambda seen: re.search(r"value \d+ \d+\s", seen) is not None)
    gate.value_of(terminal.seen.splitlines()[-1])
    terminal.type("\x03")
    assert terminal.read_until(lambda seen: "waits for the commands that run" in seen)
    gate.open("finished\n")
    assert not terminal.read_until(lambda _: False), "it has ended"
    assert "finished" in terminal.seen
    assert terminal.end() == 0
    assert client.group(topic, "g", create=False).info().lag == 0


@pytest.mark.parametrize("options", [(), ("--until-empty",)])
def test_end_of_the_reader_ends_it(
    quoth: Command, client: Client, topic: str, gate: Gate, options: tuple[str, ...]
) -> None:
    """The command that cannot print has its record released, at the last attempt of it."""
    client.publish(topic, numbered(3))
    consume = quoth.start("consume", topic, "-g", "g", "--max-attempts", "1", *options, "--exec", gate.line)
    assert gate.value_of(consume.line()) == "0"
    consume.error_line()
    consume.close_output()
    gate.open()
    ended = consume.end()
    assert ended.status == 0
    assert "given back" not in ended.err
    info = client.group(topic, "g", create=False).info()
    assert (info.lag, info.in_flight, info.dead) == (3, 0, 0)
    assert quoth("consume", topic, "-g", "g", "--until-empty", "--exec", "cat").out == b"012"


NOT_STARTED = {
    "no-such-command-anywhere": "status 127",
    "exec ./no/such/file": "status 127",
    "/dev/null": "status 126",
}


@pytest.mark.parametrize("line", NOT_STARTED)
def test_command_that_cannot_be_started_ends_all_and_gives_the_record_back(
    quoth: Command, client: Client, topic: str, line: str
) -> None:
    client.publish(topic, numbered(3))
    ended = quoth("consume", topic, "-g", "g", "--exec", line)
    assert ended.status == 1
    happened, advice = ended.err.splitlines()[-2:]
    assert happened == f"quoth: not_started: the command cannot be started: {line}: {NOT_STARTED[line]}"
    assert advice.startswith("hint: the record is released")
    info = client.group(topic, "g", create=False).info()
    assert (info.lag, info.in_flight, info.pending) == (3, 0, 1)
    assert quoth("consume", topic, "-g", "g", "--until-empty", "--exec", "cat").out == b"012"


def test_group_without_leases(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, numbered(2))
    ended = quoth(
        "consume", topic, "-g", "g", "--mode", "at_most_once", "--until-empty", "--exec", "cat; exit 3"
    )
    assert (ended.status, ended.out) == (1, b"01")
    assert ended.err.count("not handed out again, as its group is at_most_once") == 2
    assert client.group(topic, "g", create=False).info().lag == 0


def test_large_value_and_command_that_reads_nothing(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, bytes(2**21))
    found = quoth("consume", topic, "-g", "g", "--until-empty", "--exec", "wc -c")
    assert int(found.out) == 2**21
    assert quoth("consume", topic, "-g", "h", "--until-empty", "--exec", "exec true").status == 0
