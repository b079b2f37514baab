"""The state of a consumer group, as the metrics tell it."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetrics(NamedTuple):
    """A group when its topic last looked. The fields are those of `GroupInfo` with their names.

    used: the time of the last request, as a pointer. The problem is that of its dead letters alone.
    """

    group: str
    mode: str
    paused: bool
    lag: int
    oldest: int
    pending: int
    in_flight: int
    redelivered: int
    dead: int
    gone: int
    used: int
    problem: str
