"""The settings of a topic, as the wire and the broker have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from quothwire.errors import QuothError, error, shown
from quothwire.text.quantity import format_size, format_span, parse_size, parse_span
from quothwire.text.suggestion import nearest

Durability = Literal["written", "synced"]
"""``written``: the operating system has the records, which survive the death of the broker. ``synced``: fsync
has returned, and they survive a power cut."""

Retention = Literal["limits", "until_acked"]
"""``limits``: `max_age` and `max_bytes` alone say which records are removed. ``until_acked``: those that all
groups of the topic have finished are removed, too, a whole segment at a time."""

DURABILITIES: tuple[Durability, ...] = get_args(Durability)
RETENTIONS: tuple[str, ...] = get_args(Retention)
SEGMENT_BYTES_MAX = 2**40
SECONDS_MAX = 1e10


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
    retention: Retention | str


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one topic. 0 means "no limit".

    durability: the level of a publish that asks for none.
    max_age: seconds; older records are removed, a whole segment at a time.
    max_bytes: bytes of the topic's segments; above it, the oldest ones are removed.
    size_limit: bytes; a segment that would grow beyond it is sealed, and the next one begins.
    count_limit: records a segment.
    age_limit: seconds; a segment whose first record is older is sealed.
    retention: ``limits``, or ``until_acked`` to remove what all groups have finished, too.
    """

    durability: str = "written"
    max_age: float = 0.0
    max_bytes: int = 0
    size_limit: int = 64 * 2**20
    count_limit: int = 0
    age_limit: float = 0.0
    retention: str = "limits"

    def __post_init__(self) -> None:
        for name, choices in (("durability", DURABILITIES), ("retention", RETENTIONS)):
            if (chosen := getattr(self, name)) not in choices:
                raise error("bad_setting", f"{name} is {' or '.join(choices)}, not {shown(chosen)}")
        for name, (low, high, kind) in _NUMBERS.items():
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kind.types) or not low <= value <= high:
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
            sent[name] = _NUMBERS[name][2].parse(value) if name in _NUMBERS else value
        except QuothError as problem:
            raise error(problem.code, f"{name}: {problem.text}", problem.hint) from None
    return sent


def in_words(settings: Mapping[str, Any]) -> dict[str, str]:
    """Format each setting for people: ``7 days``, ``64 MiB``, ``no limit``; unknown ones as they are."""
    return {name: _word(name, value) for name, value in settings.items()}


def _word(name: str, value: Any) -> str:
    if name not in _NUMBERS:
        return str(value)
    return _NUMBERS[name][2].words(value) if value else "no limit"


class _Kind(NamedTuple):
    """A kind of settings: types of its numbers, a parser of what applications give, words for people."""

    types: tuple[type[int] | type[float], ...]
    parse: Callable[[Any], Any]
    words: Callable[[Any], str]


def _span(value: Any) -> float | int:
    """Return seconds. An integer stays an integer."""
    return value if type(value) is int else parse_span(value, infinity=0.0)


_SPAN = _Kind((int, float), _span, format_span)
_SIZE = _Kind((int,), partial(parse_size, infinity=0), format_size)
_FINITE_SIZE = _Kind((int,), parse_size, format_size)
_COUNT = _Kind((int,), lambda value: value, "{:,}".format)

NAMES: tuple[str, ...] = tuple(field.name for field in fields(TopicSettings))
_NUMBERS: dict[str, tuple[int, float, _Kind]] = {
    "max_age": (0, SECONDS_MAX, _SPAN),
    "max_bytes": (0, 2**56, _SIZE),
    "size_limit": (1, SEGMENT_BYTES_MAX, _FINITE_SIZE),  # so that a segment ends
    "count_limit": (0, 2**40, _COUNT),
    "age_limit": (0, SECONDS_MAX, _SPAN),
}
"""The least and the largest number, and the kind of the settings that are numbers."""
