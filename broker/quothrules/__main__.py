"""Runs the rule sets of a broker.

    python -m quothrules URL [--supervised]

It ends at SIGTERM or Ctrl-C, and gives back what it has in hand. With --supervised it ends with its stdin,
too, at once: its parent is the broker, and there is nothing to give back to.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import quoth
from quoth.core.options import DEFAULT_URL
from quothrules.service.rules_service import RulesService
from quothwire.errors import QuothError

CONNECT_S = 30.0


def main() -> None:
    """Run until the process is to end."""
    arguments = [one for one in sys.argv[1:] if one != "--supervised"]
    url = arguments[0] if arguments else DEFAULT_URL
    service: RulesService | None = None

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if service is None:  # it waits for the broker, and has nothing in hand
            os._exit(0)
        service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if "--supervised" in sys.argv:
        threading.Thread(target=_watch, name="quoth-rules-parent", daemon=True).start()
    try:
        client = quoth.connect(url, wait=CONNECT_S)
    except QuothError as problem:
        sys.exit(f"quothrules: {problem}")
    with client:
        service = RulesService(client)
        service.run()


def _watch() -> None:
    """Exit at the end of stdin."""
    while os.read(0, 1_024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
