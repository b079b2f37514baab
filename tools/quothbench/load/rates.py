"""Rates: the messages that all clients processed together, and the processor time on both sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from quothbench.figures import QUANTILES, quantiles
from quothbench.load.clients import ClientResult, Ready, elapsed
from quothbench.load.driver import VALUE
from quothbench.load.target import Target
from quothbench.report import ReportColumn, count, seconds

SECONDS = 2.0
"""The default time of a measurement."""
Counted: TypeAlias = tuple[int, list[float]]
"""Messages, and the seconds of each call; no seconds where calls overlap."""


class Payload(NamedTuple):
    """The content of a call. records: messages of a call. size: bytes of a message."""

    records: int
    size: int

    @property
    def values(self) -> list[bytes]:
        """Return the values of the messages."""
        return [(VALUE * (self.size // len(VALUE) + 1))[: self.size]] * self.records


class Tally(NamedTuple):
    """The work of one client. before, after: processor seconds of the broker, None if unknown."""

    messages: int
    took: list[float]
    before: float | None
    after: float | None


class Rates(NamedTuple):
    """The work of all clients in some seconds. broker, clients: processor seconds.

    broker: None if it is unknown, or less than the 10 ms in which the system counts.
    """

    messages: int
    took: list[float]
    seconds: float
    broker: float | None
    clients: float

    @classmethod
    def of(cls, done: Sequence[ClientResult]) -> Rates:
        """Add up the results of clients that ran `tally`."""
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

    def figures(self, size: int, costs_of: int) -> list[float | None]:
        """Return the figures of `columns`; NaN where there are no calls.

        size: bytes of a message. costs_of: how many messages or calls share the processor time.
        """
        costs = (None if one is None else one / costs_of * 1e6 for one in (self.broker, self.clients))
        return [
            self.messages / self.seconds,
            self.messages * size / self.seconds / 1e6,
            (len(self.took) or math.nan) / self.seconds,
            *quantiles(self.took).values(),
            *costs,
        ]


def columns(cost_of: str, cost: Callable[[float], str]) -> tuple[ReportColumn, ...]:
    """Return the columns of `Rates.figures`. cost_of: "call" or "message". cost: prints microseconds."""
    return (
        ReportColumn("messages_per_second", "messages/s", count, 10),
        ReportColumn("megabytes_per_second", "MB/s", lambda figure: f"{figure:,.1f}", 7),
        ReportColumn(
            "calls_per_second", "calls/s", lambda figure: "-" if math.isnan(figure) else count(figure), 7
        ),
        *(ReportColumn(f"{name}_seconds", name, seconds) for name in QUANTILES),
        ReportColumn(f"broker_microseconds_per_{cost_of}", "broker us", cost),
        ReportColumn(f"clients_microseconds_per_{cost_of}", "clients us", cost, 10),
    )


def tally(ready: Ready, target: Target, warm_up: Callable[[], object], work: Callable[[], Counted]) -> Tally:
    """Warm up, wait for the other clients, work, and measure the broker's processor time meanwhile."""
    warm_up()
    ready()
    before = target.cpu()
    messages, took = work()
    return Tally(messages, took, before, target.cpu())
