"""The conditions of rules, as a table of records that match and that do not."""

from __future__ import annotations

import json

import msgpack
import pytest

from kit.rules import evaluation_of, record, rule_of, sent_to, view
from quoth import Message
from quothrules.failure import RuleFailure

ORDER = json.dumps({"id": 7, "total": 12.5, "items": ["a"], "open": False, "note": None, "tag": ""}).encode()

CASES: list[tuple[str, Message, bool]] = [
    ("", record(), True),
    ('topic = "orders.eu"', record(), True),
    ('topic = "orders.*"', record(), True),
    ('topic = ["a", "orders.?u"]', record(), True),
    ('topic = ["orders.*", "!*.eu"]', record(), False),
    ('topic = "order"', record(), False),
    ('key = "k"', record(key=b"k"), True),
    ('key = "k"', record(key=b"kk"), False),
    ('key = "k"', record(), False),
    ('key = ["j", "k"]', record(key=b"k"), True),
    ("key = true", record(key=b""), True),
    ("key = true", record(), False),
    ("key = false", record(), True),
    ("key = false", record(key=b""), False),
    ('key = { prefix = "c-" }', record(key=b"c-1"), True),
    ('key = { prefix = ["b-", "c-"] }', record(key=b"c-1"), True),
    ('key = { prefix = "c-", regex = "2$" }', record(key=b"c-1"), False),
    ('key = { regex = ["1$", "2$"] }', record(key=b"c-2"), True),
    ('key = { equals = "ü" }', record(key="ü".encode()), True),
    ("key = { present = false }", record(key=b"x"), False),
    ('headers = { region = "eu" }', record(headers={"region": b"eu"}), True),
    ('headers = { region = "eu" }', record(headers={"region": b"us"}), False),
    ('headers = { region = "eu", a = true }', record(headers={"region": b"eu"}), False),
    ("headers = { region = false }", record(), True),
    ('headers = { region = { regex = "(?i)^EU" } }', record(headers={"region": b"eu-west"}), True),
    ("size = { min = 5 }", record(b"12345"), True),
    ("size = { min = 6 }", record(b"12345"), False),
    ('size = { max = "5 bytes" }', record(b"12345"), True),
    ("size = { max = 4 }", record(b"12345"), False),
    ('prefix = "val"', record(), True),
    ('prefix = ["x", "val"]', record(), True),
    ('prefix = "alu"', record(), False),
    ('regex = "al+u"', record(), True),
    ('regex = "^al+u"', record(), False),
    ("regex = 'a\\udcff'", record(b"a\xff"), True),
    ('path = "id"', record(ORDER), True),
    ('path = "total > `12`"', record(ORDER), True),
    ('path = ["total > `12`", "id == `8`"]', record(ORDER), False),
    ('path = "open"', record(ORDER), False),
    ('path = "note"', record(ORDER), False),
    ('path = "tag"', record(ORDER), False),
    ('path = "items"', record(ORDER), True),
    ('path = "items[1:]"', record(ORDER), False),
    ('path = "nothing.there"', record(ORDER), False),
    ('path = "@"', record(b"0"), True),
    ('path = "@"', record(b"no JSON"), False),
    ('path = "@"', record(b"NaN"), False),
    ('path = "@"', record(b"\xff"), False),
    ('path = "@"', record(b"[" * 100_000), False),
    ('path = "@"', record(b""), False),
]


@pytest.mark.parametrize(("match", "message", "expected"), CASES)
def test_a_record_matches(match: str, message: Message, expected: bool) -> None:
    (rule,) = rule_of(f'to = "b"\n[rule.match]\n{match}').rules
    assert rule.condition(view(message)) is expected


@pytest.mark.parametrize(
    ("match", "age", "expected"),
    [
        ('age = { min = "1m" }', 60, True),
        ('age = { min = "1m" }', 59, False),
        ('age = { max = "1m" }', 60, True),
        ('age = { max = "1m" }', 61, False),
        ('age = { min = "1s", max = "1m" }', 2, True),
        ('age = { max = "0s" }', -5, True),  # a record of the future is new
    ],
)
def test_the_age_of_a_record(match: str, age: float, expected: bool) -> None:
    (rule,) = rule_of(f'to = "b"\n[rule.match]\n{match}').rules
    assert rule.condition(view(record(), age)) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (msgpack.packb({"id": 7}), True),
        (msgpack.packb({"id": 0}), True),
        (msgpack.packb({"id": None}), False),
        (msgpack.packb({1: 2}), False),
        (msgpack.packb({"id": 7}) + b"x", False),
        (b'{"id": 7}', False),
        (b"", False),
        (b"\xc1", False),
        (b"\x81\xa1\xff\x00", False),
        (b"\x91" * 100_000, False),
    ],
)
def test_paths_in_msgpack(value: bytes, expected: bool) -> None:
    (rule,) = rule_of('to = "b"\nformat = "msgpack"\n[rule.match]\npath = "id"').rules
    assert rule.condition(view(record(value))) is expected


def test_an_operation_that_a_type_does_not_have_fails() -> None:
    """The author of the rule has to know of it; `type` tells the types apart."""
    evaluation = evaluation_of('[[rule]]\nname = "long"\nto = "b"\nmatch.path = "length(@) > `2`"')
    with pytest.raises(RuleFailure, match="rule 'long': path 'length"):
        evaluation.evaluate(record(b"5"), 0)
    guarded = evaluation_of('[[rule]]\nto = "b"\nmatch.path = "type(@) == \'array\' && length(@) > `2`"')
    assert sent_to(guarded, record(b"5")) == []
    assert sent_to(guarded, record(b"[1, 2, 3]")) == ["b"]


def test_a_value_is_decoded_once_for_each_format() -> None:
    seen = view(record(ORDER))
    assert seen.document("json") is seen.document("json")
    assert seen.document("msgpack") is seen.document("msgpack")
