"""Offsets of a streaming query as Spark journals them: JSON with all that a restart needs.

    {"quoth": 1,
     "topics": {"orders": {"next": 1767323045000002, "ordinal": 2, "log": "00c0ffee00c0ffee", "lost": 0}},
     "_from": {...}}

`next` is the pointer to continue at and `ordinal` its number in the log, so that losses and lags are
differences. `lost` counts the records that retention removed before they were read.

Spark asks a source for the initial offset twice, and again after a crash in the first batch. "latest" would
be another position each time, and the records between would never be read. So the initial offset is marked by
`_init`, and the end offset of the first batch, which Spark journals before it reads, has the real beginning
in `_from`. Topics that come later have their beginning there, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from quothwire.errors import error

VERSION = 1


class TopicPosition(NamedTuple):
    """A position in a topic. next: the pointer to continue at. log: the log's id. lost: records lost so
    far."""

    next: int
    ordinal: int
    log: int
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """The JSON of the journal. Ids of 64 bits are text, because not every JSON reader keeps such
        integers."""
        return {"next": self.next, "ordinal": self.ordinal, "log": f"{self.log:016x}", "lost": self.lost}


Positions = Mapping[str, TopicPosition]


class Offset(NamedTuple):
    """An offset of a query: a position for each topic. began: the beginning of topics without a position
    before."""

    topics: Positions
    began: Positions = MappingProxyType({})
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON of the journal."""
        offset: dict[str, Any] = {"quoth": VERSION, "topics": _to_json(self.topics)}
        if self.began:
            offset["_from"] = _to_json(self.began)
        if self.initial:
            offset["_init"] = True
        return offset

    @classmethod
    def from_json(cls, offset: Any) -> Offset:
        """Read the JSON of the journal. Raises ``bad_request`` for an offset of another source."""
        try:
            if offset["quoth"] != VERSION:
                raise ValueError
            began = _from_json(offset.get("_from", {}))
            return cls(_from_json(offset["topics"]), began, bool(offset.get("_init")))
        except (AttributeError, KeyError, TypeError, ValueError):
            text = f"the checkpoint holds an offset of another source or version: {offset!r:.200}"
            hint = "this query needs a checkpoint of its own: set another checkpointLocation"
            raise error("bad_request", text, hint) from None


def _to_json(positions: Positions) -> dict[str, Any]:
    return {topic: positions[topic].to_json() for topic in sorted(positions)}


def _from_json(found: Mapping[str, Any]) -> dict[str, TopicPosition]:
    return {
        topic: TopicPosition(int(one["next"]), int(one["ordinal"]), int(one["log"], 16), int(one["lost"]))
        for topic, one in found.items()
    }
