"""Evaluates rules for one record after the other, without any input or output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from xxhash import xxh3_64_intdigest

from quoth.message import Message
from quothrules.evaluation.functions import RuleFunction, call_function
from quothrules.evaluation.outcome import DROPPED, DUPLICATE, PASSED, ROUTED, RoutedRecord, RuleOutcome, Step
from quothrules.evaluation.recent_keys import RecentKeys
from quothrules.failure import RuleFailure, failures_of
from quothrules.matching.record_view import RecordView
from quothrules.matching.template import MissingField, Template
from quothrules.matching.topic_patterns import check_target
from quothrules.rule import Dedupe, Rule, RuleSet
from quothwire.errors import QuothError
from quothwire.headers import encode_headers

HOPS_HEADER = "quoth-hops"
"""How often a record was routed, in decimal digits."""
SOURCE_HEADER = "quoth-source"
"""The topic and the pointer of the record that was routed: ``orders:1767323045000001``."""
_Seen = list[tuple[RecentKeys, bytes]]


class Evaluation:
    """The rules of a set, with the keys that they have seen of each topic.

    functions: those that the rules call, by name. on_rule: called with the number of each rule that begins.
    The records of a topic come in the order of their pointers.
    """

    def __init__(
        self,
        rules: RuleSet,
        functions: Mapping[str, RuleFunction],
        on_rule: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._on_rule = on_rule
        self._set = rules
        self._functions = functions
        self._keys: dict[tuple[str, str], RecentKeys] = {}

    def evaluate(self, message: Message, now: int) -> RuleOutcome:
        """Apply the rules to a record. now: the time as a pointer, for ages.

        Raises `RuleFailure`, and has not seen the record then.
        """
        seen: _Seen = []
        outputs: list[RoutedRecord] = []
        steps: list[Step] = []
        for rule, fate, view in self._steps(message, now, seen):
            steps.append(Step(rule.name, fate))
            if fate == ROUTED:
                with failures_of(rule.name):
                    outputs += self._outputs(rule, view)
        hops = hops_of(message)
        refused = bool(outputs) and hops >= self._set.hops_max
        _remember(seen, message.pointer)
        if refused:
            return RuleOutcome((), tuple(steps), True)
        return RuleOutcome(tuple(_routed(one, message, hops) for one in outputs), tuple(steps))

    def learn(self, message: Message, now: int) -> None:
        """See a record that was evaluated before. Raises `RuleFailure` as `evaluate` did."""
        seen: _Seen = []
        for _ in self._steps(message, now, seen):
            pass
        _remember(seen, message.pointer)

    def forget(self, topic: str) -> None:
        """Forget the keys of a topic, before its records are seen again."""
        for place in [place for place in self._keys if place[0] == topic]:
            del self._keys[place]

    def _steps(self, message: Message, now: int, seen: _Seen) -> Iterator[tuple[Rule, str, RecordView]]:
        """Yield the rules that take a record, the fate that each gives it, and the record as it sees it."""
        view = RecordView(message, now)
        for number, rule in enumerate(self._set.rules):
            self._on_rule(number)
            with failures_of(rule.name):
                fate = self._fate(rule, view, seen)
            if fate is not None:
                yield rule, fate, view
                if fate == DUPLICATE or not rule.goes_on:
                    return

    def _fate(self, rule: Rule, view: RecordView, seen: _Seen) -> str | None:
        """Change the headers as a rule says; return what it does with the record, None for nothing."""
        if not rule.condition(view) or not _is_sampled(rule, view):
            return None
        if rule.dedupe is not None and self._is_duplicate(rule, rule.dedupe, view, seen):
            return DUPLICATE
        view.headers = _changed_headers(rule, view)
        return DROPPED if rule.drops else ROUTED if rule.writes else PASSED

    def _is_duplicate(self, rule: Rule, dedupe: Dedupe, view: RecordView, seen: _Seen) -> bool:
        """Return True if the key of a record was seen before it. A record without a key is no duplicate."""
        key = _rendered(dedupe.by, view)
        if key is None:
            return False
        place = view.message.topic, rule.name
        if place not in self._keys:
            self._keys[place] = RecentKeys(dedupe.span_us, dedupe.keys_max)
        keys = self._keys[place]
        seen.append((keys, key))
        return keys.has(key, view.message.pointer)

    def _outputs(self, rule: Rule, view: RecordView) -> list[RoutedRecord]:
        """Return what a rule writes. Raises `RuleFailure`."""
        message = view.message._replace(headers=view.headers)
        if rule.call:
            routed = call_function(self._functions, rule.call, message)
        else:
            routed = [(topic, message) for topic in dict.fromkeys(_topic(one, view) for one in rule.to)]
        return [_output(topic, one, rule.delay_us) for topic, one in routed]


def hops_of(message: Message) -> int:
    """Return how often a record was routed."""
    hops = message.headers.get(HOPS_HEADER, b"0")
    return int(hops) if len(hops) < 10 and hops.isdigit() else 0


def _remember(seen: _Seen, pointer: int) -> None:
    for keys, key in seen:
        keys.see(key, pointer)


def _routed(output: RoutedRecord, message: Message, hops: int) -> RoutedRecord:
    """Return an output with the headers that say where it comes from."""
    source = f"{message.topic}:{message.pointer}".encode()
    return output._replace(headers={**output.headers, HOPS_HEADER: b"%d" % (hops + 1), SOURCE_HEADER: source})


def _is_sampled(rule: Rule, view: RecordView) -> bool:
    """Return True if a rule takes a record: always the same for one record, or for one key."""
    sample = rule.sample
    if sample is None:
        return True
    key = _rendered(sample.by, view) if sample.by is not None else None
    if key is None:
        key = f"{view.message.topic}:{view.message.pointer}".encode()
    return xxh3_64_intdigest(key, xxh3_64_intdigest(rule.name.encode())) < math.ldexp(sample.share, 64)


def _changed_headers(rule: Rule, view: RecordView) -> Mapping[str, bytes]:
    if not rule.set_headers and not rule.remove_headers:
        return view.headers
    headers = {name: content for name, content in view.headers.items() if name not in rule.remove_headers}
    for name, template in rule.set_headers.items():
        headers[name] = _required(template, view)
    return headers


def _topic(template: Template, view: RecordView) -> str:
    name = _required(template, view)
    try:
        return check_target(name.decode())
    except UnicodeDecodeError:
        raise RuleFailure(f"{template.text!r} gives {name[:100]!r}, which is no topic's name") from None
    except QuothError as problem:
        raise RuleFailure(f"{template.text!r} gives {name[:100]!r}: {problem.text}") from None


def _output(topic: str, message: Message, delay_us: int) -> RoutedRecord:
    """Return an output that a topic can store. Raises `RuleFailure` for names and headers that are none."""
    try:
        check_target(topic)
        encode_headers(message.headers)
    except QuothError as problem:
        raise RuleFailure(f"a record for {topic[:100]!r}: {problem.text}") from None
    return RoutedRecord(topic, message.value, message.key, message.headers, delay_us)


def _rendered(template: Template, view: RecordView) -> bytes | None:
    """Fill in a template; None if the record has nothing for a field."""
    try:
        return template.render(view)
    except MissingField:
        return None


def _required(template: Template, view: RecordView) -> bytes:
    try:
        return template.render(view)
    except MissingField as missing:
        raise RuleFailure(str(missing)) from None
