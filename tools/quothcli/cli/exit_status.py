"""Ends commands: with an exit status, two lines on stderr if it failed, and never a traceback.

    0  done                       3  the topic, the record or the log does not exist
    1  it failed                  4  no answer in time
    2  it was typed wrongly     130  interrupted

The reader of the output may close its pipe at any time; that ends a command silently, with 0. A command that
copies or repairs goes on to its end all the same.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import ParamSpec, TextIO

import typer

from quothcli.printing import progress
from quothcli.printing.text import printable
from quothwire.errors import CODES, Disconnected, NotFound, QuothError

Parameters = ParamSpec("Parameters")


class CommandStatus(IntEnum):
    """The exit statuses."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    TIMED_OUT = 4
    INTERRUPTED = 130


class Refused(Exception):
    """Raised by a command itself: a code that no broker sends, a text, a hint, the exit status."""

    def __init__(self, code: str, text: str, hint: str, status: CommandStatus = CommandStatus.FAILED) -> None:
        super().__init__(code, text, hint, status)
        self.code = code
        self.text = text
        self.hint = hint
        self.status = status


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TYPED_WRONGLY = frozenset(("bad_request", "bad_topic", "bad_group", "bad_pointer", "bad_setting"))


def status_of(problem: QuothError) -> CommandStatus:
    """Return the exit status for an error."""
    kind = CODES[problem.code].error if problem.code in CODES else QuothError
    if problem.code in _TYPED_WRONGLY:
        return CommandStatus.USAGE
    if issubclass(kind, NotFound):
        return CommandStatus.NOT_FOUND
    return CommandStatus.TIMED_OUT if issubclass(kind, Disconnected) else CommandStatus.FAILED


def report_error(code: str, text: str, hint: str) -> None:
    """Write on stderr what happened and what to do."""
    say(f"quoth: {code}: {text}")
    say(f"hint: {hint}")


def say(text: str) -> None:
    """Write one line to stderr; it is lost if stderr is closed."""
    line = printable(" ".join(text.split()))
    try:
        with progress.hidden():
            print(line.encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _forget(sys.stderr)


def guarded(command: Callable[Parameters, int | None]) -> Callable[Parameters, int]:
    """Wrap a command so that it returns its exit status, whatever it raises."""

    @functools.wraps(command)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> int:
        try:
            try:
                status = command(*arguments, **options) or CommandStatus.DONE
            except QuothError as problem:
                report_error(problem.code, problem.text, problem.hint or "`quoth --help` lists the commands")
                status = status_of(problem)
            except Refused as problem:
                report_error(problem.code, problem.text, problem.hint)
                status = problem.status
            except (KeyboardInterrupt, typer.Abort):
                status = CommandStatus.INTERRUPTED
            sys.stdout.flush()
        except BrokenPipeError:
            forget_stdout()
            return CommandStatus.DONE
        except OSError as problem:
            forget_stdout()
            return _failed(problem)
        return status

    return run


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM inside into an exception, so that everything is cleaned up."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def read_or_not() -> Iterator[None]:
    """Print inside, and go on if the reader has closed its pipe: for a command that does more than print."""
    try:
        yield
    except BrokenPipeError:
        forget_stdout()


def open_streams() -> None:
    """Open /dev/null in the place of standard streams that this process was started without."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, closefd=False))  # noqa: SIM115


def forget_stdout() -> None:
    """Discard what could not be written, so that the interpreter does not try it again at its end."""
    _forget(sys.stdout)


def _forget(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _leave(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not end the clean-up
    raise SystemExit(128 + number)


def _failed(problem: OSError) -> int:
    where = f"{os.fsdecode(problem.filename)}: " if isinstance(problem.filename, str | bytes) else ""
    missing = isinstance(problem, FileNotFoundError)
    report_error(
        "not_found" if missing else "os_error", f"{where}{problem.strerror or problem}", _hint(problem)
    )
    return CommandStatus.NOT_FOUND if missing else CommandStatus.FAILED


def _hint(problem: OSError) -> str:
    if problem.errno in _NO_ROOM:
        return f"is there room {'for the file' if problem.filename else 'where the output goes'}?"
    return "is the path right?" if problem.filename else "can the output of the command still be written?"
