"""Parses a rule file, see RULES.md. Every error names the line at fault."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from quothrules.file.match_table import condition_of, patterns_of
from quothrules.matching.record_view import FORMATS, JSON
from quothrules.matching.template import Template
from quothrules.matching.topic_patterns import check_target
from quothrules.rule import Dedupe, Rule, RuleSample, RuleSet
from quothwire.errors import error, quoted
from quothwire.headers import HEADERS_BYTES_MAX
from quothwire.protocol.group_settings import ATTEMPTS_MAX
from quothwire.text.quantity import parse_span
from quothwire.text.toml_table import TomlTable, parse_document

RULES_MAX = 1_000
DEADLINE_S_MIN, DEADLINE_S_MAX = 0.01, 60.0
HOPS_MAX = 100
IN_FLIGHT_MAX = 64
"""As many results as a broker remembers of one producer."""
DELAY_S_MAX = DEDUPE_S_MAX = 7 * 86_400.0
DEDUPE_KEYS, DEDUPE_KEYS_MAX = 100_000, 10_000_000
"""A key takes about 150 bytes of memory."""
_KEY = "{key}"
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,59}")
"""The name of its groups adds ``~`` and ``@`` to it, and has to be a topic's name."""


def parse_rule_file(text: str, origin: str, name: str = "") -> RuleSet:
    """Parse a rule file. Raises `RequestError` ``bad_setting`` with the line at fault.

    origin: names the file in errors. name: that of the rule set if the file has none. Functions are not
    looked up: they need not be installed where a file is checked.
    """
    table = parse_document(text, origin)
    found = RuleSet(
        name=table.required("name", check_name) if table.has("name") else check_name(name),
        text=text,
        topics=patterns_of(table, "topics"),
        deadline=table.span("deadline", 1.0, DEADLINE_S_MIN, DEADLINE_S_MAX),
        attempts=table.whole("attempts", 3, 1, ATTEMPTS_MAX),
        hops_max=table.whole("hops_max", 8, 1, HOPS_MAX),
        in_flight=table.whole("in_flight", IN_FLIGHT_MAX, 1, IN_FLIGHT_MAX),
        rules=_rules(table),
    )
    table.finish()
    return found


