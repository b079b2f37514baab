"""The spans of a group and their leases, by what comes next for them, and when."""

from __future__ import annotations

import math
from collections.abc import Iterator

from quothlog.groups.lazy_heap import LazyHeap
from quothlog.groups.spans import Lease, Span, SpanState


class SpanQueue:
    """The free spans by their pointers or by their time, the dying ones by their number, the leases.

    A span whose state changes is added again, a lease whose deadline comes earlier planned again. That they
    are under way already, or finished, needs no call.
    """

    def __init__(self) -> None:
        self._ready: LazyHeap[Span] = LazyHeap(_is_ready)
        self._later: LazyHeap[Span] = LazyHeap(_is_due_at)
        self._dying: LazyHeap[Span] = LazyHeap(_is_dying)
        self._leases: LazyHeap[Lease] = LazyHeap(_is_planned)

    def add(self, span: Span) -> None:
        """Add a span where it waits for its next hand-out, or for its dead letter."""
        if span.state is SpanState.DYING:
            self._dying.push(_turn(span), span)
        elif span.state is SpanState.FREE and span.due:
            self._later.push(span.due, span)
        elif span.state is SpanState.FREE:
            self._ready.push(span.after, span)

    def next_free(self, now: float) -> Span | None:
        """Return the span to hand out next: of those that are due by a monotonic time the lowest."""
        while self._later.lowest() <= now:
            span = self._later.take()
            span.due = 0.0
            self.add(span)
        return self._ready.first()

    def next_dying(self) -> Span | None:
        """Return the dying span whose turn it is: one that has a number already, else any."""
        return self._dying.first()

    def plan(self, lease: Lease) -> None:
        """Look at a lease at its deadline, unless that is to be done before."""
        if lease.deadline < lease.planned:
            lease.planned = lease.deadline
            self._leases.push(lease.planned, lease)

    def take_expired(self, now: float) -> Iterator[Lease]:
        """Yield the leases whose deadline has passed."""
        while self._leases.lowest() <= now:
            lease = self._leases.take()
            lease.planned = math.inf
            if lease.deadline > now:
                self.plan(lease)
            else:
                yield lease

    @property
    def has_leases(self) -> bool:
        """True if a span is under a lease."""
        return self._leases.first() is not None

    @property
    def has_delayed(self) -> bool:
        """True if a span is to be handed out at a later time."""
        return self._later.first() is not None

    def next_due(self) -> float:
        """Return the monotonic time of the next end of a lease or a delay; infinity for none."""
        return min(self._later.lowest(), self._leases.lowest())


def _turn(span: Span) -> float:
    return span.number or math.inf


def _is_ready(_after: float, span: Span) -> bool:
    return span.state is SpanState.FREE and not span.due


def _is_due_at(due: float, span: Span) -> bool:
    return span.state is SpanState.FREE and span.due == due


def _is_dying(turn: float, span: Span) -> bool:
    return span.state is SpanState.DYING and _turn(span) == turn


def _is_planned(at: float, lease: Lease) -> bool:
    return lease.spans > 0 and lease.planned == at
