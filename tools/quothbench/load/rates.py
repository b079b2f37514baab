"""Rates: what clients got done together, and the processor time that it took on both sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from quothbench.figures import QUANTILES, quantiles
from quothbench.load.clients import Done, elapsed
from quothbench.load.driver import VALUE
from quothbench.load.target import Target
from quothbench.report import Column, count, seconds

SECONDS = 2.0
"""How long a row is measured where nothing else is asked for."""
Got: TypeAlias = tuple[int, list[float]]
"""Messages, and seconds of each call if there are any that can be told apart."""


class Payload(NamedTuple):
    """What a call carries. records: messages a call. size: bytes of each."""

    records: int
    size: int

    @property
    def values(self) -> list[bytes]:
        """The messages."""
        return [(VALUE * (self.size // len(VALUE) + 1))[: self.size]] * self.records


class Tally(NamedTuple):
    """What one client got done. before, after: processor seconds of the broker, None: not known."""

    messages: int
    took: list[float]
    before: float | None
    after: float | None


class Rates(NamedTuple):
    """What all clients got done in some seconds. broker, clients: processor seconds.

    broker: None where nobody tells, or where it is less than the system counts, which are steps of 10 ms.
    """

    messages: int
    took: list[float]
    seconds: float
    broker: float | None
    clients: float

    @classmethod
    def of(cls, done: Sequence[Done]) -> Rates:
        """Add up what clients brought back that ran `tally`."""
        tallies: list[Tally] = [one.result for one in done]
        befores = [one.before for one in tallies if one.before is not None]
        afters = [one.after for one in tallies if one.after is not None]
        return cls(
            sum(one.messages for one in tallies),
            [call for one in tallies for call in one.took],
            elapsed(done),
            (max(afters) - min(befores) or None) if befores and afters else None,
            sum(one.cpu for one in done),
        )

    def figures(self, size: int) -> list[float]:
        """Those of `COLUMNS`, with messages of so many bytes; NaN where there are no calls."""
        calls = len(self.took) or math.nan
        return [
            self.messages / self.seconds,
            self.messages * size / self.seconds / 1e6,
            calls / self.seconds,
            *quantiles(self.took).values(),
        ]

    def costs(self, number: int) -> list[float | None]:
        """Microseconds of processor time of the broker and of the clients for each of so many."""
        both = (self.broker, self.clients)
        return [None if one is None else one / number * 1e6 for one in both]


COLUMNS = (
    Column("messages_per_second", "messages/s", count, 10),
    Column("megabytes_per_second", "MB/s", lambda figure: f"{figure:,.1f}", 7),
    Column("calls_per_second", "calls/s", lambda figure: "-" if math.isnan(figure) else count(figure), 7),
    *(Column(f"{name}_seconds", name, seconds) for name in QUANTILES),
)


def tally(
    ready: Callable[[], None], target: Target, warm_up: Callable[[], object], work: Callable[[], Got]
) -> Tally:
    """Warm up, wait for the other clients, work, and keep account of the broker's processor time."""
    warm_up()
    ready()
    before = target.cpu()
    messages, took = work()
    return Tally(messages, took, before, target.cpu())
