"""The entry of the command `quoth`. It imports little, so that Ctrl-C works from the beginning.

Loading the application takes a few tenths of a second. Before a command runs, and after it, there is nothing
to clean up, and an exception could be raised anywhere in the interpreter: an interrupt ends the process.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

INTERRUPTED = 130
_AGAIN_S = 0.01


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that was typed, and exit."""
    # Behind nohup, SIGINT is ignored and stays so.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _end)
    gc.disable()  # the modules stay: a search for garbage in them takes a twentieth of the start
    from quothcli.application import run

    gc.freeze()
    gc.enable()
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with _DroppedExits():
            status = run(sys.argv[1:] if arguments is None else arguments)
        if interruptible:
            signal.signal(signal.SIGINT, _end)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


class _DroppedExits:
    """Raises an exit or interrupt again that a signal has raised where Python drops exceptions.

    That is in destructors and other callbacks of the interpreter: it prints "Exception ignored in ...", and
    the command would go on for ever.
    """

    def __enter__(self) -> None:
        self._dropped: BaseException = KeyboardInterrupt()
        self._report = sys.unraisablehook
        self._before = signal.signal(signal.SIGALRM, self._raise)
        sys.unraisablehook = self._look

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        sys.unraisablehook = self._report

    def _look(self, unraisable: UnraisableHookArgs) -> None:
        dropped: Any = unraisable.exc_value
        if isinstance(dropped, SystemExit | KeyboardInterrupt):
            self._dropped = type(dropped)(*dropped.args)  # without a traceback, which holds what is destroyed
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            self._report(unraisable)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        raise self._dropped


if __name__ == "__main__":
    main()
