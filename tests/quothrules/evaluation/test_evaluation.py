"""The rules of a set applied to single records."""

from __future__ import annotations

import pytest

from kit.rules import POINTER, SECOND, evaluation_of, outputs_as_rows, record, rules_of, sent_to
from quoth import Message
from quothrules.evaluation.evaluation import Evaluation, hops_of
from quothrules.evaluation.outcome import Step
from quothrules.failure import RuleFailure

SHOP = """
[[rule]]
name = "tests"
drop = true
match.headers.test = true

[[rule]]
name = "audit"
to = "audit"
continue = true
match.key = true

[[rule]]
name = "mark"
set_headers = { region = "{headers[region]|none}", size = "small" }
remove_headers = ["secret"]
continue = true

[[rule]]
name = "region"
to = ["orders-{headers[region]}", "all", "all"]
match.prefix = "order"

[[rule]]
name = "late"
to = "rest"
delay = "1m"
match.prefix = "o"
"""


@pytest.mark.parametrize(
    ("message", "topics", "steps"),
    [
        (record(b"x", headers={"test": b""}), [], [("tests", "dropped")]),
        (record(b"x"), [], [("mark", "passed")]),
        (record(b"x", key=b"k"), ["audit"], [("audit", "routed"), ("mark", "passed")]),
        (record(b"order"), ["orders-none", "all"], [("mark", "passed"), ("region", "routed")]),
        (record(b"other"), ["rest"], [("mark", "passed"), ("late", "routed")]),
    ],
)
def test_first_match_wins_unless_it_continues(
    message: Message, topics: list[str], steps: list[tuple[str, str]]
) -> None:
    outcome = evaluation_of(SHOP).evaluate(message, POINTER)
    assert [one.topic for one in outcome.outputs] == topics
    assert outcome.steps == tuple(Step(*step) for step in steps)
    assert [one.delay_us for one in outcome.outputs] == [60 * SECOND if topics == ["rest"] else 0] * len(
        topics
    )


def test_headers_change_for_the_rule_and_those_behind_it() -> None:
    message = record(b"order", key=b"k", headers={"region": b"eu", "secret": b"s"})
    changed = {"region": b"eu", "size": b"small"}
    assert outputs_as_rows(evaluation_of(SHOP), message) == [
        ("audit", b"order", b"k", {"region": b"eu", "secret": b"s"}),
        ("orders-eu", b"order", b"k", changed),
        ("all", b"order", b"k", changed),
    ]


def test_what_is_written_says_where_it_comes_from() -> None:
    (output,) = evaluation_of('[[rule]]\nto = "b"').evaluate(record(headers={"a": b"1"}), POINTER).outputs
    source = f"orders.eu:{POINTER}".encode()
    assert output.headers == {"a": b"1", "quoth-hops": b"1", "quoth-source": source}


@pytest.mark.parametrize(
    ("hops", "known", "refused"),
    [
        (b"0", 0, False),
        (b"7", 7, False),
        (b"8", 8, True),
        (b"99", 99, True),
        (b"x", 0, False),
        (b"", 0, False),
    ],
)
def test_a_record_is_routed_at_most_so_often(hops: bytes, known: int, refused: bool) -> None:
    message = record(headers={"quoth-hops": hops})
    outcome = evaluation_of('[[rule]]\nto = "b"').evaluate(message, POINTER)
    assert hops_of(message) == known
    assert outcome.refused is refused
    assert [one.headers["quoth-hops"] for one in outcome.outputs] == (
        [] if refused else [b"%d" % (known + 1)]
    )
    assert not evaluation_of("[[rule]]\ndrop = true").evaluate(message, POINTER).refused, "it is not written"


@pytest.mark.parametrize(
    ("rule", "message", "reason"),
    [
        ('to = "a-{headers[x]}"', record(), "the record has no headers[x]"),
        ('to = "a-{key}"', record(key=b"\xff"), "no topic's name"),
        ('to = "a-{key}"', record(key=b"b/c"), "is not a topic's name"),
        ('to = "{key}"', record(key=b"quoth.rules"), "belongs to the system"),
        ('to = "b"\nset_headers.x = "{key}"', record(), "the record has no key"),
        ('to = "b"\nset_headers.x = "{key}"', record(key=bytes(70_000)), "headers of"),
        ('to = "b"\nmatch.path = "abs(@)"', record(b'"x"'), "path 'abs(@)'"),
        ('call = "split"', record(b"raise"), "split raised ValueError: no"),
        ('call = "split"', record(b"rows"), "it returns tuples of a topic and a record"),
        ('call = "split"', record(b"text"), "it returns tuples of a topic and a record"),
        ('call = "split"', record(b"none"), "split raised TypeError"),
        ('call = "split"', record(b"topic"), "belongs to the system"),
        ('call = "split"', record(b"headers"), "header"),
        (
            'to = "b"\nformat = "msgpack"\nset_headers.x = "{path[@]}"',
            record(b"\x81\xc4\x01a\x01"),
            "TypeError: ",
        ),
    ],
)
def test_a_rule_that_fails_says_why(rule: str, message: Message, reason: str) -> None:
    evaluation = evaluation_of(f'[[rule]]\nname = "first"\n{rule}', split=split)
    with pytest.raises(RuleFailure) as raised:
        evaluation.evaluate(message, POINTER)
    assert raised.value.rule == "first"
    assert reason in str(raised.value)


