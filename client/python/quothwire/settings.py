"""The settings of a topic, as they travel and as the broker keeps them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from quothwire.errors import error, shown

Durability = Literal["written", "synced"]
"""``written``: the operating system has it, it survives the death of the process. ``synced``: fsync has
returned, it survives power loss."""

DURABILITIES: tuple[str, ...] = get_args(Durability)
SEGMENT_BYTES_MAX = 2**40
SECONDS_MAX = 1e10


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What can be set for one topic. 0 stands for "no limit".

    durability: the level that a publish gets when it asks for none.
    max_age: seconds; older records are removed, a whole segment at a time.
    max_bytes: bytes of the topic's segments; the oldest are removed above it.
    size_limit: bytes; a segment that would grow beyond it is sealed and a new one begun.
    count_limit: records a segment.
    age_limit: seconds; a segment whose first record is older is sealed.
    """

    durability: str = "written"
    max_age: float = 0.0
    max_bytes: int = 0
    size_limit: int = 64 * 2**20
    count_limit: int = 0
    age_limit: float = 0.0

    def __post_init__(self) -> None:
        if self.durability not in DURABILITIES:
            raise error(
                "bad_setting", f"durability is {' or '.join(DURABILITIES)}, not {shown(self.durability)}"
            )
        for name, (low, high, kinds) in _RANGES.items():
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
                raise error("bad_setting", f"{name} is a number from {low} to {high:.0f}, not {shown(value)}")

    def changed(self, changes: Mapping[str, Any]) -> TopicSettings:
        """The settings with some of them changed. An unknown name raises ``bad_setting``."""
        for name in changes:
            if name not in NAMES:
                near = difflib.get_close_matches(str(name)[:40], NAMES, n=1)
                hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(NAMES)}"
                raise error("bad_setting", f"{shown(name)} is no setting of a topic", hint)
        return TopicSettings(**{**asdict(self), **changes})

    def to_map(self) -> dict[str, Any]:
        """The settings as a plain map."""
        return asdict(self)


NAMES: tuple[str, ...] = tuple(field.name for field in fields(TopicSettings))
_RANGES: dict[str, tuple[int, float, tuple[type[int] | type[float], ...]]] = {
    "max_age": (0, SECONDS_MAX, (int, float)),
    "max_bytes": (0, 2**56, (int,)),
    "size_limit": (1, SEGMENT_BYTES_MAX, (int,)),
    "count_limit": (0, 2**40, (int,)),
    "age_limit": (0, SECONDS_MAX, (int, float)),
}
