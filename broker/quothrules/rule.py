"""A rule set: ordered rules, the topics that they read, and the limits under which they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quoth.rules.rule_state import GROUP_PREFIX
from quothrules.matching.conditions import Condition
from quothrules.matching.template import Template
from quothrules.matching.topic_patterns import TopicPatterns
from quothwire.text.quantity import format_span


@dataclass(frozen=True, slots=True)
class RuleSample:
    """The share of the records that a rule takes; the next rules see the others.

    by: records for which it is equal are taken together; None: each record by itself.
    """

    share: float
    by: Template | None


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Drops a record if one with the same key came in the span before it, in microseconds.

    by: the key. keys_max: those that are remembered.
    """

    span_us: int
    by: Template
    keys_max: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a condition, and actions.

    to: templates of the topics to which records go. call: the name of a registered function, which returns
    what is written, empty for none. drops: the record goes nowhere. goes_on: the rules behind this one see
    the record, too. delay_us: microseconds since the record was stored, before which nothing is written.
    """

    name: str
    condition: Condition
    to: tuple[Template, ...] = ()
    call: str = ""
    drops: bool = False
    goes_on: bool = False
    set_headers: Mapping[str, Template] = field(default_factory=dict)
    remove_headers: tuple[str, ...] = ()
    sample: RuleSample | None = None
    dedupe: Dedupe | None = None
    delay_us: int = 0

    @property
    def writes(self) -> bool:
        """True if records go to topics."""
        return bool(self.to or self.call)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The unit that is stored, changed, and run. It has a consumer group on each topic, one for each delay.

    text: the file. deadline: seconds for the evaluation of one record. attempts: of one record, before it is
    a dead letter. hops_max: how often a record may be routed. in_flight: batches that are published at once.
    """

    name: str
    text: str
    topics: TopicPatterns
    rules: tuple[Rule, ...]
    deadline: float
    attempts: int
    hops_max: int
    in_flight: int

    def group(self, run: int, delay_us: int) -> str:
        """Return the name of the group whose member writes what has this delay.

        run: counts how often the rules began anew at a place of their own.
        """
        name = GROUP_PREFIX + self.name + (f"~{run}" if run > 1 else "")
        return f"{name}@{format_span(delay_us / 1e6, short=True)}" if delay_us else name

    @property
    def delays(self) -> tuple[int, ...]:
        """The delays of its rules in microseconds, in rising order; 0 alone if nothing is written."""
        return tuple(sorted({rule.delay_us for rule in self.rules if rule.writes})) or (0,)

    @property
    def functions(self) -> frozenset[str]:
        """The names of the functions that it calls."""
        return frozenset(rule.call for rule in self.rules if rule.call)

    @property
    def dedupe_us(self) -> int:
        """The longest span of its rules in which a record may be a duplicate, 0 without one."""
        return max((rule.dedupe.span_us for rule in self.rules if rule.dedupe is not None), default=0)
