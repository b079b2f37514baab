"""The executor, which passes the token of a topic: every event in every state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kit.broker.memory_broker import MemoryBroker, SteppedThread
from kit.broker.open_topic import new_topic, pending
from kit.disk.logs import encoded
from quothd.requests.events import Close, CommitStepDone, Item, Released, SyncDone
from quothd.requests.pending_request import PendingRequest
from quothd.threads.executor import QUICK_ITEMS_MAX, SLOW_S, Executor, Holder, count_quick
from quothd.threads.stall_guard import TakenOver
from quothwire.protocol.messages import Fetch, Publish, RollTopic, UpdateTopic

OPENING, FRONT, HANDLING, THREAD, ENDED = Holder


def quick() -> PendingRequest:
    """A request that the front end handles itself."""
    return pending(Publish("written"), encoded([b"x"]))


def slow() -> PendingRequest:
    """A request that the topic's thread handles."""
    return pending(RollTopic())


class Seen:
    """An executor in one of its states, and where its items are.

    thread: lists that its thread was given since then.
    """

    def __init__(self, directory: Path, holder: Holder) -> None:
        self.broker = MemoryBroker(directory, sync_interval=1.0, check_interval=60.0)
        self.executor = Executor(new_topic(), self.broker.config, self.broker.shared)
        self.stepped = cast(SteppedThread, self.executor.thread)
        if holder is not OPENING:
            self.stepped.step()
            self.executor.release(Released(0), self.now)
        if holder is HANDLING:
            self.take_over()
        elif holder is THREAD:
            self.executor.send(slow())
        elif holder is ENDED:
            self.executor.end()
        assert self.executor.holder is holder
        self.stepped.lists.clear()

    @property
    def now(self) -> float:
        return self.broker.clock.monotonic()

    def take_over(self) -> None:
        """Let a disk stall the front end while it handles a request."""
        self.broker.guard.has_taken_over = True
        self.executor.given.append(quick())
        with pytest.raises(TakenOver):
            self.executor.run(self.now)
        self.broker.guard.has_taken_over = False

    def run(self, *items: PendingRequest) -> str:
        """Give items to the executor; returns where they are then."""
        self.executor.given += items
        return self.where(bool(self.executor.run(self.now)))

    def where(self, handled: bool = False) -> str:
        """Return the place of the items: handled, with the topic's thread, or kept."""
        with_thread = "thread" if self.stepped.lists else ""
        kept = "kept" if self.executor.given else ""
        return " ".join(filter(None, ["handled" if handled else "", with_thread, kept])) or "nowhere"

    def after(self, act: Callable[[], object]) -> str:
        """Let something happen to the executor; returns where its items are then."""
        act()
        return self.where()

    def released(self, handled: int) -> str:
        """Take the token back from a thread that has handled so many lists."""
        return self.after(lambda: self.executor.release(Released(handled), self.now))

    def let_pass(self, seconds: float) -> str:
        """Let time pass until maintenance is due; returns where that is."""
        self.broker.clock.step(int(seconds * 1_000_000))
        runs = self.broker.work
        self.executor.tick(self.now)
        return "fsync" if runs.step() else self.where()


def ended(seen: Seen) -> str:
    seen.executor.given.append(quick())
    left = len(seen.executor.end())
    return f"{left} left"


def synced(seen: Seen) -> str:
    """Let the fsync become due, with an unsynced record."""
    seen.run(quick())
    seen.stepped.lists.clear()
    return seen.let_pass(2.0)


EVENTS: dict[str, Callable[[Seen], str]] = {
    "quick": lambda seen: seen.run(quick()),
    "slow": lambda seen: seen.run(slow()),
    "quick, then slow": lambda seen: seen.run(quick(), slow()),
    "nothing": lambda seen: seen.run(),
    "sent": lambda seen: seen.after(lambda: seen.executor.send(Close())),
    "fsync due": synced,
    "maintenance due": lambda seen: seen.let_pass(1_000.0),
    "released, all handled": lambda seen: seen.released(seen.executor._sent),
    "released, more sent": lambda seen: seen.released(seen.executor._sent - 1),
    "finished": lambda seen: seen.after(seen.executor.finish),
    "ended": ended,
}
NOWHERE = {holder: ("nowhere", holder) for holder in Holder}
KEPT = {holder: ("kept", holder) for holder in Holder}
TO_THREAD = dict.fromkeys(Holder, ("thread", THREAD))
TO_FRONT = dict.fromkeys(Holder, ("nowhere", FRONT))
TABLE: dict[str, dict[Holder, tuple[str, Holder]]] = {
    "quick": {**KEPT, FRONT: ("handled", FRONT), THREAD: ("thread", THREAD)},
    "slow": {**KEPT, FRONT: ("thread", THREAD), THREAD: ("thread", THREAD)},
    "quick, then slow": {**KEPT, FRONT: ("handled kept", FRONT), THREAD: ("thread", THREAD)},
    "nothing": NOWHERE,
    "sent": {**KEPT, FRONT: ("thread", THREAD), THREAD: ("thread", THREAD)},
    "fsync due": {**KEPT, FRONT: ("fsync", FRONT), THREAD: ("nowhere", THREAD)},
    "maintenance due": {**NOWHERE, FRONT: ("thread", THREAD)},
    "released, all handled": {**TO_FRONT, ENDED: ("nowhere", ENDED)},
    "released, more sent": {**NOWHERE, HANDLING: ("nowhere", FRONT)},
    "finished": {**TO_THREAD, HANDLING: ("kept", HANDLING)},
    "ended": dict.fromkeys(Holder, ("1 left", ENDED)),
}


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_in_each_state_follows_the_table(tmp_path: Path, event: str) -> None:
    for holder in Holder:
        seen = Seen(tmp_path / holder.name, holder)
        where = EVENTS[event](seen)
        assert (where, seen.executor.holder) == TABLE[event][holder], holder


