"""RULES.md agrees with the parser: its example works, its tables have every key and every limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kit.rules import POINTER, record
from quothrules.evaluation.evaluation import Evaluation
from quothrules.file import rule_file
from quothrules.file.rule_file import parse_rule_file
from quothrules.matching.conditions import CONTENT_TESTS
from quothrules.matching.template import FIELDS
from quothrules.routing.held_records import LEASE_S
from quothrules.routing.record_router import BACKOFF_S
from quothrules.routing.route_worker import ROW
from quothwire.text.toml_table import FILE_BYTES_MAX, TomlTable, parse_document

PAGE = (Path(__file__).parents[2] / "broker" / "quothrules" / "RULES.md").read_text("utf-8")
EXAMPLE = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_example_does_what_its_comments_say() -> None:
    rules = parse_rule_file(EXAMPLE, "orders.toml", "orders")
    evaluation = Evaluation(rules, {})
    for value, headers, topics in (
        (b'{"total": 1001}', {"region": b"eu"}, ["large-orders", "orders-eu"]),
        (b'{"total": 1001}', {}, ["large-orders", "orders-unknown"]),
        (b"a HeartBeat", {}, []),
        (b'{"total": 1000}', {}, ["other-orders"]),
    ):
        outcome = evaluation.evaluate(record(value, headers=headers), POINTER)
        assert [one.topic for one in outcome.outputs] == topics
    assert not rules.topics.matches("orders.test")


def keys_of(heading: str) -> set[str]:
    """The keys of the first table behind a text."""
    rows = PAGE[PAGE.index(heading) :].split("\n\n")
    table = next(part for part in rows if part.startswith("| key |"))
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def asked_of(text: str, path: tuple[str | int, ...]) -> set[str]:
    """The keys that the parser asks a table for."""
    made: list[TomlTable] = []
    inner = TomlTable._inner

    def noted(self: TomlTable, path: tuple[str | int, ...], values: dict[str, object]) -> TomlTable:
        made.append(inner(self, path, values))
        return made[-1]

    def parsed(text: str, origin: str) -> TomlTable:
        made.append(parse_document(text, origin))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TomlTable, "_inner", noted)
        patch.setattr(rule_file, "parse_document", parsed)
        parse_rule_file(text, "r.toml", "r")
    return {name for table in made if table.path == path for name in table.asked}


def test_the_tables_have_every_key() -> None:
    text = 'topics = "a"\n[[rule]]\nto = "b"\n[rule.match]\nkey = { prefix = "a" }'
    assert keys_of("## A rule file") == asked_of(text, ()) - {"rule"}
    assert keys_of("begins each rule") == asked_of(text, ("rule", 0))
    assert keys_of("### Conditions") == asked_of(text, ("rule", 0, "match"))
    content = asked_of(text, ("rule", 0, "match", "key"))
    assert content == {*CONTENT_TESTS, "regex", "present"}
    assert all(f"`{name}`" in PAGE for name in content)
    assert all(re.search(rf"`{{{name}[}}:\[]", PAGE) for name in FIELDS)


def test_the_defaults_and_limits_are_those_of_the_code() -> None:
    found = parse_rule_file('topics = "a"\n[[rule]]\nto = "b"', "r.toml", "r")
    defaults = dict(re.findall(r"^\| `(\w+)` \| `?\"?(\w+)\"?`? \|", PAGE, re.MULTILINE))
    assert defaults["deadline"] == f"{found.deadline:g}s"
    for name in ("attempts", "hops_max", "in_flight"):
        assert defaults[name] == str(getattr(found, name))
    assert f"between them {BACKOFF_S[0]:g} s, {BACKOFF_S[1]:g} s, then {BACKOFF_S[2]:g} s" in PAGE
    assert f"| {FILE_BYTES_MAX // 1024} Ki characters |" in PAGE
    assert f"| {rule_file.RULES_MAX:,} rules |" in PAGE
    assert f"| {ROW} records |" in PAGE
    assert f"| {LEASE_S:g} s |" in PAGE
    assert f"keys_max = {rule_file.DEDUPE_KEYS}" in PAGE
