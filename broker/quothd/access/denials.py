"""Reports denied connections, and counts the others when there are many: a flood must not fill the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

WINDOW_S = 60.0
REPORTS_MAX = 30
"""Reports in a window. The number of further denials follows at its end."""
REPORTS_OF_ADDRESS_MAX = 3
"""Reports of one address in a window, so that one client does not use up those of others."""

Report = Callable[..., Any]
"""Takes the name of an event, and its fields by name, as `quothd.service.log_events.note` does."""


class DenialReport:
    """Reports the denials of one authenticator. Belongs to its thread. total: the number of all denials."""

    def __init__(self, report: Report, monotonic: Callable[[], float]) -> None:
        self._report = report
        self._monotonic = monotonic
        self._ends_at = 0.0
        self._reported: Counter[str] = Counter()
        self._unreported = 0
        self.total = 0

    def add(self, key: str, address: str) -> None:
        """Report a denial, or count it.

        key: 40 characters, "" if the client has none. address: as libzmq has it; of a client through ipc
        localhost and the numbers of its user, group and process.
        """
        self.tick()
        self.total += 1
        if self._reported.total() < REPORTS_MAX and self._reported[address] < REPORTS_OF_ADDRESS_MAX:
            self._reported[address] += 1
            self._report("connection_denied", key=key, address=address)
        else:
            self._unreported += 1

    def tick(self) -> None:
        """Begin a new window if the last one has ended."""
        now = self._monotonic()
        if now >= self._ends_at:
            self.flush()
            self._ends_at = now + WINDOW_S

    def flush(self) -> None:
        """Report the number of the denials that were only counted."""
        unreported, self._unreported = self._unreported, 0
        self._reported.clear()
        if unreported:
            self._report("connections_denied", number=unreported)
