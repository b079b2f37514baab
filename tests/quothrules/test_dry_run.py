"""Dry runs: counts and examples of what rules would do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.rules import CATASTROPHE, POINTER, record, rules_of
from quoth import Message
from quothrules.dry_run import EXAMPLES, dry_run

RULES = """
deadline = "2s"
hops_max = 1
[[rule]]
name = "copy"
to = ["{topic}-copy", "all"]
match.prefix = "copy"
[[rule]]
name = "drop"
drop = true
match.prefix = "drop"
[[rule]]
name = "once"
to = "once-{path[id]}"
dedupe = "1h"
match.key = true
[[rule]]
name = "slow"
to = "b"
match.regex = "^(a+)+$"
"""


def messages(topic: str) -> Iterator[Message]:
    values = [b"copy"] * 300 + [b"drop"] * 2 + [b"other", CATASTROPHE if topic == "a" else b"other", b"copy"]
    for number, value in enumerate(values):
        yield record(value, POINTER + number, topic=topic)
    later = POINTER + 1_000
    for number, (key, value) in enumerate([(b"1", b'{"id": 1}'), (b"1", b'{"id": 2}'), (b"2", b"no JSON")]):
        yield record(value, later + number, key, topic=topic)
    yield record(b"copy", later + 10, headers={"quoth-hops": b"1"}, topic=topic)


@pytest.mark.usefixtures("unhurried")
def test_counts_and_examples() -> None:
    found = dry_run(rules_of(RULES), [messages("a"), messages("b")], lambda: POINTER)
    assert found.records == 2 * 309
    assert found.fates == {
        ("copy", "routed"): 2 * 302,
        ("drop", "dropped"): 2 * 2,
        ("", "unmatched"): 3,
        ("slow", "failed"): 1,
        ("once", "routed"): 2,
        ("once", "duplicate"): 2,
        ("once", "failed"): 2,
        ("", "refused"): 2,
    }
    assert found.topics == {"a-copy": 301, "b-copy": 301, "all": 602, "once-1": 2}
    assert all(len(examples) <= EXAMPLES for examples in found.examples.values())
    copied = found.examples["copy", "routed"][0]
    assert copied.message.pointer == POINTER
    assert [one.topic for one in copied.outputs] == ["a-copy", "all"]
    assert "took longer" in found.examples["slow", "failed"][0].problem
    assert "no path[id]" in found.examples["once", "failed"][0].problem
    assert found.examples["", "refused"][0].outputs == ()


def test_duplicates_of_earlier_records_are_found() -> None:
    def history(topic: str, begin: int, end: int) -> Iterator[Message]:
        assert (topic, end) == ("a", POINTER + 1_000)
        yield record(b"{}", end - 5, b"1", topic=topic)

    rules = rules_of('[[rule]]\nname = "once"\nto = "b"\ndedupe = "1h"')
    found = dry_run(rules, [(one for one in messages("a") if one.key)], lambda: POINTER, history)
    assert found.fates == {("once", "duplicate"): 2, ("once", "routed"): 1}
