"""The settings of a topic, as the wire and the broker have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypedDict, get_args

from quothwire.errors import QuothError, error, shown
from quothwire.text.quantity import format_size, format_span, parse_size, parse_span
from quothwire.text.suggestion import nearest

Durability = Literal["written", "synced"]
"""``written``: the operating system has the records, which survive the death of the broker. ``synced``: fsync
has returned, and they survive a power cut."""

DURABILITIES: tuple[str, ...] = get_args(Durability)
SEGMENT_BYTES_MAX = 2**40
SECONDS_MAX = 1e10
NO_LIMIT = "no limit"
SPANS = frozenset({"max_age", "age_limit"})
SIZES = frozenset({"max_bytes", "size_limit"})


class GivenSettings(TypedDict, total=False):
    """Settings as an application gives them, see `TopicSettings`. 0 and ``"infinity"`` mean "no limit".

    Spans are seconds or text such as ``"7d"`` and ``"1h30m"``, sizes bytes or text such as ``"1GiB"``.
    """

    durability: Durability | str
    max_age: float | str
    max_bytes: int | str
    size_limit: int | str
    count_limit: int
    age_limit: float | str


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one topic. 0 means "no limit".

    durability: the level of a publish that asks for none.
    max_age: seconds; older records are removed, a whole segment at a time.
    max_bytes: bytes of the topic's segments; above it, the oldest ones are removed.
    size_limit: bytes; a segment that would grow beyond it is sealed, and the next one begins.
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
        """Return the settings with some of them changed. Raises ``bad_setting`` for an unknown name."""
        for name in changes:
            if name not in NAMES:
                near = nearest(str(name), NAMES)
                hint = f"did you mean {near}?" if near else f"one of {', '.join(NAMES)}"
                raise error("bad_setting", f"{shown(name)} is no setting of a topic", hint)
        return TopicSettings(**{**asdict(self), **changes})

    def to_map(self) -> dict[str, Any]:
        """Return the settings as a plain map."""
        return asdict(self)


def as_sent(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the spans and sizes of given settings to numbers, as the wire has them.

    Keeps an unknown setting as it is: a newer broker may know it, and any other one suggests the right name.
    Raises `RequestError` ``bad_setting`` that names the setting.
    """
    sent: dict[str, Any] = {}
    for name, value in given.items():
        try:
            sent[name] = _PARSERS[name](value) if name in _PARSERS else value
        except QuothError as problem:
            raise error(problem.code, f"{name}: {problem.text}", problem.hint) from None
    return sent


def in_words(settings: Mapping[str, Any]) -> dict[str, str]:
    """Format each setting for people: ``7 days``, ``64 MiB``, ``no limit``; unknown ones as they are."""
    return {name: _word(name, value) for name, value in settings.items()}


def _word(name: str, value: Any) -> str:
    if name in _RANGES and value == 0:
        return NO_LIMIT
    if name in SPANS:
        return format_span(value)
    if name in SIZES:
        return format_size(value)
    return f"{value:,}" if name in _RANGES else str(value)


def _span(value: Any) -> float | int:
    """Return seconds. An integer stays an integer."""
    return value if type(value) is int else parse_span(value, infinity=0.0)


def _size(value: Any) -> int:
    return parse_size(value, infinity=0)


NAMES: tuple[str, ...] = tuple(field.name for field in fields(TopicSettings))
_RANGES: dict[str, tuple[int, float, tuple[type[int] | type[float], ...]]] = {
    "max_age": (0, SECONDS_MAX, (int, float)),
    "max_bytes": (0, 2**56, (int,)),
    "size_limit": (1, SEGMENT_BYTES_MAX, (int,)),
    "count_limit": (0, 2**40, (int,)),
    "age_limit": (0, SECONDS_MAX, (int, float)),
}
_PARSERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(SPANS, _span),
    "max_bytes": _size,
    "size_limit": parse_size,
}
"""`size_limit` alone cannot be infinite, so that a segment ends."""
