"""Rule files: what they say, and the line of what is wrong in them."""

from __future__ import annotations

import pytest

from kit.rules import rule_of, rules_of
from quothrules.file.rule_file import parse_rule_file
from quothwire.errors import RequestError
from quothwire.text.toml_table import FILE_BYTES_MAX

WHOLE = """\
name = "orders"
topics = ["orders.*", "!orders.test"]
deadline = "500ms"
attempts = 5
hops_max = 3
in_flight = 1

[[rule]]
name = "large"
to = ["large", "orders-{headers[region]|none}"]
continue = true
set_headers = { size = "large", day = "{time:%Y-%m-%d}" }
remove_headers = "secret"
delay = "1m30s"
[rule.match]
topic = "orders.*"
key = { prefix = ["a", "b"], regex = "c$", present = true }
headers = { region = ["eu", "us"], trace = true, test = false }
size = { min = "1KiB", max = "1MiB" }
age = { max = "1d" }
prefix = "{"
regex = "total"
path = ["total > `10`", "items[0]"]

[[rule]]
call = "split"
format = "msgpack"
sample = { share = "12.5%", by = "{key}" }
dedupe = { span = "10m", by = "{path[id]}", keys_max = 10 }

[[rule]]
drop = true
sample = 0.5
dedupe = "1h"
"""


def test_a_whole_file() -> None:
    found = parse_rule_file(WHOLE, "orders.toml")
    assert (found.name, found.text) == ("orders", WHOLE)
    assert found.delays == (0, 90_000_000)
    assert [found.group(1, delay) for delay in found.delays] == ["rules.orders", "rules.orders@1m30s"]
    assert [found.group(2, delay) for delay in found.delays] == ["rules.orders~2", "rules.orders~2@1m30s"]
    assert (found.deadline, found.attempts, found.hops_max, found.in_flight) == (0.5, 5, 3, 1)
    assert [found.topics.matches(name) for name in ("orders.eu", "orders.test", "x")] == [True, False, False]
    assert found.functions == {"split"}
    assert found.dedupe_us == 3_600_000_000
    large, split, rest = found.rules
    assert (large.name, split.name, rest.name) == ("large", "rule-2", "rule-3")
    assert [one.text for one in large.to] == ["large", "orders-{headers[region]|none}"]
    assert [*large.set_headers] == ["size", "day"]
    assert (large.remove_headers, large.delay_us, large.goes_on) == (("secret",), 90_000_000, True)
    assert split.sample is not None
    assert split.sample.share == 0.125
    assert split.dedupe is not None
    assert (split.dedupe.span_us, split.dedupe.keys_max) == (600_000_000, 10)
    assert rest.drops
    assert rest.sample is not None
    assert (rest.sample.share, rest.sample.by) == (0.5, None)


def test_defaults() -> None:
    found = parse_rule_file('topics = "a"\n[[rule]]\nto = "b"', "b.toml", "b")
    assert (found.name, found.deadline, found.attempts, found.hops_max, found.in_flight) == (
        "b",
        1.0,
        3,
        8,
        64,
    )
    (rule,) = found.rules
    assert (rule.name, rule.goes_on, rule.drops, rule.delay_us, rule.call) == ("rule-1", False, False, 0, "")
    assert (rule.sample, rule.dedupe, found.dedupe_us) == (None, None, 0)


WRONG_RULES = [
    ("", 2, "has no effect"),
    ("continue = true", 2, "has no effect"),
    ('to = "b"\ndrop = true', 4, "to or drop"),
    ('call = "f"\nto = "b"', 3, "to or call"),
    ("drop = true\ncontinue = true", 4, "does not go on"),
    ('to = "b"\nto_all = 1', 4, "did you mean to?"),
    ("to = 1", 3, "to is a text or a list of texts, not 1"),
    ("to = []", 3, "empty list"),
    ('to = [\n"a",\n"b/c"]', 5, "is not a topic's name"),
    ('to = "quoth.rules"', 3, "belongs to the system"),
    ('to = "a-{header[x]}"', 3, "did you mean headers?"),
    ('to = "a-{"', 3, "a single {"),
    ('to = "a-{headers}"', 3, "brackets"),
    ('to = "a-{key:x}"', 3, "only a time has a format"),
    ('to = "a-{path[a..b]}"', 3, "no JMESPath"),
    ('to = "b"\nformat = "yaml"', 4, "json or msgpack"),
    ('to = "b"\ncontinue = 1', 4, "true or false"),
    ('to = "b"\ndelay = "8d"', 4, "delay is a span"),
    ('to = "b"\ndelay = "soon"', 4, "is not a span of time"),
    ('drop = true\ndelay = "1s"', 4, "delay has no effect"),
    ('drop = true\nset_headers = { a = "b" }', 4, "set_headers has no effect"),
    ('to = "b"\nset_headers = { a = 1 }', 4, "a header is a text"),
    ('to = "b"\n[rule.set_headers]\na = "x"\n"quoth-hops" = "1"', 6, "no header that rules may set"),
    ('to = "b"\nsample = 2', 4, "a share is 0 to 1"),
    ('to = "b"\nsample = "x%"', 4, "a share is 0 to 1"),
    ('to = "b"\nsample = { shares = 1 }', 4, "'share' is missing"),
    ('to = "b"\nsample = { share = 1, b = "" }', 4, "no key 'b'"),
    ('to = "b"\ndedupe = 0', 4, "at most 7 days"),
    ('to = "b"\ndedupe = "8d"', 4, "at most 7 days"),
    ('to = "b"\ndedupe = { by = "{key}" }', 4, "'span' is missing"),
    ('to = "b"\ndedupe = { span = "1s", by = "{keys}" }', 4, "did you mean key?"),
    ('to = "b"\nmatch = 1', 4, "match is a table"),
    ('to = "b"\n[rule.match]\ntopic = ["a", "b/"]', 5, "is not a topic's name"),
    ('to = "b"\n[rule.match]\ntopic = "!a"', 5, "no topic is named"),
    ('to = "b"\n[rule.match]\nregexp = "a"', 5, "did you mean regex?"),
    ('to = "b"\n[rule.match]\nregex = ["a",\n"("]', 6, "no regular expression"),
    ('to = "b"\n[rule.match]\nkey = 1', 5, "key is a text"),
    ('to = "b"\n[rule.match]\nkey = {}', 5, "empty table"),
    ('to = "b"\n[rule.match]\nkey = { starts = "a" }', 5, "no key 'starts'"),
    ('to = "b"\n[rule.match]\nkey = { present = 1 }', 5, "present is true or false"),
    ('to = "b"\n[rule.match.headers]\na = "x"\nb = { regex = "[" }', 6, "no regular expression"),
    ('to = "b"\n[rule.match]\nsize = 1', 5, "size is a table"),
    ('to = "b"\n[rule.match]\nsize = { min = "1 parsec" }', 5, "no unit"),
    ('to = "b"\n[rule.match]\nage = { min = "x" }', 5, "is not a span of time"),
    ('to = "b"\n[rule.match]\nage = { least = "1s" }', 5, "no key 'least'"),
    ('to = "b"\n[rule.match]\npath = ["a",\n\n"a |"]', 7, "no JMESPath"),
    ('to = "b"\n[[rule]]\nname = "rule-1"\nto = "b"', 5, "another rule of the name"),
    (f'to = "b"\nmatch.path = "{"(" * 3_000}"', 4, "no JMESPath"),
    (f'to = "b"\nmatch.path = "[{"9" * 5_000}]"', 4, "no JMESPath"),
    (f'to = "b"\nmatch.path = "`{"[" * 100_000}`"', 4, "no JMESPath"),
    (f'to = "b"\nmatch.regex = "a{{{"9" * 5_000}}}"', 4, "no regular expression"),
    (f'to = "b"\nname{".a" * 3_000} = 1', 4, "name is a text, not a map"),
]


