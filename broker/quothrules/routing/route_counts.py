"""The counts of a rule set: what its workers have done."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from quothrules.evaluation.outcome import RuleOutcome, Step
from quothrules.rule import RuleSet

UNMATCHED = "unmatched"


class RouteCounts:
    """Counts since the rule set was added, as far as they were saved. Any thread.

    rules: by the name of a rule, and fate. totals: ``records`` that were finished, ``written`` records,
    ``unmatched`` by any rule, ``refused`` since they were routed too often, ``failed`` attempts, ``dead``
    letters, ``repeated``: batches that an earlier attempt had stored, ``killed`` and ``ended`` processes.
    """

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        self._lock = threading.Lock()
        saved = saved or {}
        self._totals: Counter[str] = Counter(saved.get("totals", {}))
        self._rules: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name, fates in saved.get("rules", {}).items():
            self._rules[name].update(fates)

    def add(self, name: str, number: int = 1) -> None:
        """Add to a total."""
        with self._lock:
            self._totals[name] += number

    def finished(self, outcome: RuleOutcome, rules: RuleSet, delay_us: int) -> None:
        """Count a record that was published. delay_us: that of the worker, which counts what is its own.

        What belongs to no delay is counted by the worker of the shortest one.
        """
        is_first = delay_us == rules.delays[0]
        with self._lock:
            self._totals["written"] += sum(one.delay_us == delay_us for one in outcome.outputs)
            self._totals["records"] += is_first
            self._totals[UNMATCHED] += is_first and not outcome.steps
            for step in _own(outcome.steps, rules, delay_us, is_first=is_first):
                self._rules[step.rule][step.fate] += 1

    def to_map(self) -> dict[str, Any]:
        """Return all counts as a plain map."""
        with self._lock:
            rules = {name: dict(fates) for name, fates in self._rules.items()}
            return {"totals": dict(+self._totals), "rules": rules}


def _own(steps: Iterable[Step], rules: RuleSet, delay_us: int, *, is_first: bool) -> Iterable[Step]:
    delays = {rule.name: rule.delay_us for rule in rules.rules if rule.writes}
    return [step for step in steps if delays.get(step.rule, delay_us if is_first else -1) == delay_us]
