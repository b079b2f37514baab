"""Rates: the messages that all clients processed together, and the processor time on both sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from quothbench.figures import QUANTILES, quantiles
from quothbench.load.clients import Clients, Task, elapsed
from quothbench.load.driver import VALUE
from quothbench.load.servers import Target
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
    def measure(cls, clients: Clients, target: Target, task: Task, *arguments: Sequence[Any]) -> Rates:
        """Let clients run a task whose result is `Counted`, and add up the results."""
        before: list[float | None] = []
        done = clients.run(task, *arguments, at_begin=lambda: before.append(target.cpu()))
        (began,), ended = before, target.cpu()
        return cls(
            sum(one.result[0] for one in done),
            [call for one in done for call in one.result[1]],
            elapsed(done),
            None if began is None or ended is None else ended - began or None,
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
