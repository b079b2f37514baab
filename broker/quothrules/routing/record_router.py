"""Routes the records that a worker has in hand: evaluates them, publishes, and finishes them.

    held ──evaluate──► outcomes ──publish──► stored ──acknowledge──► finished
            │                      │
            └── failure ───────────┴── attempts, with pauses; then a dead letter

A record is acknowledged once all that it has become is stored. All records behind one that fails wait until
it is finished, so what is written to a topic has the order of the records that it is made of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from quoth.client import Client
from quoth.core.request_state import BACKOFF_MAX_S
from quoth.groups.group import GroupMessage
from quothrules.evaluation.outcome import RuleOutcome
from quothrules.evaluator.evaluator import Evaluator
from quothrules.failure import RuleFailure
from quothrules.routing.held_records import HeldRecords
from quothrules.routing.output_batch import OutputBatch, SourceRecord, batches_of
from quothrules.routing.output_publisher import OutputPublisher, is_outage
from quothrules.routing.route_counts import RouteCounts
from quothrules.routing.route_spans import RouteSpans
from quothrules.rule import RuleSet
from quothwire.closing import Closeable
from quothwire.errors import QuothError
from quothwire.protocol.group_messages import moves_of

BACKOFF_S = (1.0, 5.0, 30.0)
"""Pauses before the second attempt, the third, and so on; the last one repeats."""
REFUSED = "it was routed {hops} times: the rules write what they read"


class ActiveRules(NamedTuple):
    """Rules that have effect, and the process that evaluates them."""

    rules: RuleSet
    evaluator: Evaluator


class RouteSource(NamedTuple):
    """The group of which the records are. log: the id of the topic's log. begin: where the rules began."""

    group: str
    delay_us: int
    log: int
    begin: int


