"""Every command ends with an exit status and two lines on stderr, and never with a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S
from kit.machine.commands import COMMAND, Command
from kit.machine.ports import free_port
from quoth import Client
from quothcli.application import tree
from quothcli.cli.exit_status import CommandStatus, guarded, status_of
from quothwire.errors import CODES, error

STATUSES = {
    **dict.fromkeys(
        ("bad_request", "bad_topic", "bad_group", "bad_pointer", "bad_setting"), CommandStatus.USAGE
    ),
    **dict.fromkeys(("unknown_topic", "unknown_group", "unknown_record"), CommandStatus.NOT_FOUND),
    **dict.fromkeys(("timed_out", "disconnected", "closed"), CommandStatus.TIMED_OUT),
}


def test_every_error_has_an_exit_status_and_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(code: str) -> None:
        raise error(code, "it did\nnot\x1b[31m work")

    for code, row in CODES.items():
        assert guarded(fail)(code) == status_of(error(code, "")) == STATUSES.get(code, CommandStatus.FAILED)
        happened, advice = capsys.readouterr().err.splitlines()
        assert happened == f"quoth: {code}: it did not\\x1b[31m work"
        assert advice == f"hint: {row.hint}"


def test_defect_is_not_hidden() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded(fail)()


def test_version_is_printed(alone: Command) -> None:
    result = alone("--version")
    assert (result.status, result.err) == (0, "")
    assert result.out.decode().startswith("quoth 0.")


def test_group_alone_prints_its_help_and_fails(alone: Command) -> None:
    for group in ((), ("topic",), ("log",)):
        result = alone(*group)
        assert (result.status, result.err) == (2, "")
        assert result.out.startswith(b"Usage: quoth ")
        asked = alone(*group, "--help")
        assert (asked.status, asked.out) == (0, result.out)


PRINTING = (
    "", "--version", "topic", "pub --help", "read TOPIC", "tail TOPIC --after 0 --limit 1",
    "topic info TOPIC", "group create TOPIC g", "group ls", "consume TOPIC -g g --until-empty", "status",
    "ping", "errors --format json", "log dump DIR", "top --count 1 --interval 0.1",
)  # fmt: skip


def printing(topic: str, broker: BrokerProcess) -> Iterator[list[str]]:
    """Yield commands that print something, of every kind."""
    for line in PRINTING:
        names = {"TOPIC": topic, "DIR": str(broker.directory)}
        yield [names.get(word, word) for word in line.split()]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_on_a_full_disk_fails(
    quoth: Command, broker: BrokerProcess, topic: str, fill: Callable[..., list[int]]
) -> None:
    fill(b"one")
    for typed in printing(topic, broker):
        with open("/dev/full", "wb") as full:
            quoth.start(*typed, stdout=full).end().refused(1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_change_whose_output_cannot_be_written_says_what_was_done(
    quoth: Command, client: Client, topic: str, tmp_path: Path
) -> None:
    for form in ("text", "json", "raw"):
        for typed, done in (
            (("pub", topic, "one"), f"stored 1 record of {topic!r} up to pointer "),
            (("key", "new", f"key-{form}", "--dir", str(tmp_path)), f"made {tmp_path}/key-{form}.key and "),
            (("ctx", "add", form, "tcp://h:1"), f"saved the context {form}"),
            (("ctx", "use", form), f"took the context {form} into use"),
            (("ctx", "rm", form), f"removed the context {form}"),
        ):
            with open("/dev/full", "wb") as full:
                ended = quoth.start(*typed, "--format", form, stdout=full).end()
            happened, advice = ended.err.splitlines()[-2:]
            assert ended.status == 1
            assert happened.startswith(f"quoth: os_error: {done}"), happened
            assert happened.endswith("but the output cannot be written: No space left on device")
            assert advice == "hint: do not repeat it; is there room where the output goes?"
    assert len(client.read(topic)) == 3


def test_output_without_a_reader_ends_silently(
    quoth: Command, broker: BrokerProcess, topic: str, fill: Callable[..., list[int]]
) -> None:
    fill(b"one")
    for typed in printing(topic, broker):
        reading, writing = os.pipe()
        os.close(reading)
        assert quoth.start(*typed, stdout=writing).end() == (0, b"", ""), typed
        os.close(writing)
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "--url", quoth.url, "read", topic]
    ended = subprocess.run(shell, capture_output=True, timeout=DEADLINE_S)
    assert (ended.returncode, ended.stderr) == (0, b""), "stdout was closed"


ASKING = (
    "pub t x", "tail t --no-wait", "read t", "get t 1", "count t", "split t --parts 2", "status", "ping",
    "top", "topic ls", "topic info t", "topic create t", "topic set t --max-age 1d", "topic rm t --yes",
    "topic trim t --before 1 --yes", "topic roll t", "transaction status t a 1", "transaction abort t a 1",
    "consume t -g g --no-wait", "group ls", "group info t g", "group create t g", "group set t g --lease 5",
    "group seek t g --to end", "group pause t g", "group resume t g", "group rm t g --yes",
    "group pending t g", "group dead ls t g", "group dead show t g 1", "group dead retry t g 1",
    "group dead drop t g --all",
    "rule ls", "rule show x", "rule rm x --yes", "rule stats",
)  # fmt: skip
WITHOUT_ONE = {"check", "doctor", "web", "forward", "pipeline", "bench", "test", "add"}
"""Commands that ask a broker, too, and do something without one. `rule test` and `rule add` read a file."""


def asking(command: Any, words: str = "") -> Iterator[str]:
    """Yield each command below one that takes the address of a broker."""
    for name, below in getattr(command, "commands", {}).items():
        path = f"{words} {name}".strip()
        if any("--url" in one.opts for one in below.params) and name not in WITHOUT_ONE:
            yield path
        yield from asking(below, path) if name not in WITHOUT_ONE else ()


def test_every_command_that_asks_a_broker_reports_that_none_answers(alone: Command) -> None:
    assert all(any(f"{line} ".startswith(f"{path} ") for line in ASKING) for path in asking(tree()))
    url = f"tcp://127.0.0.1:{free_port()}"
    for line in ASKING:
        happened, advice = alone(*line.split(), "--url", url, "--timeout", "0.05").refused(4)
        assert happened.startswith("quoth: disconnected: "), line
        assert f"no broker answers at {url}: " in happened
        assert happened.endswith(" (from --url)")
        assert "quoth serve" in advice


INTERRUPTED_AT = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
from quothcli.main import main
assert "typer" not in sys.modules and "zmq" not in sys.modules, "it takes long to import this"
main(["--version"])
"""


