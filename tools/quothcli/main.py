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

INTERRUPTED = 130


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
        status = run(sys.argv[1:] if arguments is None else arguments)
        if interruptible:
            signal.signal(signal.SIGINT, _end)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
