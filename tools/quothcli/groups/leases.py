"""Extends the leases of records that are at work, from a thread of its own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quoth.groups.group import extend_all
from quothwire.errors import Conflict, QuothError

if TYPE_CHECKING:
    from quoth import GroupMessage

EXTENDED_PART = 1 / 3
"""Of a lease, after which it is extended."""


class LeaseExtender:
    """Extends leases of so many seconds while their records are held; 0: there are no leases.

    on_lost: called with records that have lost their lease all the same. Any thread may hold records.
    """

    def __init__(self, seconds: float, on_lost: Callable[[Sequence[GroupMessage]], None]) -> None:
        self._seconds = seconds
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._held: dict[int, tuple[float, Sequence[GroupMessage]]] = {}
        """Records at work, with the monotonic time of their next extension, in the order of that."""
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="quoth-leases", daemon=True)

    def __enter__(self) -> Self:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._seconds:
            self._thread.join()

    @contextmanager
    def held(self, records: Sequence[GroupMessage]) -> Iterator[None]:
        """Extend the leases of records inside."""
        with self._changed:
            self._hold(records)
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._held.pop(id(records), None)

    def _hold(self, records: Sequence[GroupMessage]) -> None:
        self._held[id(records)] = time.monotonic() + EXTENDED_PART * self._seconds, records

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (due := self._next_due()) is not None:
            self._extend(due)

    def _next_due(self) -> Sequence[GroupMessage] | None:
        """Wait until records are due, and return them; None at the end."""
        with self._changed:
            while not self._is_over:
                at, records = next(iter(self._held.values()), (math.inf, ()))
                seconds = at - time.monotonic()
                if seconds <= 0:
                    del self._held[id(records)]
                    self._hold(records)
                    return records
                self._changed.wait(None if math.isinf(seconds) else seconds)
        return None

    def _extend(self, records: Sequence[GroupMessage]) -> None:
        """Extend the leases of records. What is settled meanwhile needs none."""
        try:
            extend_all([one for one in records if not one.is_settled], self._seconds)
        except Conflict:
            if not any(one.is_settled for one in records):
                with self._changed:
                    self._held.pop(id(records), None)
                self._on_lost(records)
        except QuothError:
            return  # no broker is there, as the fetches show, too: the next third of the lease tries again
