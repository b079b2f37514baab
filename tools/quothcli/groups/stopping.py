"""Signals that ask a command to finish what is at work, and to end then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from quothcli.cli.exit_status import CommandStatus

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WAIT, _RESULT = threading.Condition.wait.__code__, Future.result.__code__


class StoppedWaiting(KeyboardInterrupt):
    """Raised by the first signal in a wait for the broker."""


class StopRequest:
    """Takes SIGINT and SIGTERM inside a ``with`` block as a request to stop.

    status: the exit status once there is one. The first signal sets it, and ends a wait that `waiting` marks.
    is_interrupted: True if that was SIGINT.
    It raises at no other place: records that were fetched would be under a lease that no one ends. The second
    signal raises KeyboardInterrupt, or SystemExit, wherever the main thread is.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_interrupted = False
        self._is_waiting = False
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.getsignal(number)
            if self._before[number] is not signal.SIG_IGN:  # as behind nohup
                signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let the first signal raise `StoppedWaiting` while an answer of the broker is waited for inside."""
        self._is_waiting = True
        try:
            yield
        finally:
            self._is_waiting = False

    def ask(self, frame: FrameType | None, status: int = CommandStatus.DONE) -> None:
        """Take a request from a handler of another signal. frame: that it has interrupted."""
        if self.status is None:
            self.status = status
            if self._is_waiting and _waits(frame):
                raise StoppedWaiting

    def _take(self, number: int, frame: FrameType | None) -> None:
        status = CommandStatus.DONE if number == signal.SIGINT else 128 + number
        if self.status is None:
            self.is_interrupted = number == signal.SIGINT
            self.ask(frame, status)
            return
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)  # a third one must not end the clean-up
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(status)


def _waits(frame: FrameType | None) -> bool:
    """Return True for a frame that waits for a future."""
    caller = frame.f_back if frame is not None else None
    return caller is not None and (frame and frame.f_code, caller.f_code) == (_WAIT, _RESULT)
