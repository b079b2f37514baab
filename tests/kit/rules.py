"""Rule sets and records of the tests of rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quoth import Client, Message
from quoth.rules.rule_change import REMOVE, RuleChange
from quothrules.evaluation.evaluation import Evaluation
from quothrules.evaluation.functions import RuleFunction
from quothrules.file.rule_file import parse_rule_file
from quothrules.matching.record_view import RecordView
from quothrules.matching.topic_patterns import RULES_TOPIC
from quothrules.rule import RuleSet

POINTER = 1_767_323_045_000_001
"""The second of January 2026, 03:04:05 UTC, and a microsecond."""
SECOND = 1_000_000
CATASTROPHE = b"a" * 60 + b"!"
"""A value in which a search for `^(a+)+$` takes longer than the age of the universe."""
UNHURRIED_S = 60.0
"""A deadline of rules that a busy machine keeps."""


def record(
    value: bytes = b"value",
    pointer: int = POINTER,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
    topic: str = "orders.eu",
) -> Message:
    return Message(topic, pointer, value, key, headers or {})


def view(message: Message, age: float = 0.0) -> RecordView:
    return RecordView(message, message.pointer + round(age * SECOND))


def rules_of(text: str, topics: str = 'topics = ["*"]') -> RuleSet:
    """Parse rules behind the line of their topics. They have much time unless they name a deadline."""
    rules = parse_rule_file(f"{topics}\n{text}", "rules.toml", "test")
    return rules if "deadline" in text else replace(rules, deadline=UNHURRIED_S)


def rule_of(lines: str) -> RuleSet:
    """Parse one rule."""
    return rules_of(f"[[rule]]\n{lines}")


def evaluation_of(text: str, **functions: RuleFunction) -> Evaluation:
    return Evaluation(rules_of(text), functions)


def sent_to(evaluation: Evaluation, message: Message, age: float = 0.0) -> list[str]:
    """Return the topics to which a record goes."""
    outcome = evaluation.evaluate(message, message.pointer + round(age * SECOND))
    return [one.topic for one in outcome.outputs]


def outputs_as_rows(evaluation: Evaluation, message: Message) -> list[tuple[Any, ...]]:
    """Return what a record becomes, without the headers that routing adds."""
    return [
        (one.topic, one.value, one.key, {k: v for k, v in one.headers.items() if not k.startswith("quoth-")})
        for one in evaluation.evaluate(message, message.pointer).outputs
    ]


def add_rules(client: Client, name: str, text: str, begin: int | None = None) -> int:
    """Write a change of a rule set as the command does; returns its pointer."""
    change = RuleChange(name, text, begin=begin)
    return client.publish(RULES_TOPIC, text.encode(), key=name.encode(), headers=change.headers).first


def remove_rules(client: Client, name: str) -> None:
    change = RuleChange(name, "", REMOVE)
    client.publish(RULES_TOPIC, b"", key=name.encode(), headers=change.headers)
