"""Runs the rule sets of a broker.

    python -m quothrules URL [--supervised]

It ends at SIGTERM or Ctrl-C. With --supervised it ends with its stdin, too, when its parent is gone.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from types import FrameType

import quoth
from quoth.core.options import DEFAULT_URL
from quothrules.service.rules_service import RulesService
from quothwire.errors import QuothError

CONNECT_S = 30.0
WATCH_S = 1.0


def main() -> None:
    """Run until the process is told to end."""
    arguments = [one for one in sys.argv[1:] if one != "--supervised"]
    url = arguments[0] if arguments else DEFAULT_URL
    try:
        client = quoth.connect(url, wait=CONNECT_S)
    except QuothError as problem:
        sys.exit(f"quothrules: {problem}")
    with client:
        service = RulesService(client)

        def stop(_signal: int, _frame: FrameType | None) -> None:
            service.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        if "--supervised" in sys.argv:
            threading.Thread(target=_watch, args=(service,), name="quoth-rules-parent", daemon=True).start()
        service.run()


def _watch(service: RulesService) -> None:
    """Stop at the end of stdin."""
    while not select.select([0], [], [], WATCH_S)[0] or os.read(0, 1_024):
        pass
    service.stop()


if __name__ == "__main__":
    main()
