"""A description of a log at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogInfo:
    """A log at one moment. first, last: pointers, 0 if there is none; states: a letter a segment.

    counters: events since the log was opened, by name. gauges: amounts now, by name.
    """

    log_id: int
    first: int
    last: int
    first_ordinal: int
    end_ordinal: int
    bytes: int
    segments: int
    states: str
    counters: dict[str, int]
    gauges: dict[str, int]
