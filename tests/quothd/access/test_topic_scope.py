"""Sets of topics by names and prefixes, compared with a plain check of each name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.broker.peers import refused
from quothd.access.topic_scope import EVERYTHING, TopicScope, check_pattern
from quothwire.protocol import announcement

NAMES = st.text("ab.é", min_size=1, max_size=4)
PATTERNS = st.one_of(NAMES, st.text("ab.é", max_size=3).map("{}*".format))
SCOPES = st.lists(PATTERNS, max_size=6)


def plainly_in(patterns: list[str], topic: str) -> bool:
    """The meaning of patterns, as the document of the clients file has it."""
    return any(
        topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern for pattern in patterns
    )


@given(SCOPES, NAMES)
def test_a_topic_is_in_a_scope_if_a_pattern_is_its_name_or_a_prefix_of_it(
    patterns: list[str], topic: str
) -> None:
    assert (topic in TopicScope(patterns)) == plainly_in(patterns, topic)
    assert bool(TopicScope(patterns)) == bool(patterns)


@given(SCOPES, st.lists(NAMES, unique=True), st.one_of(st.just(""), NAMES))
def test_rows_are_the_names_in_a_scope_in_order(patterns: list[str], names: list[str], after: str) -> None:
    raw = sorted(name.encode() for name in names)
    found = [
        raw[row] for start, end in TopicScope(patterns).rows(raw, after.encode()) for row in range(start, end)
    ]
    expected = [name for name in raw if plainly_in(patterns, name.decode()) and name > after.encode()]
    assert found == expected


@given(SCOPES, st.lists(NAMES, max_size=8), st.one_of(st.binary(max_size=4), NAMES.map(str.encode)))
def test_an_announcement_passes_exactly_if_its_topic_is_in_the_scope_and_it_has_the_prefix(
    patterns: list[str], topics: list[str], requested: bytes
) -> None:
    check_announcements(patterns, topics, requested)


@given(SCOPES, NAMES, st.integers(0, 2**56 - 1), st.integers(0, 20))
def test_a_subscription_may_reach_into_the_pointer(
    patterns: list[str], topic: str, pointer: int, length: int
) -> None:
    check_announcements(patterns, [topic], announcement.encode(topic, pointer)[:length])


def check_announcements(patterns: list[str], topics: list[str], requested: bytes) -> None:
    """Check that the subscriptions are exact, and that there are as few as possible."""
    subscriptions = TopicScope(patterns).beginnings(requested)
    for topic in topics:
        for pointer in (0, 7, 2**56 - 1):
            frame = announcement.encode(topic, pointer)
            passes = any(frame.startswith(one) for one in subscriptions)
            assert passes == (frame.startswith(requested) and plainly_in(patterns, topic))
    assert all(one.startswith(requested) for one in subscriptions)
    assert not any(
        one.startswith(other) for one in subscriptions for other in subscriptions if one is not other
    )


def test_only_a_star_alone_is_everything() -> None:
    assert EVERYTHING.is_everything
    assert TopicScope(["a*", "*", "b"]).is_everything
    assert not TopicScope(["a*", "b"]).is_everything
    assert not TopicScope().is_everything


@pytest.mark.parametrize("pattern", ["orders", "orders.*", "*", ".*", "..*", "größe*"])
def test_names_and_prefixes_are_patterns(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize(
    "pattern", ["a*b", "**", "*a", "a/b", "a/*", "..", ".", "", "a\nb", "x" * 201, "x" * 201 + "*"]
)
def test_a_pattern_that_no_topic_can_match_is_refused(pattern: str) -> None:
    with refused("bad_topic"):
        check_pattern(pattern)