class RecordRouter(Closeable):
    """Routes records of one topic. Belongs to one thread, except for `active`.

    active: the rules, which another thread may replace. clock: returns the time as a pointer. note: takes the
    reason for which nothing goes on, "" once it does. pauses: as `BACKOFF_S`.
    """

    def __init__(
        self,
        client: Client,
        source: RouteSource,
        active: ActiveRules,
        counts: RouteCounts,
        clock: Callable[[], int],
        note: Callable[[str], None],
        pauses: Sequence[float] = BACKOFF_S,
    ) -> None:
        self.active = active
        self._source = source
        self._counts = counts
        self._clock = clock
        self._note = note
        self._pauses = pauses
        self._publisher = OutputPublisher(client, active.rules.in_flight, source.begin)
        self._attempts: dict[int, int] = {}
        """Failed attempts, by the pointer of the record."""
        self._evaluated: dict[int, RuleOutcome] = {}
        """Outcomes of records that are not published, or not finished, yet."""
        self._spans = RouteSpans(source.group, client.url)
        self._began = 0
        """The time at which the last evaluation began, in nanoseconds since 1970."""
        self._was_fresh = False
        """The last record that was evaluated was handed out for the first time."""

    def close(self) -> None:
        """Close the connection."""
        self._publisher.close()

    def route(self, held: HeldRecords) -> None:
        """Route all records in hand. Raises `WorkerStopped`, ``lease_lost``, and errors that have no end."""
        while held.left:
            self._await_due(held)
            active = self.active
            try:
                self._route_some(held, active)
            except QuothError as problem:
                if problem.code == "closed" and active is not self.active:
                    continue  # the evaluator of rules that were replaced
                if not is_outage(problem) or problem.code == "closed":
                    raise
                self._note(str(problem))
                held.wait(BACKOFF_MAX_S)
        self._note("")

    def forget(self, problem: BaseException) -> None:
        """Forget the records that were in hand: they come again, or never. problem: the reason."""
        self._spans.give_up(problem)
        self._attempts.clear()
        self._evaluated.clear()
        self._was_fresh = False

    def _await_due(self, held: HeldRecords) -> None:
        """Wait until the first record is as old as the delay."""
        due = held.left[0].pointer + self._source.delay_us
        while (wait := due - self._clock()) > 0:
            held.wait(wait / 1e6)

    def _route_some(self, held: HeldRecords, active: ActiveRules) -> None:
        """Route the first records up to one that fails."""
        failing = None
        ready = list(takewhile(lambda one: one.pointer in self._evaluated, held.left))
        if not ready:
            messages = self._ready(held.left, active.rules)
            is_gap = not (self._was_fresh and messages[0].attempts == 1)
            now, self._began = self._clock() - self._source.delay_us, time.time_ns()
            found, failing = active.evaluator.evaluate(messages, now, is_gap=is_gap, keep=held.keep)
            ready = messages[: len(found)]
            self._evaluated |= {one.pointer: outcome for one, outcome in zip(ready, found, strict=True)}
            self._was_fresh = messages[max(0, len(found) - 1)].attempts == 1
        self._publish(held, ready, active.rules)
        if failing is not None:
            self._fail(held, messages[len(ready)], str(failing), active.rules)

    def _ready(self, left: Sequence[GroupMessage], rules: RuleSet) -> list[GroupMessage]:
        """Return the records that are evaluated at once: those that are due.

        Between records that are handed out again there may be some that are finished, whose keys have to be
        learned. So each of them is evaluated by itself, as is the first one behind them.
        """
        if rules.dedupe_us and not (self._was_fresh and left[0].attempts == 1):
            return [left[0]]
        until = self._clock() - self._source.delay_us
        ready = [one for one in left if one.pointer <= until and (one.attempts == 1 or not rules.dedupe_us)]
        return ready or [left[0]]

    # -- publishing -----------------------------------------------------------------------------------------

    def _publish(self, held: HeldRecords, messages: Sequence[GroupMessage], rules: RuleSet) -> None:
        """Publish what records have become, and finish them."""
        made = {one.pointer: self._batches(one) for one in messages}
        self._publisher.in_flight = rules.in_flight
        self._publisher.publish(list(chain.from_iterable(made.values())))
        self._counts.add("repeated", self._publisher.stored_before)
        self._publisher.stored_before = 0
        problems = {pointer: _problem_of(batches) for pointer, batches in made.items()}
        self._finish(held, [one for one in messages if problems[one.pointer] is None], rules)
        for message in messages:
            if problems[message.pointer] is not None:
                self._fail(held, message, str(problems[message.pointer]), rules)

    def _batches(self, message: GroupMessage) -> list[OutputBatch]:
        """Return what a record has become with the delay of this worker."""
        source = self._source
        outputs = self._evaluated[message.pointer].outputs
        own = [one for one in outputs if one.delay_us == source.delay_us]
        is_fresh = message.attempts == 1
        origin = SourceRecord(
            source.group, source.log, moves_of(message.generation), message.pointer, is_fresh
        )
        batches = batches_of(origin, own)
        self._spans.carry(message, batches, self._began)
        return batches

    def _finish(self, held: HeldRecords, done: Sequence[GroupMessage], rules: RuleSet) -> None:
        """Acknowledge records, and wait for that: it comes before the next ones are published."""
        for message in done:
            outcome = self._evaluated[message.pointer]
            if outcome.refused:
                self._kill(message, REFUSED.format(hops=rules.hops_max))
            else:
                message.ack(wait=message is done[-1])
            self._counts.add("refused", int(outcome.refused))
            self._counts.finished(outcome, rules, self._source.delay_us)
        self._remove(held, done)

    # -- failures -------------------------------------------------------------------------------------------

    def _fail(self, held: HeldRecords, message: GroupMessage, reason: str, rules: RuleSet) -> None:
        """Count an attempt of a record, and wait before the next one, or make a dead letter of it."""
        attempts = self._attempts[message.pointer] = self._attempts.get(message.pointer, 0) + 1
        self._counts.add("failed")
        if attempts < rules.attempts:
            held.wait(self._pauses[min(attempts, len(self._pauses)) - 1])
            return
        self._kill(message, reason)
        self._spans.end(message.pointer, RuleFailure(reason))
        self._remove(held, [message])

    def _remove(self, held: HeldRecords, finished: Sequence[GroupMessage]) -> None:
        """Forget records that are finished."""
        held.remove(finished)
        for message in finished:
            self._spans.end(message.pointer)
            self._attempts.pop(message.pointer, None)
            self._evaluated.pop(message.pointer, None)

    def _kill(self, message: GroupMessage, reason: str) -> None:
        message.term(reason)
        self._counts.add("dead")


def _problem_of(batches: Sequence[OutputBatch]) -> QuothError | None:
    return next((batch.problem for batch in batches if batch.problem is not None), None)
