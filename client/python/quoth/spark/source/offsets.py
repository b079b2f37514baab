"""How far a streaming query is, as Spark journals it: JSON that holds all that a restart has to know.

    {"quoth": 1,
     "topics": {"orders": {"next": 1767323045000002, "ordinal": 2, "log": "00c0ffee00c0ffee", "lost": 0}},
     "_from": {...}}

`next` is the pointer to go on with and `ordinal` its number in the log, so what has been lost and how far a
query is behind are subtractions. `lost` counts the records that retention took before they were read.

Spark asks a source twice where to begin, and again after a crash of the first batch; "latest" would be
another place each time, and what lies between would never be read. So the first answer is marked as `_init`,
and whoever gets it back writes down in `_from` where he did begin: in the end offset of the batch, which
Spark journals before it reads. Topics that come later begin there in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from quothwire.errors import error

VERSION = 1


class TopicPosition(NamedTuple):
    """How far a topic is read. next: the pointer to go on with. log: its log's id. lost: records so far."""

    next: int
    ordinal: int
    log: int
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """As it is journalled. Ids of 64 bits are text, because not every reader of JSON keeps them."""
        return {"next": self.next, "ordinal": self.ordinal, "log": f"{self.log:016x}", "lost": self.lost}


Positions = Mapping[str, TopicPosition]


class Offset(NamedTuple):
    """An offset of a query: a position for each topic. began: where topics begin that had none before it."""

    topics: Positions
    began: Positions = MappingProxyType({})
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """As it is journalled."""
        offset: dict[str, Any] = {"quoth": VERSION, "topics": _to_json(self.topics)}
        if self.began:
            offset["_from"] = _to_json(self.began)
        if self.initial:
            offset["_init"] = True
        return offset

    @classmethod
    def from_json(cls, offset: Any) -> Offset:
        """Read a journalled one. Raises ``bad_request`` for what another source has written."""
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
