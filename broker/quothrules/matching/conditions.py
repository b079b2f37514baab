"""Conditions on records: closures that a rule file's tables are parsed to."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from quothrules.matching.expression import Expression
from quothrules.matching.record_view import RecordView, text_of
from quothrules.matching.topic_patterns import TopicPatterns
from quothwire.errors import error, quoted

Condition = Callable[[RecordView], bool]
ContentTest = Callable[[bytes | None], bool]
"""A test of a key, a header or a value; None stands for one that a record does not have."""


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return the condition that all of them hold; without any, it always holds."""
    if len(conditions) == 1:
        return conditions[0]
    return lambda view: all(condition(view) for condition in conditions)


def topic_matches(patterns: TopicPatterns) -> Condition:
    """Test the topic."""
    return lambda view: patterns.matches(view.message.topic)


def key_passes(test: ContentTest) -> Condition:
    """Test the key."""
    return lambda view: test(view.message.key)


def header_passes(name: str, test: ContentTest) -> Condition:
    """Test a header."""
    return lambda view: test(view.headers.get(name))


def value_passes(test: ContentTest) -> Condition:
    """Test the value."""
    return lambda view: test(view.message.value)


def size_within(low: int, high: float) -> Condition:
    """Test the bytes of the value."""
    return lambda view: low <= len(view.message.value) <= high


def age_within(low_s: float, high_s: float) -> Condition:
    """Test the time since the record was stored."""
    return lambda view: low_s * 1e6 <= view.age_us <= high_s * 1e6


def path_holds(expression: Expression) -> Condition:
    """Test a path in the value."""
    return expression.is_true


def every(tests: Sequence[ContentTest]) -> ContentTest:
    """Return the test that all of them pass."""
    if len(tests) == 1:
        return tests[0]
    return lambda content: all(test(content) for test in tests)


def is_present(expected: bool) -> ContentTest:
    """Test for something, or for nothing."""
    return lambda content: (content is not None) == expected


def is_one_of(texts: Collection[str]) -> ContentTest:
    """Test for equality with one of some texts."""
    contents = frozenset(text.encode() for text in texts)
    return lambda content: content in contents


def begins_with(texts: Collection[str]) -> ContentTest:
    """Test for one of some prefixes."""
    prefixes = tuple(text.encode() for text in texts)
    return lambda content: content is not None and content.startswith(prefixes)


def searches(pattern: str) -> ContentTest:
    """Test for a regular expression of Python that matches somewhere. Raises ``bad_setting``."""
    try:
        search = re.compile(pattern).search
    except (re.error, RecursionError, OverflowError, ValueError) as problem:
        raise error("bad_setting", f"{quoted(pattern)} is no regular expression: {problem}") from None
    return lambda content: content is not None and search(text_of(content)) is not None


def any_of(tests: Sequence[ContentTest]) -> ContentTest:
    """Return the test that one of them passes."""
    if len(tests) == 1:
        return tests[0]
    return lambda content: any(test(content) for test in tests)


CONTENT_TESTS: Mapping[str, Callable[[Collection[str]], ContentTest]] = {
    "equals": is_one_of,
    "prefix": begins_with,
}
"""The tests of contents that take some texts, of which one has to hold."""
