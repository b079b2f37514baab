"""The names and settings of consumer groups, as the wire and the broker have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from quothwire.errors import QuothError, error, shown
from quothwire.settings import DURABILITIES
from quothwire.text.quantity import parse_span
from quothwire.text.suggestion import nearest
from quothwire.topic import check_size, check_topic

GROUP_BYTES_MAX = 100
"""Bytes of a group's name, so that its dead-letter topic can have the name of the topic in front of it."""
LEASE_S_MIN = 0.01
LEASE_S_MAX = 43_200.0
"""Twelve hours. A lease can be extended as often as needed, within `LEASE_TOTAL_S_MAX`."""
LEASE_TOTAL_S_MAX = 604_800.0
"""A week since the hand-out: a member whose handler hangs must not keep its records for ever."""
IN_FLIGHT_MAX = 10_000_000
ATTEMPTS_MAX = 1_000
BACKOFF_STEPS_MAX = 32
AUTO = "auto"
"""The dead-letter topic that has the names of the topic and the group."""
CURSOR = "cursor"
AT_MOST_ONCE = "at_most_once"
MODES = ("at_least_once", AT_MOST_ONCE, CURSOR)
"""The modes of a group. One of mode ``cursor`` has no leases: it keeps a pointer for a reader."""


class GivenGroupSettings(TypedDict, total=False):
    """Settings of a group as an application gives them, see `GroupSettings`. Spans: as for topics."""

    mode: str
    lease: float | str
    max_in_flight: int
    max_attempts: int
    backoff: list[float | str] | tuple[float | str, ...]
    dead_letter: str | None
    key_order: bool
    durability: str


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of one group.

    mode: ``at_least_once``, ``at_most_once`` or ``cursor``.
    lease: seconds for which a member has a record, unless it asks for more.
    max_in_flight: records that are handed out and not finished; with 1 the order is strict.
    max_attempts: hand-outs of one record, after which it is a dead letter; 0: no limit.
    backoff: seconds before the second hand-out, the third, and so on; the last one repeats.
    dead_letter: the topic of dead letters, ``auto`` for ``TOPIC.GROUP.dead``, empty for none.
    key_order: at most one lease at a time has records of a key.
    durability: the level of acks, empty for the topic's.
    """

    mode: str = MODES[0]
    lease: float = 30.0
    max_in_flight: int = 1_000
    max_attempts: int = 5
    backoff: tuple[float, ...] = (1.0, 5.0, 30.0)
    dead_letter: str = AUTO
    key_order: bool = False
    durability: str = ""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise error(
                "bad_setting", f"mode is {', '.join(MODES[:-1])} or {MODES[-1]}, not {shown(self.mode)}"
            )
        if self.durability not in ("", *DURABILITIES):
            raise error(
                "bad_setting", f"durability is {' or '.join(DURABILITIES)}, not {shown(self.durability)}"
            )
        _check_number("lease", self.lease, LEASE_S_MIN, LEASE_S_MAX)
        _check_number("max_in_flight", self.max_in_flight, 1, IN_FLIGHT_MAX, whole=True)
        _check_number("max_attempts", self.max_attempts, 0, ATTEMPTS_MAX, whole=True)
        if not isinstance(self.backoff, tuple) or not 1 <= len(self.backoff) <= BACKOFF_STEPS_MAX:
            raise error("bad_setting", f"backoff is a list of 1 to {BACKOFF_STEPS_MAX} spans")
        for delay in self.backoff:
            _check_number("backoff", delay, 0, LEASE_S_MAX)
        if not isinstance(self.key_order, bool):
            raise error("bad_setting", f"key_order is true or false, not {shown(self.key_order)}")
        if not isinstance(self.dead_letter, str):
            raise error("bad_setting", f"dead_letter is the name of a topic, not {shown(self.dead_letter)}")
        if self.dead_letter:
            check_topic(self.dead_letter)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> GroupSettings:
        """Return the settings of a map, with the defaults for the others. Raises ``bad_setting``."""
        return cls().changed(given)

    def changed(self, changes: Mapping[str, Any]) -> GroupSettings:
        """Return the settings with some of them changed. Raises ``bad_setting`` for an unknown name."""
        for name in changes:
            if name not in NAMES:
                near = nearest(str(name), NAMES)
                hint = f"did you mean {near}?" if near else f"one of {', '.join(NAMES)}"
                raise error("bad_setting", f"{shown(name)} is no setting of a group", hint)
        given = {**self._to_fields(), **changes}
        if isinstance(given["backoff"], list):
            given["backoff"] = tuple(given["backoff"])
        return GroupSettings(**given)

    def to_map(self) -> dict[str, Any]:
        """Return the settings as a plain map."""
        return {**self._to_fields(), "backoff": list(self.backoff)}

    def _to_fields(self) -> dict[str, Any]:
        """Return the values by their names, as `asdict` does ten times as slowly."""
        return {name: getattr(self, name) for name in NAMES}

    def dead_letter_topic(self, topic: str, group: str) -> str:
        """Return the name of the dead-letter topic, empty for none."""
        return f"{topic}.{group}.dead" if self.dead_letter == AUTO else self.dead_letter

    def delay(self, attempts: int) -> float:
        """Return the seconds before the next hand-out of a record that was handed out so often."""
        return self.backoff[min(max(attempts, 1), len(self.backoff)) - 1]


NAMES: tuple[str, ...] = tuple(field.name for field in fields(GroupSettings))


def check_group(name: str) -> str:
    """Return a group's name, or raise `RequestError` ``bad_group``. The rules are those of a topic's name."""
    if not isinstance(name, str):
        raise error("bad_group", f"the name of a group is text, not {name!r:.100}")
    check_size(name, "group's", GROUP_BYTES_MAX, "bad_group")
    try:
        check_topic(name)
    except QuothError as problem:
        raise error("bad_group", problem.text.replace("topic", "group")) from None
    return name


def decode_group(frame: bytes) -> str:
    """Read a group's name from a frame, or raise `RequestError` ``bad_group``."""
    if len(frame) > GROUP_BYTES_MAX:
        text = f"the group's name has {len(frame)} bytes: it must be 1 to {GROUP_BYTES_MAX} of UTF-8"
        raise error("bad_group", text)
    try:
        return check_group(frame.decode())
    except UnicodeDecodeError:
        raise error("bad_group", "the group's name is not UTF-8") from None


def as_sent(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the spans of given settings to seconds, as the wire has them.

    Raises `RequestError` ``bad_setting`` that names the setting.
    """
    sent = dict(given)
    if "lease" in sent:
        sent["lease"] = _seconds("lease", sent["lease"])
    if isinstance(sent.get("backoff"), (list, tuple)):
        sent["backoff"] = [_seconds("backoff", delay) for delay in sent["backoff"]]
    if "dead_letter" in sent and sent["dead_letter"] is None:
        sent["dead_letter"] = ""
    return sent


def _seconds(name: str, span: object) -> float:
    try:
        return parse_span(span)
    except QuothError as problem:
        raise error(problem.code, f"{name}: {problem.text}", problem.hint) from None


def _check_number(name: str, number: Any, low: float, high: float, *, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    if isinstance(number, bool) or not isinstance(number, kinds) or not low <= number <= high:
        raise error("bad_setting", f"{name} is a number from {low} to {high:.0f}, not {shown(number)}")
