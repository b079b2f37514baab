"""The thread that routes the records of one topic for one rule set and one of its delays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from quoth.client import Client
from quoth.groups.group import ConsumerGroup
from quoth.message import Message
from quoth.timestamps import now
from quothrules.evaluator.evaluator import History
from quothrules.history.rule_history import GroupPlace
from quothrules.routing.held_records import LEASE_S, STOPPED, HeldRecords, WorkerStopped
from quothrules.routing.record_router import BACKOFF_S, ActiveRules, RecordRouter, RouteSource
from quothrules.routing.route_counts import RouteCounts
from quothwire.errors import NotFound, QuothError
from quothwire.protocol.group_settings import GivenGroupSettings

ROW = 64
"""Records in hand: as many results as a broker remembers of one producer, so each of them is recognised if it
is published once more."""
FETCH_S = 1.0
AWAY_S = 1.0
"""Pause after an error of the broker, or of the group."""
SETTINGS = GivenGroupSettings(
    lease=LEASE_S,
    max_in_flight=2 * ROW,
    max_attempts=0,  # counted here: a record that is handed out again has not failed
    backoff=[0.0],
)


class RouteWorker:
    """Routes the records of a topic in a thread, until it is stopped or the topic is gone.

    problem: the reason for which nothing goes on, empty if there is none. clock: returns the time as a
    pointer. pauses: see `RecordRouter`.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        place: GroupPlace,
        active: ActiveRules,
        counts: RouteCounts,
        clock: Callable[[], int] = now,
        pauses: Sequence[float] = BACKOFF_S,
    ) -> None:
        self.topic = topic
        self.place = place
        self.problem = ""
        self._client = client
        self._active = active
        self._counts = counts
        self._clock = clock
        self._pauses = pauses
        self._router: RecordRouter | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"quoth-rules-{topic}", daemon=True)

    @property
    def is_alive(self) -> bool:
        """False once it has ended: it was stopped, or the topic is gone."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def apply(self, active: ActiveRules) -> None:
        """Use other rules from the next records on."""
        self._active = active
        if self._router is not None:
            self._router.active = active

    def stop(self) -> None:
        """Let the thread end: it gives back what it has in hand."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(seconds)

    # -- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve()
            except WorkerStopped:
                return
            except NotFound as problem:
                if problem.code == "unknown_topic":
                    return
                self._note(str(problem))
            except QuothError as problem:
                self._note(str(problem))
            except Exception as defect:  # the other workers go on
                self._note(f"{type(defect).__name__}: {defect}")
            self._stopping.wait(AWAY_S)

    def _note(self, problem: str) -> None:
        self.problem = problem

    def _serve(self) -> None:
        """Be a member of the group until something fails."""
        name, delay_us, begin = self.place
        with self._group(name, begin) as group:
            self._await_members(group)
            source = RouteSource(name, delay_us, group.info().log, begin)
            arguments = source, self._active, self._counts, self._clock, self._note, self._pauses
            with RecordRouter(self._client, *arguments) as self._router:
                self._router.active = self._active
                while not self._stopping.is_set():
                    self._route(group, self._router)

    def _route(self, group: ConsumerGroup, router: RecordRouter) -> None:
        """Fetch some records, and route them."""
        held = HeldRecords(group.fetch(ROW, FETCH_S), self._stopping)
        self.problem = ""
        try:
            router.route(held)
        except BaseException as problem:
            router.forget(problem)
            held.give_back(STOPPED)
            raise

    def _group(self, name: str, begin: int) -> ConsumerGroup:
        """Return the group, which is created if there is none; one with other settings is taken as it is."""
        group = self._client.group(self.topic, name, start=begin, **SETTINGS)
        try:
            group.info()
        except QuothError as problem:
            if problem.code != "group_exists":
                raise
            return self._client.group(self.topic, name, create=False)
        return group

    def _await_members(self, group: ConsumerGroup) -> None:
        """Wait until all that a process before this one has begun can be handed out: it comes first."""
        while waits := [one.seconds for one in group.pending() if one.seconds and one.member != group.member]:
            if self._stopping.wait(min(min(waits) + 0.01, FETCH_S)):
                raise WorkerStopped


def history_of(client: Client) -> History:
    """Return what reads the records of the past from a broker."""

    def records(topic: str, begin: int, end: int) -> Iterator[Message]:
        if begin < end:
            for batch in client.batches(topic, since=begin, until=end, on_gap=lambda _: None):
                yield from (message for message in batch if begin <= message.pointer < end)

    return records
