"""Settings of a topic: bounds, types, and names that are nearly right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest

from kit.text.wording import code_of, error_of
from quothwire.settings import NAMES, SECONDS_MAX, SEGMENT_BYTES_MAX, TopicSettings

NAN, INFINITE = float("nan"), float("inf")
DEFAULTS = TopicSettings()

VALID: dict[str, tuple[Any, ...]] = {
    "durability": ("written", "synced"),
    "max_age": (0, 0.001, 86_400, SECONDS_MAX),
    "max_bytes": (0, 2**56),
    "size_limit": (1, SEGMENT_BYTES_MAX),
    "count_limit": (0, 2**40),
    "age_limit": (0, SECONDS_MAX),
    "retention": ("limits", "until_acked"),
}
NO_NUMBERS: tuple[Any, ...] = (
    -1, -0.5, 2**64, NAN, INFINITE, -INFINITE, True, False, "5", b"5", None, [], {}, [1],
)  # fmt: skip
INVALID: dict[str, tuple[Any, ...]] = {
    "durability": ("", "Written", "replicated", b"written", 0, None, True, [], {}),
    "max_age": (*NO_NUMBERS, SECONDS_MAX + 1),
    "max_bytes": (*NO_NUMBERS, 1.0, 2**56 + 1),
    "size_limit": (*NO_NUMBERS, 1.0, 0, SEGMENT_BYTES_MAX + 1),
    "count_limit": (*NO_NUMBERS, 1.0, 2**40 + 1),
    "age_limit": (*NO_NUMBERS, SECONDS_MAX * 1.001),
    "retention": ("", "forever", b"limits", 0, None, True, [], {}),
}
SIMILAR = {
    "max_ages": "max_age",
    "maxage": "max_age",
    "max_byte": "max_bytes",
    "sizelimit": "size_limit",
    "size-limit": "size_limit",
    "countlimit": "count_limit",
    "age_limits": "age_limit",
    "durabilty": "durability",
    "retentions": "retention",
}


@pytest.mark.parametrize("name", NAMES)
def test_value_within_the_bounds_is_accepted_and_any_other_one_refused(name: str) -> None:
    for value in VALID[name]:
        assert DEFAULTS.changed({name: value}).to_map() == {**asdict(DEFAULTS), name: value}
    for value in INVALID[name]:
        problem = error_of(DEFAULTS.changed, {name: value})
        assert problem.code == "bad_setting", value
        assert name in problem.text


def test_unknown_name_suggests_a_similar_one_or_lists_all_names() -> None:
    for name, meant in SIMILAR.items():
        problem = error_of(DEFAULTS.changed, {name: 1})
        assert (problem.code, problem.hint) == ("bad_setting", f"did you mean {meant}?")
        assert name in problem.text
    others: tuple[Any, ...] = ("", "colour", "é", None, 0, (), "x" * 1_000_000)
    for other in others:
        problem = error_of(DEFAULTS.changed, {other: 1})
        assert problem.code == "bad_setting"
        assert all(known in problem.hint for known in NAMES)


def test_comparison_of_a_long_name_takes_little_memory(peak_bytes: Callable[..., int]) -> None:
    assert peak_bytes(DEFAULTS.changed, {"max_age" * 10**5: 1}) < 4 * 2**20


def test_refused_change_changes_nothing() -> None:
    before = asdict(DEFAULTS)
    assert code_of(DEFAULTS.changed, {"max_bytes": 5, "max_age": NAN}) == "bad_setting"
    assert asdict(DEFAULTS) == before
    with pytest.raises(FrozenInstanceError):
        DEFAULTS.max_bytes = 5  # type: ignore[misc]
    assert DEFAULTS.changed({}) == DEFAULTS
