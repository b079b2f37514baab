"""Settings of a topic: bounds, kinds, and names that are nearly right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest

from quothwire.errors import RequestError
from quothwire.protocol import msgpack_schema
from quothwire.protocol.messages import CreateTopic
from quothwire.settings import NAMES, SECONDS_MAX, SEGMENT_BYTES_MAX, TopicSettings

NAN, INFINITE = float("nan"), float("inf")
DEFAULTS = TopicSettings()

TAKEN: list[tuple[str, Any]] = [
    ("durability", "written"),
    ("durability", "synced"),
    ("max_age", 0),
    ("max_age", 0.001),
    ("max_age", 86_400),
    ("max_age", SECONDS_MAX),
    ("max_bytes", 0),
    ("max_bytes", 2**56),
    ("size_limit", 1),
    ("size_limit", SEGMENT_BYTES_MAX),
    ("count_limit", 0),
    ("count_limit", 2**40),
    ("age_limit", 0),
    ("age_limit", SECONDS_MAX),
]
NO_DURABILITY: tuple[Any, ...] = ("", "Written", "replicated", b"written", 0, None, True, [], {})
NO_NUMBER: tuple[Any, ...] = (
    -1, -0.5, 2**64, NAN, INFINITE, -INFINITE, True, False, "5", b"5", None, [], {}, [1],
)  # fmt: skip
NUMBERS = ("max_age", "max_bytes", "size_limit", "count_limit", "age_limit")
REFUSED: list[tuple[str, Any]] = [
    *(("durability", value) for value in NO_DURABILITY),
    *((name, value) for name in NUMBERS for value in NO_NUMBER),
    *((name, 1.0) for name in ("max_bytes", "size_limit", "count_limit")),
    ("max_age", SECONDS_MAX + 1),
    ("age_limit", SECONDS_MAX * 1.001),
    ("max_bytes", 2**56 + 1),
    ("size_limit", 0),
    ("size_limit", SEGMENT_BYTES_MAX + 1),
    ("count_limit", 2**40 + 1),
]
NEAR = {
    "max_ages": "max_age",
    "maxage": "max_age",
    "max_byte": "max_bytes",
    "sizelimit": "size_limit",
    "size-limit": "size_limit",
    "countlimit": "count_limit",
    "age_limits": "age_limit",
    "durabilty": "durability",
}


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_value_is_taken(name: str, value: Any) -> None:
    changed = DEFAULTS.changed({name: value})
    assert changed.to_map() == {**asdict(DEFAULTS), name: value}


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_value_is_refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        TopicSettings(**{name: value})
    assert refusal.value.code == "bad_setting"
    assert name in refusal.value.text
    with pytest.raises(RequestError, match="bad_setting"):
        DEFAULTS.changed({name: value})


@pytest.mark.parametrize(("name", "meant"), NEAR.items())
def test_unknown_name_suggests_the_near_one(name: str, meant: str) -> None:
    with pytest.raises(RequestError) as refusal:
        DEFAULTS.changed({name: 1})
    assert refusal.value.code == "bad_setting"
    assert refusal.value.hint == f"did you mean {meant}?"
    assert name in refusal.value.text


@pytest.mark.parametrize("name", ["", "colour", "é", b"max_age", None, 0, (), "x" * 1_000_000])
def test_name_that_is_near_to_none_lists_them_all(name: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        DEFAULTS.changed({name: 1})
    assert refusal.value.code == "bad_setting"
    if not isinstance(name, bytes):
        assert all(known in refusal.value.hint for known in NAMES)


def test_long_unknown_name_is_not_compared_at_length(peak_bytes: Callable[..., int]) -> None:
    assert peak_bytes(DEFAULTS.changed, {"max_age" * 10**5: 1}) < 4 * 2**20


def test_nothing_is_changed_by_a_refused_change() -> None:
    before = asdict(DEFAULTS)
    with pytest.raises(RequestError):
        DEFAULTS.changed({"max_bytes": 5, "max_age": NAN})
    assert asdict(DEFAULTS) == before
    with pytest.raises(FrozenInstanceError):
        DEFAULTS.max_bytes = 5  # type: ignore[misc]


def test_settings_survive_the_journey_in_a_request() -> None:
    settings = TopicSettings("synced", 3_600.5, 10**12, 2**30, 5, 60.0)
    packed = msgpack_schema.pack(CreateTopic(settings.to_map()))
    arrived = msgpack_schema.unpack(CreateTopic, packed, strict=True)
    assert DEFAULTS.changed(arrived.settings) == settings


def test_no_change_is_no_change() -> None:
    assert DEFAULTS.changed({}) == DEFAULTS
    assert set(DEFAULTS.to_map()) == set(NAMES)
