"""How commands end: the exit status, two lines on stderr, no traceback."""

from __future__ import annotations

import pytest
import typer

from kit.commands import Command
from quoth import ProducerError, QuothError
from quothcli import main
from quothcli.exits import Status, guarded, say, status_of
from quothwire.errors import CODES, error

STATUSES = {
    **dict.fromkeys(("bad_request", "bad_topic", "bad_pointer", "bad_setting"), Status.USAGE),
    **dict.fromkeys(("unknown_topic", "unknown_record"), Status.NOT_FOUND),
    **dict.fromkeys(("timed_out", "disconnected", "closed"), Status.TIMED_OUT),
}


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_an_exit_status(code: str) -> None:
    assert status_of(error(code, "text")) == STATUSES.get(code, Status.FAILED)


@pytest.mark.parametrize("code", CODES)
def test_an_error_is_two_lines(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error(code, "it did\nnot\x1b[31m work")

    assert guarded(fail)() == STATUSES.get(code, Status.FAILED)
    happened, advice = capsys.readouterr().err.splitlines()
    assert happened == f"quoth: {code}: it did not\\x1b[31m work"
    assert advice == f"hint: {CODES[code].hint}"


def test_an_error_of_a_producer_counts_as_its_cause() -> None:
    assert isinstance(ProducerError, type)
    assert issubclass(ProducerError, QuothError)


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
        (FileNotFoundError(2, "No such file", "x"), 3),
        (PermissionError(13, "Permission denied", "x"), 1),
        (OSError("odd"), 1),
    ],
)
def test_other_ends(problem: BaseException, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quothcli.exits.forget_stdout", lambda: None)

    def fail() -> None:
        raise problem

    assert guarded(fail)() == status


def test_a_stderr_that_is_gone_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    say("to nobody")


def test_version(alone: Command) -> None:
    told = alone("--version")
    assert (told.status, told.err) == (0, "")
    assert told.out.decode().startswith("quoth 0.")


@pytest.mark.parametrize("group", [(), ("topic",), ("log",)], ids=["quoth", "topic", "log"])
def test_a_group_alone_shows_its_help(alone: Command, group: tuple[str, ...]) -> None:
    told = alone(*group)
    assert (told.status, told.err) == (2, "")
    assert told.out.startswith(b"Usage: quoth ")
    asked = alone(*group, "--help")
    assert (asked.status, asked.out) == (0, told.out)


TYPED = {
    "tpic ls": "topic",
    "topic lst": "ls",
    "publ x": "pub",
    "read x --limt 5": "--limit",
    "serve --prot 5": "--port",
    "read": "TOPIC",
    "log dump": "DIR",
}


@pytest.mark.parametrize("typed", TYPED)
def test_typed_wrongly_gets_the_right_word(alone: Command, typed: str) -> None:
    told = alone(*typed.split())
    assert (told.status, told.out) == (2, b"")
    happened, advice = told.err.splitlines()
    assert TYPED[typed] in happened
    assert "--help` shows how" in advice


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is understood is turned into two lines."""

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded(fail)()
    assert main.run(["--version"]) == 0
