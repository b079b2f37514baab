"""The entry of the command `quoth`. It imports next to nothing, so that Ctrl-C is heard from the beginning.

Loading the application takes a few tenths of a second. There is nothing to tidy up before a command runs, nor
after it, and an exception could come up anywhere in the interpreter: an interrupt simply ends the process.
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
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, as by nohup
    if heard:
        signal.signal(signal.SIGINT, _end)
    gc.disable()  # what is loaded stays: to look for garbage in it takes a twentieth of the start
    from quothcli.application import run

    gc.freeze()
    gc.enable()
    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run(sys.argv[1:] if arguments is None else arguments)
        if heard:
            signal.signal(signal.SIGINT, _end)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