@pytest.mark.parametrize(("lines", "line", "text"), WRONG_RULES)
def test_an_error_has_the_line_of_what_is_wrong(lines: str, line: int, text: str) -> None:
    """The first line has the topics, the second one begins the rule."""
    with pytest.raises(RequestError, match=f"rules.toml:{line}: ") as raised:
        rule_of(lines)
    assert raised.value.code == "bad_setting"
    assert text in str(raised.value)
    assert len(str(raised.value)) < 1_000


WRONG_FILES = [
    ('topics = "a"', 1, "there are 0 rules"),
    ('topics = "a"\nrule = 1', 2, "array of tables"),
    ('[[rule]]\nto = "b"', 1, "'topics' is missing"),
    ('topics = []\n[[rule]]\nto = "b"', 1, "empty list"),
    ('topics = [\n"a",\n"/"]\n[[rule]]\nto = "b"', 3, "is not a topic's name"),
    ('topics = "a"\ndeadlines = 1\n[[rule]]\nto = "b"', 2, "did you mean deadline?"),
    ('topics = "a"\ndeadline = 0\n[[rule]]\nto = "b"', 2, "deadline is a span from 0.01 s to 60 s"),
    ('topics = "a"\nattempts = 0\n[[rule]]\nto = "b"', 2, "attempts is a whole number from 1"),
    ('topics = "a"\nhops_max = 1.5\n[[rule]]\nto = "b"', 2, "hops_max is a whole number"),
    ('topics = "a"\nin_flight = 65\n[[rule]]\nto = "b"', 2, "in_flight is a whole number from 1 to 64"),
    ('topics = "a"\nname = "x/y"\n[[rule]]\nto = "b"', 2, "no name of a rule set"),
    ('topics = "a"\nname = 3\n[[rule]]\nto = "b"', 2, "3 is no name of a rule set"),
    ('topics = "a"\nname = "-a"\n[[rule]]\nto = "b"', 2, "no name of a rule set"),
    ('topics = "a"\nname = \n', 2, "no TOML"),
    ('topics = ["a"', 1, "no TOML"),
    ('topics = "a"\n\n[[rule]\nto = "b"', 3, "no TOML"),
]


@pytest.mark.parametrize(("text", "line", "problem"), WRONG_FILES)
def test_an_error_of_the_file_has_its_line(text: str, line: int, problem: str) -> None:
    with pytest.raises(RequestError, match=f"r.toml:{line}: ") as raised:
        parse_rule_file(text, "r.toml", "r")
    assert raised.value.code == "bad_setting"
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    "text", ["a = " + "9" * 10_000, "a = " + "[" * 10_000 + "]" * 10_000, "#" * (FILE_BYTES_MAX + 1)]
)
def test_a_file_that_is_too_long_to_be_read(text: str) -> None:
    with pytest.raises(RequestError, match="bad_setting"):
        parse_rule_file(text, "r.toml", "r")


def test_a_rule_set_without_a_name_needs_one() -> None:
    with pytest.raises(RequestError, match="'' is no name of a rule set"):
        parse_rule_file('topics = "a"\n[[rule]]\nto = "b"', "r.toml")


def test_there_are_at_most_a_thousand_rules() -> None:
    with pytest.raises(RequestError, match="1001 rules"):
        rules_of('[[rule]]\nto = "b"\n' * 1_001)
