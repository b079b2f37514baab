"""Parses the table ``[rule.match]`` of a rule file to a condition."""

from __future__ import annotations

import math
from collections.abc import Iterator

from quothrules.matching import conditions
from quothrules.matching.conditions import CONTENT_TESTS, Condition, ContentTest
from quothrules.matching.expression import Expression
from quothrules.matching.topic_patterns import TopicPatterns
from quothwire.text.quantity import parse_size, parse_span
from quothwire.text.toml_table import TomlTable


def condition_of(match: TomlTable, form: str) -> Condition:
    """Return the condition that a record matches the table; with an empty table every record does.

    form: the format of values, for paths. Raises ``bad_setting`` with the line.
    """
    found = conditions.all_of(list(_conditions(match, form)))
    match.finish()
    return found


def patterns_of(table: TomlTable, name: str) -> TopicPatterns:
    """Take patterns of topics. Raises ``bad_setting`` with the line of the one that is wrong."""
    table.each(name, lambda word: TopicPatterns([word.removeprefix("!")]))
    return table.required(name, lambda _: TopicPatterns(table.texts(name)))


def _conditions(match: TomlTable, form: str) -> Iterator[Condition]:
    """Yield the conditions of a table, the quickest ones first."""
    if match.has("topic"):
        yield conditions.topic_matches(patterns_of(match, "topic"))
    if match.has("size"):
        yield _size(match)
    if match.has("age"):
        yield _age(match)
    if match.has("key"):
        yield conditions.key_passes(_content_test(match, "key"))
    headers = match.table("headers")
    for name in headers.values:
        yield conditions.header_passes(name, _content_test(headers, name))
    for name in ("prefix", "regex"):
        if match.has(name):
            yield conditions.value_passes(_named_test(match, name))
    for expression in match.each("path", lambda text: Expression(text, form)):
        yield conditions.path_holds(expression)


def _size(match: TomlTable) -> Condition:
    bounds = match.table("size")
    low, high = (bounds.convert(name, parse_size, value) for name, value in (("min", 0), ("max", -1)))
    bounds.finish()
    return conditions.size_within(low, math.inf if high < 0 else high)


def _age(match: TomlTable) -> Condition:
    bounds = match.table("age")
    low = bounds.convert("min", lambda value: parse_span(value, infinity=None), 0.0)
    high = bounds.convert("max", parse_span, math.inf)
    bounds.finish()
    return conditions.age_within(low, high)


def _content_test(table: TomlTable, name: str) -> ContentTest:
    """Parse the test of a key or a header: a text, a list of texts, true or false, or a table of tests."""
    value = table.values[name]
    table.asked[name] = None
    if isinstance(value, bool):
        return conditions.is_present(value)
    if not isinstance(value, dict):
        return conditions.is_one_of(table.texts(name))
    inner = table.table(name)
    tests = [_named_test(inner, one) for one in (*CONTENT_TESTS, "regex") if inner.has(one)]
    if inner.has("present"):
        tests.append(conditions.is_present(inner.flag("present")))
    inner.finish()
    if not tests:
        raise table.wrong(name, f"{name} has an empty table", f"one of {', '.join(inner.asked)}")
    return conditions.every(tests)


def _named_test(table: TomlTable, name: str) -> ContentTest:
    """Parse a test that takes one text or a list of them, any of which may hold."""
    if name == "regex":
        return conditions.any_of(table.each(name, conditions.searches))
    return CONTENT_TESTS[name](table.texts(name))
