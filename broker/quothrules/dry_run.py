"""Shows what rules would do with records, without writing anything: counts and examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from quoth.message import Message
from quothrules.evaluation.outcome import RoutedRecord, RuleOutcome, Step
from quothrules.evaluator.evaluator import Evaluator, History
from quothrules.failure import RuleFailure
from quothrules.rule import RuleSet

EXAMPLES = 3
"""For each rule and fate."""
ROW = 256
"""Records that are evaluated at once."""
REFUSED, FAILED, UNMATCHED = "refused", "failed", "unmatched"


class Example(NamedTuple):
    """One record, and what the rules would write for it. problem: the reason of a failure, else empty."""

    message: Message
    outputs: tuple[RoutedRecord, ...]
    problem: str = ""


@dataclass(slots=True)
class DryRun:
    """The counts of a dry run.

    records: all that were read. fates: of the rules, by name and fate, and those of records that no rule
    took: ``unmatched``, ``refused``, ``failed`` under the name of the rule, which may be empty. topics: the
    records that each topic would get. examples: the first few, by rule and fate.
    """

    records: int = 0
    fates: Counter[tuple[str, str]] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    examples: defaultdict[tuple[str, str], list[Example]] = field(default_factory=lambda: defaultdict(list))

    def count(self, message: Message, outcome: RuleOutcome | RuleFailure) -> None:
        """Count the outcome of a record."""
        self.records += 1
        if isinstance(outcome, RuleFailure):
            self._note((outcome.rule, FAILED), Example(message, (), outcome.reason))
            return
        for output in outcome.outputs:
            self.topics[output.topic] += 1
        for step in outcome.steps or (Step("", UNMATCHED),):
            self._note(step, Example(message, outcome.outputs))
        if outcome.refused:
            self._note(("", REFUSED), Example(message, ()))

    def _note(self, place: tuple[str, str], example: Example) -> None:
        self.fates[place] += 1
        if len(self.examples[place]) < EXAMPLES:
            self.examples[place].append(example)


def dry_run(
    rules: RuleSet,
    topics: Iterable[Iterable[Message]],
    clock: Callable[[], int],
    history: History | None = None,
) -> DryRun:
    """Evaluate the records of some topics, each in order. A record that fails is counted once.

    clock: returns the time as a pointer. history: reads earlier records, by which duplicates are found.
    Raises ``bad_setting`` if a function is missing.
    """
    found = DryRun()
    with Evaluator(rules, history) as evaluator:
        evaluator.start()
        for row in chain.from_iterable(map(_rows, topics)):
            while row:
                outcomes, failure = evaluator.evaluate(row, clock())
                for message, outcome in zip(row, outcomes, strict=False):
                    found.count(message, outcome)
                row = row[len(outcomes) :]
                if failure is not None:
                    found.count(row.pop(0), failure)
    return found


def _rows(messages: Iterable[Message]) -> Iterator[list[Message]]:
    source = iter(messages)
    while row := list(islice(source, ROW)):
        yield row