def check_name(name: object) -> str:
    """Return the name of a rule set. Raises `RequestError` ``bad_setting``."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        hint = "1 to 60 letters, digits, dots, dashes and underscores, not a dash first"
        raise error("bad_setting", f"{quoted(name)} is no name of a rule set", hint)
    return name


def _rules(table: TomlTable) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    for inner in table.tables("rule"):
        rule = _rule(inner, len(rules) + 1)
        if any(rule.name == other.name for other in rules):
            raise inner.wrong("name", f"there is another rule of the name {rule.name!r}")
        rules.append(rule)
    if not 1 <= len(rules) <= RULES_MAX:
        raise table.wrong(
            "rule", f"there are {len(rules)} rules, 1 to {RULES_MAX:,} are possible", "[[rule]]"
        )
    return tuple(rules)


def _rule(table: TomlTable, number: int) -> Rule:
    form = _format(table)
    rule = Rule(
        name=table.text("name", f"rule-{number}"),
        condition=condition_of(table.table("match"), form),
        to=table.each("to", partial(_topic_template, form)),
        call=table.text("call") if table.has("call") else "",
        drops=table.flag("drop"),
        goes_on=table.flag("continue"),
        set_headers=_headers(table.table("set_headers"), form),
        remove_headers=table.texts("remove_headers"),
        sample=_sample(table, form) if table.has("sample") else None,
        dedupe=_dedupe(table, form) if table.has("dedupe") else None,
        delay_us=round(table.span("delay", 0.0, 0.0, DELAY_S_MAX) * 1e6),
    )
    table.finish()
    _check_actions(table, rule)
    return rule


def _check_actions(table: TomlTable, rule: Rule) -> None:
    """Raise for actions that contradict each other, or have no effect."""
    outcomes = [name for name, given in (("to", rule.to), ("call", rule.call), ("drop", rule.drops)) if given]
    if len(outcomes) > 1:
        raise table.wrong(outcomes[1], f"a rule has {outcomes[0]} or {outcomes[1]}, not both")
    if rule.drops and rule.goes_on:
        raise table.wrong("continue", "a record that is dropped does not go on to the next rules")
    changes = "set_headers" if rule.set_headers else "remove_headers" if rule.remove_headers else ""
    if not outcomes and not (rule.goes_on and (changes or rule.dedupe)):
        hint = "to, call or drop = true; or continue = true with set_headers, remove_headers or dedupe"
        raise table.wrong(None, "the rule has no effect", hint)
    if not rule.writes and table.has("delay"):
        raise table.wrong("delay", "delay has no effect on a rule without to or call")
    if rule.drops and changes:
        raise table.wrong(changes, f"{changes} has no effect on a record that is dropped")


def _format(table: TomlTable) -> str:
    form = table.text("format", JSON)
    if form not in FORMATS:
        raise table.wrong("format", f"format is {' or '.join(FORMATS)}, not {quoted(form)}")
    return form


def _topic_template(form: str, text: str) -> Template:
    """Parse the template of a topic; a name without fields has to be one that may be written."""
    template = Template(text, form)
    if template.is_constant:
        check_target(template.text.replace("{{", "{").replace("}}", "}"))
    return template


def _headers(table: TomlTable, form: str) -> dict[str, Template]:
    found = {}
    for name in table.values:
        if len(name.encode()) > HEADERS_BYTES_MAX or name.startswith("quoth-"):
            raise table.wrong(name, f"{name!r:.100} is no header that rules may set", "not quoth-...")
        found[name] = table.required(name, partial(_header_template, form))
    return found


def _header_template(form: str, value: Any) -> Template:
    if not isinstance(value, str):
        raise error("bad_setting", f"a header is a text, not {quoted(value)}")
    return Template(value, form)


def _sample(table: TomlTable, form: str) -> RuleSample:
    """Parse ``sample = "10%"`` or ``sample = { share = 0.1, by = "{key}" }``."""
    if not isinstance(table.values["sample"], dict):
        return RuleSample(table.required("sample", _share), None)
    inner = table.table("sample")
    sample = RuleSample(inner.required("share", _share), _by(inner, form, None))
    inner.finish()
    return sample


def _share(value: Any) -> float:
    """Read a share: a number from 0 to 1, or a percentage as a text."""
    share = value
    if isinstance(value, str) and value.endswith("%"):
        try:
            share = float(value[:-1]) / 100
        except ValueError:
            share = None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise error(
            "bad_setting", f"a share is 0 to 1, or a percentage, not {quoted(value)}", 'like 0.1 or "10%"'
        )
    return float(share)


def _dedupe(table: TomlTable, form: str) -> Dedupe:
    """Parse ``dedupe = "10m"`` or ``dedupe = { span = "10m", by = "{headers[id]}", keys_max = 1000 }``."""
    if not isinstance(table.values["dedupe"], dict):
        return Dedupe(table.required("dedupe", _dedupe_us), Template(_KEY, form), DEDUPE_KEYS)
    inner = table.table("dedupe")
    by = _by(inner, form, Template(_KEY, form))
    assert by is not None
    keys_max = inner.whole("keys_max", DEDUPE_KEYS, 1, DEDUPE_KEYS_MAX)
    dedupe = Dedupe(inner.required("span", _dedupe_us), by, keys_max)
    inner.finish()
    return dedupe


def _dedupe_us(value: Any) -> int:
    seconds = parse_span(value, infinity=None)
    if not 0 < seconds <= DEDUPE_S_MAX:
        raise error("bad_setting", f"it is more than 0 and at most 7 days, not {quoted(value)}")
    return round(seconds * 1e6)


def _by(table: TomlTable, form: str, default: Template | None) -> Template | None:
    return table.convert("by", lambda value: _header_template(form, value), default)