def split(message: Message) -> list[tuple[str, Message]]:
    """Return a record for each word of a record, or something wrong."""
    match message.value:
        case b"raise":
            raise ValueError("no")
        case b"rows":
            return [("a", b"row")]  # type: ignore[list-item]
        case b"text":
            return "ab"  # type: ignore[return-value]
        case b"none":
            return None  # type: ignore[return-value]
        case b"topic":
            return [("quoth.rules", message)]
        case b"headers":
            return [("b", message._replace(headers={"a": "x"}))]  # type: ignore[dict-item]
    return [(f"word-{len(word)}", message._replace(value=word)) for word in message.value.split()]


def test_a_function_returns_what_is_written() -> None:
    """The function sees the headers as rules have changed them."""
    evaluation = evaluation_of('[[rule]]\ncall = "split"\nset_headers.a = "1"', split=split)
    assert outputs_as_rows(evaluation, record(b"ab c", key=b"k")) == [
        ("word-2", b"ab", b"k", {"a": b"1"}),
        ("word-1", b"c", b"k", {"a": b"1"}),
    ]


def test_a_sample_takes_a_share_and_always_the_same() -> None:
    """Others go on to the next rules."""
    text = '[[rule]]\nto = "a"\nsample = "10%"\n[[rule]]\nto = "b"'
    messages = [record(pointer=POINTER + number) for number in range(3_000)]
    evaluation, another = evaluation_of(text), evaluation_of(text)
    first = [sent_to(evaluation, one) for one in messages]
    assert first == [sent_to(another, one) for one in messages]
    assert 230 < first.count(["a"]) < 370
    assert first.count(["a"]) + first.count(["b"]) == 3_000
    nothing, everything = (evaluation_of(f'[[rule]]\nto = "a"\nsample = {share}') for share in (0, 1))
    assert not any(sent_to(nothing, one) for one in messages)
    assert all(sent_to(everything, one) for one in messages)


def test_a_sample_by_key_takes_all_records_of_a_key() -> None:
    """Records without a key are taken each by itself."""
    evaluation = evaluation_of('[[rule]]\nto = "a"\nsample = { share = 0.5, by = "{key}" }')
    taken = {
        (key, bool(sent_to(evaluation, record(pointer=POINTER + number, key=b"%d" % key))))
        for key in range(100)
        for number in range(5)
    }
    assert len(taken) == 100
    assert 25 < sum(is_taken for _, is_taken in taken) < 75
    without = [bool(sent_to(evaluation, record(pointer=POINTER + number))) for number in range(100)]
    assert 25 < sum(without) < 75


def test_rules_sample_independently_of_each_other() -> None:
    evaluation = evaluation_of(
        '[[rule]]\nto = "a"\nsample = 0.5\ncontinue = true\n[[rule]]\nto = "b"\nsample = 0.5'
    )
    found = [tuple(sent_to(evaluation, record(pointer=POINTER + number))) for number in range(1_000)]
    assert all(150 < found.count(one) < 350 for one in [(), ("a",), ("b",), ("a", "b")])


DEDUPE = (
    '[[rule]]\nname = "once"\nto = "b"\ndedupe = { span = "10s", by = "{headers[id]}" }\ncontinue = true\n'
)


def fates(evaluation: Evaluation, *messages: Message) -> list[str]:
    return [evaluation.evaluate(one, POINTER).steps[0].fate for one in messages]


def at(second: float, name: bytes = b"1", topic: str = "orders") -> Message:
    return record(pointer=POINTER + round(second * SECOND), headers={"id": name}, topic=topic)


def test_duplicates_within_the_span_are_dropped() -> None:
    """A duplicate begins the span anew. A record without the field of the key is none. Topics are apart."""
    evaluation = evaluation_of(DEDUPE + '[[rule]]\nto = "c"')
    rows = [at(0), at(1, b"2"), at(9), at(10, topic="other"), at(19), at(29.1), record(), record()]
    found = [[one.topic for one in evaluation.evaluate(row, POINTER).outputs] for row in rows]
    both: list[str] = ["b", "c"]
    assert found == [both, both, [], both, [], both, both, both]
    assert fates(evaluation_of(DEDUPE), at(0), at(10)) == ["routed", "duplicate"]


def test_a_record_that_fails_was_not_seen() -> None:
    """A record that comes again is no duplicate of itself."""
    evaluation = evaluation_of(DEDUPE + '[[rule]]\nto = "c-{key}"')
    for _ in range(2):
        with pytest.raises(RuleFailure):
            evaluation.evaluate(at(0), POINTER)
    assert fates(evaluation, at(0)._replace(key=b"k")) == ["routed"]
    assert fates(evaluation, at(0)._replace(key=b"k")) == ["routed"], "it is older than nothing"


def test_a_filter_of_duplicates_for_all_rules() -> None:
    evaluation = evaluation_of('[[rule]]\ndedupe = "1m"\ncontinue = true\n[[rule]]\nto = "b"')
    messages = [record(pointer=POINTER + number, key=b"%d" % (number % 3)) for number in range(6)]
    assert [sent_to(evaluation, one) for one in messages] == [["b"]] * 3 + [[]] * 3


def test_learning_leads_to_the_same_as_evaluating() -> None:
    """Learning calls no function and writes nothing."""

    def never(_: Message) -> list[tuple[str, Message]]:
        raise AssertionError

    text = DEDUPE + '[[rule]]\ncall = "never"'
    evaluation = Evaluation(rules_of(text), {"never": lambda _: []})
    learned = Evaluation(rules_of(text), {"never": never})
    messages = [at(number, b"%d" % (number % 7)) for number in range(50)]
    for one in messages[:40]:
        evaluation.evaluate(one, POINTER)
    for one in messages[30:40]:
        learned.learn(one, POINTER)
    learned._functions = {"never": lambda _: []}
    assert fates(learned, *messages[40:]) == fates(evaluation, *messages[40:])
    learned.forget("orders")
    assert fates(learned, at(51, b"0")) == ["routed"]
