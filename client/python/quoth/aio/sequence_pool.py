"""The producer ids of publishes that run at once: each has its own, so that its retries are recognised."""

from __future__ import annotations

import time
from asyncio import Semaphore, timeout

from quoth.core.idempotence import Sequences
from quothwire.errors import error

PUBLISHES_MAX = 256
"""Publishes of one client in flight; more of them wait. A broker remembers 1,000 producers of a topic."""


class SequencePool:
    """Idle producer ids, last used first. Their number grows with that of the publishes that run at once."""

    def __init__(self) -> None:
        self._idle: list[Sequences] = []
        self._places = Semaphore(PUBLISHES_MAX)

    async def take(self, deadline: float) -> Sequences:
        """Return sequences for one publish. Raises `Disconnected` ``timed_out`` at the deadline."""
        if self._places.locked():
            try:
                async with timeout(deadline - time.monotonic()):
                    await self._places.acquire()
            except TimeoutError:
                text = f"{PUBLISHES_MAX} other publishes of this client are on their way"
                raise error("timed_out", text, "nothing of it was stored") from None
        else:
            await self._places.acquire()
        return self._idle.pop() if self._idle else Sequences()

    def give_back(self, sequences: Sequences | None) -> None:
        """End a publish. sequences: None if its outcome, and so the next sequence, is not known."""
        if sequences is not None:
            self._idle.append(sequences)
        self._places.release()
