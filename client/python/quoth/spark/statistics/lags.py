"""Measures the lag of the groups and named cursors of topics, as their broker knows it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from quoth.client import Client
from quoth.timestamps import now
from quothwire.errors import NotFound


class GroupLagRow(NamedTuple):
    """The lag of a group, or of a named cursor, whose mode is ``cursor``.

    at: the time of the measurement, as a pointer. records: those that it has not finished. seconds: the age
    of the oldest of them, 0 without any. gone: those that retention took from it since it was created.
    """

    topic: str
    group: str
    mode: str
    at: int
    records: int
    seconds: float
    gone: int


def group_lags(broker: Client, topics: Iterable[str]) -> list[GroupLagRow]:
    """Measure the lags of all groups of some topics, in the order of topics and names.

    Topics and groups that are deleted meanwhile are left out. Raises `Disconnected`.
    """
    found: list[GroupLagRow] = []
    for topic in topics:
        with suppress(NotFound):
            for one in broker.groups(topic):
                with suppress(NotFound):
                    lag = broker.group(topic, one.group, create=False).lag()
                    found.append(GroupLagRow(topic, one.group, one.settings["mode"], now(), *lag))
    return found
