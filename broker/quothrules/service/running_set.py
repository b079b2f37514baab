"""One rule set at work: the processes that evaluate it, and a worker for each topic and delay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from quoth.client import Client
from quothrules.evaluator.evaluator import Evaluator
from quothrules.history.rule_history import GroupPlace, RuleHistory, RuleVersion
from quothrules.routing.record_router import ActiveRules
from quothrules.routing.route_counts import RouteCounts
from quothrules.routing.route_worker import RouteWorker, history_of
from quothrules.rule import RuleSet
from quothwire.errors import BrokerFailure, NotFound, QuothError

RETRY_US = 60_000_000
"""Between two attempts to start rules that cannot run: a function may be installed meanwhile."""
STOP_S = 5.0
"""Seconds that a worker has to give back what it has in hand."""
Report = Callable[..., None]


class RunningSet:
    """Runs what the history of a rule set says. Belongs to one thread.

    saved: its last state, from another process. report: takes events.
    """

    def __init__(
        self,
        client: Client,
        history: RuleHistory,
        saved: dict[str, Any],
        clock: Callable[[], int],
        report: Report,
    ) -> None:
        self._client = client
        self._history = history
        self._clock = clock
        self._report = report
        self._counts = RouteCounts(saved.get("counts"))
        self._version: RuleVersion | None = None
        """The version that runs."""
        self._problem = ""
        self._refused: RuleVersion | None = None
        self._try_at = 0
        """The version that cannot run, and the time, as a pointer, of the next attempt."""
        self._active: dict[int, ActiveRules] = {}
        self._endings: dict[Evaluator, tuple[int, int]] = {}
        """The processes that were killed, or ended, as far as they are counted."""
        self._workers: dict[tuple[str, str], RouteWorker] = {}
        self._clean: set[str] = set()
        """Topics without groups of former versions."""

    def follow(self, topics: Iterable[str]) -> None:
        """Run the current version on the topics that there are."""
        current = self._history.current
        if current is not self._version and (current is not self._refused or self._clock() >= self._try_at):
            self._change(current)
        topics = list(topics)
        wanted = self._wanted(topics)
        self._stop([place for place in self._workers if place not in wanted])
        for topic in topics:
            self._remove_former_groups(topic)
        for (topic, name), place in wanted.items():
            worker = self._workers.get((topic, name))
            if worker is None or not worker.is_alive:
                worker = RouteWorker(
                    self._client, topic, place, self._active[place.delay_us], self._counts, self._clock
                )
                self._workers[topic, name] = worker
                worker.start()

    def close(self) -> None:
        """Stop all workers and processes."""
        self._stop(list(self._workers))
        self._end(self._active)
        self._active = {}

    def state(self) -> dict[str, Any]:
        """Return what is known of it, as a plain map."""
        version = self._version
        self._count_endings(self._active)
        return {
            "version": version.number if version is not None else 0,
            "problem": self._problem or self._history.problem,
            "counts": self._counts.to_map(),
            "workers": [
                {"topic": topic, "group": group, "problem": worker.problem}
                for (topic, group), worker in sorted(self._workers.items())
            ],
        }

    # -- versions -------------------------------------------------------------------------------------------

    def _change(self, current: RuleVersion | None) -> None:
        """Let another version take the place of the one that runs, unless it cannot run."""
        former = self._active
        if current is None or current.rules is None:
            self._stop(list(self._workers))
            self._active = {}
        else:
            try:
                self._active = self._start(current.rules)
            except QuothError as problem:
                self._refused, self._try_at = current, self._clock() + RETRY_US
                if self._problem != str(problem):
                    self._problem = str(problem)
                    self._report("rules_failed", rules=self._history.name, problem=self._problem)
                return
            if self._version is not None and self._version.run != current.run:
                self._stop(list(self._workers))
            for worker in self._workers.values():
                if worker.place.delay_us in self._active:
                    worker.apply(self._active[worker.place.delay_us])
        self._problem, self._refused = "", None
        self._version = current
        self._clean.clear()
        self._end(former)
        if current is None:
            self._counts = RouteCounts()
        self._endings = {
            one.evaluator: self._endings[one.evaluator]
            for one in self._active.values()
            if one.evaluator in self._endings
        }
        self._report("rules_changed", rules=self._history.name, version=current.number if current else 0)

    def _start(self, rules: RuleSet) -> dict[int, ActiveRules]:
        """Start a process for each delay: each sees the records at another time."""
        found: dict[int, ActiveRules] = {}
        try:
            for delay in rules.delays:
                evaluator = Evaluator(rules, history_of(self._client), rules.name)
                found[delay] = ActiveRules(rules, evaluator)
                evaluator.start()
        except BaseException:
            self._end(found)
            raise
        return found

    def _end(self, active: dict[int, ActiveRules]) -> None:
        for one in active.values():
            one.evaluator.close()
        self._count_endings(active)

    def _count_endings(self, active: dict[int, ActiveRules]) -> None:
        for one in active.values():
            killed, ended = self._endings.get(one.evaluator, (0, 0))
            now = self._endings[one.evaluator] = one.evaluator.killed, one.evaluator.ended
            self._counts.add("killed", now[0] - killed)
            self._counts.add("ended", now[1] - ended)

    # -- topics ---------------------------------------------------------------------------------------------

    def _wanted(self, topics: list[str]) -> dict[tuple[str, str], GroupPlace]:
        """Return the places of all workers that are to run."""
        version = self._version
        if version is None or version is not self._history.current or version.rules is None:
            return {key: worker.place for key, worker in self._workers.items() if key[0] in topics}
        return {
            (topic, place.name): place
            for topic in topics
            if version.rules.topics.matches(topic)
            for place in self._history.places(topic)
        }

    def _stop(self, places: Iterable[tuple[str, str]]) -> None:
        workers = [self._workers.pop(place) for place in list(places)]
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(STOP_S)

    def _remove_former_groups(self, topic: str) -> None:
        """Delete the groups of former versions on a topic: they would keep its records."""
        if topic in self._clean or self._version is not self._history.current:
            return
        for name in self._history.former_groups(topic):
            try:
                self._client.group(topic, name, create=False).delete()
            except NotFound:
                continue
            except BrokerFailure:  # of this topic, as of a disk: the others are not to wait for it
                return
            self._report("rules_group_deleted", rules=self._history.name, topic=topic, group=name)
        self._clean.add(topic)