def test_a_topic_that_stalled_the_front_end_runs_in_its_thread_for_a_while(tmp_path: Path) -> None:
    seen = Seen(tmp_path, HANDLING)
    seen.executor.release(Released(0), seen.now)
    assert seen.run(quick()) == "thread"
    seen.stepped.step()
    seen.executor.release(Released(1), seen.now)
    seen.broker.clock.step(int(SLOW_S * 1_000_000))
    assert seen.run(pending(Fetch())) == "handled"


def test_without_a_stall_guard_the_front_end_handles_nothing(tmp_path: Path) -> None:
    seen = Seen(tmp_path, FRONT)
    seen.broker.guard.is_there = False
    assert seen.run(quick()) == "thread"


def test_items_are_taken_before_another_thread_can_become_the_front_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(tmp_path, FRONT)
    left: list[tuple[Holder, list[Item]]] = []

    def begin(_topic: str, _now: float) -> int:
        left.append((seen.executor.holder, [*seen.executor.given]))
        return 0

    monkeypatch.setattr(seen.broker.guard, "begin", begin)
    assert seen.run(quick()) == "handled"
    assert left == [(HANDLING, [])]


def test_a_stalled_front_end_leaves_its_events_and_the_token_in_the_outbox(tmp_path: Path) -> None:
    seen = Seen(tmp_path, HANDLING)
    posted = [event for _, events in seen.broker.outbox.take(float("inf"), lambda: 0.0) for event in events]
    assert [type(event).__name__ for event in posted][-3:] == ["Answered", "Progress", "Released"]


def test_more_than_one_burst_is_handled_in_bursts(tmp_path: Path) -> None:
    seen = Seen(tmp_path, FRONT)
    assert seen.run(*(quick() for _ in range(QUICK_ITEMS_MAX + 1))) == "handled kept"
    assert len(seen.executor.given) == 1


def test_the_front_end_handles_results_of_other_threads_itself(tmp_path: Path) -> None:
    """An acknowledgement that waits for an fsync leaves without a wakeup of the topic's thread.

    A step of a commit is not: the next one writes headers.
    """
    seen = Seen(tmp_path, FRONT)
    assert seen.run(pending(Publish("synced"), encoded([b"x"]))) == "handled"
    assert seen.broker.work.step()
    ((_, [brought]),) = [
        one for one in seen.broker.outbox.take(float("inf"), lambda: 0.0) if len(one[1]) == 1
    ]
    assert isinstance(brought.item, SyncDone)  # type: ignore[union-attr]
    seen.executor.given.append(brought.item)  # type: ignore[union-attr]
    assert seen.where(bool(seen.executor.run(seen.now))) == "handled"
    assert count_quick(seen.executor.thread.topic, [CommitStepDone(cast(Any, None), None)]) == 0


def test_a_fetch_behind_large_ones_waits_for_the_thread(tmp_path: Path) -> None:
    """The first one is quick whatever it returns."""
    seen = Seen(tmp_path, FRONT)
    seen.executor.thread.topic.reads.found_bytes = 2**20
    assert seen.run(pending(Fetch()), pending(Fetch())) == "handled kept"


def test_a_publish_that_needs_another_segment_waits_for_the_thread(tmp_path: Path) -> None:
    seen = Seen(tmp_path, FRONT)
    assert seen.run(pending(UpdateTopic({"size_limit": 1_000}))) == "thread"
    seen.stepped.step()
    seen.executor.release(Released(1), seen.now)
    assert seen.run(quick()) == "handled"
    assert seen.run(pending(Publish("written"), encoded([bytes(2_000)]))) == "thread"