def interrupted_at(module: str, before: str = "") -> subprocess.CompletedProcess[bytes]:
    """Send SIGINT to a command while it imports a module."""
    code = f"{before}\n{INTERRUPTED_AT}"
    return subprocess.run([sys.executable, "-c", code, module], capture_output=True, timeout=DEADLINE_S)


@pytest.mark.parametrize("module", ["quothcli.application", "typer", "quothwire.errors"])
def test_interrupt_while_it_is_loaded_ends_it_without_a_traceback(module: str) -> None:
    ended = interrupted_at(module)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_interrupt_that_is_ignored_stays_so() -> None:
    """As behind nohup, or in the background of a script."""
    ended = interrupted_at("typer", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (ended.returncode, ended.stderr) == (0, b"")


IN_A_DESTRUCTOR = """
import os, signal, sys, threading
from quothcli import application
from quothcli.cli.exit_status import terminable
from quothcli.main import main

class Interrupter:
    def __init__(self, number):
        self.number = number

    def __del__(self):
        os.kill(os.getpid(), self.number)

def run(arguments):
    with terminable():
        Interrupter(int(arguments[0]))
        threading.Event().wait(60)

application.run = run
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_that_arrives_in_a_destructor_ends_a_command(number: signal.Signals) -> None:
    """Python drops what is raised there."""
    command = [sys.executable, "-c", IN_A_DESTRUCTOR, str(int(number))]
    ended = subprocess.run(command, capture_output=True, timeout=DEADLINE_S)
    assert (ended.returncode, ended.stderr) == (128 + number, b"")


def test_errors_of_destructors_are_reported_as_usual() -> None:
    code = IN_A_DESTRUCTOR.replace("os.kill(os.getpid(), self.number)", "raise ValueError('lost')")
    code = code.replace("threading.Event().wait(60)", "return 0")
    ended = subprocess.run([sys.executable, "-c", code, "0"], capture_output=True, timeout=DEADLINE_S)
    assert ended.returncode == 0
    assert b"ValueError: lost" in ended.stderr
