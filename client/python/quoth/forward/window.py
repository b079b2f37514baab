"""The batches of a forwarding that are ready or in flight: how many, how fast, and in which order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quoth.core.adaptive_timeout import AdaptiveTimeout
from quoth.core.outgoing import OutgoingBatch
from quothwire.batch import Header
from quothwire.errors import error

AHEAD_BYTES = 8 * 2**20
"""Bytes that are read from the source before they can be sent."""
BURST_S = 0.1
"""A bandwidth is kept on the average of so many seconds."""


@dataclass(eq=False, kw_only=True)
class ForwardedBatch(OutgoingBatch):
    """A batch of the source.

    begins: the broker takes it whatever came before. acknowledged: the pointer of its last record in the
    topic, 0 before its acknowledgement.
    """

    header: Header
    begins: bool
    acknowledged: int = 0


class ForwardWindow:
    """The batches that are ready and those in flight. rate: bytes a second, 0 for no limit.

    size_max: returns the bytes of the largest batch that the broker takes.
    """

    def __init__(self, timeout: AdaptiveTimeout, rate: float, size_max: Callable[[], int]) -> None:
        self.ready: deque[ForwardedBatch] = deque()
        self.sent: deque[ForwardedBatch] = deque()
        self.free_at = -math.inf
        """When the next batch may be sent within the rate, by the monotonic clock."""
        self._ready_bytes = 0
        self._timeout = timeout
        self._rate = rate
        self._size_max = size_max

    def clear(self) -> None:
        """Forget all batches."""
        self.ready.clear()
        self.sent.clear()
        self._ready_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if no more has to be read from the source."""
        return self._ready_bytes >= AHEAD_BYTES

    @property
    def is_idle(self) -> bool:
        """True if no batch is ready or in flight."""
        return not self.ready and not self.sent

    def add(self, batch: ForwardedBatch) -> None:
        """Add a batch that is ready."""
        self.ready.append(batch)
        self._ready_bytes += len(batch.payload)

    def take(self, now: float, may_send: Callable[[ForwardedBatch], bool]) -> ForwardedBatch | None:
        """Return the next batch if it may be sent now: see `BatchSupply`. Raises ``too_large``."""
        if not self.ready or now < self.free_at or self._is_held() or not may_send(self.ready[0]):
            return None
        if self._is_too_large(self.ready[0]):
            size = len(self.ready[0].payload)
            hint = "all before it has arrived; raise frame_bytes_max of that broker"
            raise error("too_large", f"a batch of {size} bytes, at most {self._size_max()}", hint)
        batch = self.ready.popleft()
        batch.began = now
        self._ready_bytes -= len(batch.payload)
        if self._rate:
            self.free_at = max(self.free_at, now - BURST_S) + len(batch.payload) / self._rate
        self.sent.append(batch)
        return batch

    def next_at(self) -> float:
        """Return when the next batch may be sent: see `BatchSupply`."""
        return self.free_at if self.ready and not self._is_held() else math.inf

    def acknowledged(self) -> Iterator[ForwardedBatch]:
        """Remove the oldest batches in flight that are acknowledged."""
        while self.sent and self.sent[0].acknowledged:
            yield self.sent.popleft()

    def _is_held(self) -> bool:
        """Return True if the next batch has to wait for those in flight, to overtake none of them."""
        if not self.sent:
            return False
        head = self.ready[0]
        size = sum(len(one.payload) for one in self.sent) + len(head.payload)
        return head.begins or self._is_too_large(head) or size > self._timeout.window

    def _is_too_large(self, batch: ForwardedBatch) -> bool:
        return len(batch.payload) > self._size_max()
