"""Members, retention, restarts, power cuts and dead letters in any order, against a model of each record."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kit.disk.logs import salvaged
from kit.groups.group_model import ConsumerGroupModel, ModelRecord
from kit.groups.group_topics import GroupTopic
from kit.scale import times
from quothd.groups.dead_letters import RETRY_S
from quothlog.groups import group_log
from quothwire.protocol.group_messages import GroupSettle, UpdateGroup
from quothwire.protocol.group_settings import AT_MOST_ONCE, GroupSettings
from quothwire.protocol.messages import RollTopic
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements
from quothwire.settings import TopicSettings

GROUPS: dict[str, dict[str, Any]] = {
    "usual": {"max_attempts": 4, "backoff": [0.0, 2.0], "lease": 10.0},
    "synced": {
        "durability": "synced",
        "max_attempts": 2,
        "max_in_flight": 3,
        "backoff": [1.0],
        "lease": 20.0,
    },
    "strict": {"max_in_flight": 1, "max_attempts": 0, "backoff": [0.0], "lease": 5.0},
    "once": {"mode": "at_most_once"},
}
DRAIN_ROUNDS_MAX = 500
STEPS = 40
LEASES = 8
"""So many of the last leases are settled, again and again."""


class Held(NamedTuple):
    """A lease that a member got once, and may settle as long as it likes."""

    group: str
    generation: int
    token: int
    pointers: list[int]


SMALL = range(8)
SEEDS = range(2**16)
FLAGS = (False, True)


class Act(NamedTuple):
    """A method of the machine, how often it is called among all, and the values of its arguments."""

    weight: int
    method: str
    choices: dict[str, Sequence[Any]]


ACTS = [
    Act(3, "publish", {"records": (1, 2, 3, 4), "synced": FLAGS}),
    Act(8, "fetch", {"group": SMALL, "records": (1, 2, 3, 6), "lease_ms": (0, 0, 2_500)}),
    Act(9, "settle", {
        "lease": SMALL, "low": SMALL, "high": SMALL, "every": (1, 1, 2),
        "milliseconds": (0, 1, 1, 1_500, 40_000),
        "kind": (Settle.ACK, Settle.NACK, Settle.NACK, Settle.EXTEND, Settle.TERM, Settle.RELEASE),
    }),
    Act(4, "pass_time", {"seconds": (0.1, 1.0, 3.0, RETRY_S, 11.0, 30.0)}),
    Act(1, "seek", {"group": SMALL, "record": SMALL}),
    Act(1, "pause", {"group": SMALL, "paused": (False, False, True)}),
    Act(1, "trim", {"record": SMALL, "roll": FLAGS}),
    Act(1, "refuse_letters", {"code": ("", "", "busy", "disk_low")}),
    Act(1, "hold_letters", {"holds": FLAGS}),
    Act(1, "store_a_letter_without_an_outcome", {}),
    Act(1, "compact", {}),
    Act(1, "hibernate", {}),
    Act(1, "stop", {}),
    Act(1, "kill", {}),
    Act(1, "lose_power", {"seed": SEEDS}),
    Act(1, "acknowledge_and_lose_power", {"lease": SMALL, "seed": SEEDS}),
]  # fmt: skip
WEIGHTED = [act for act in ACTS for _ in range(act.weight)]


def calls_of(act: Act) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """The calls of an act."""
    given = {name: st.sampled_from(choices) for name, choices in act.choices.items()}
    return st.tuples(st.just(act.method), st.fixed_dictionaries(given))


class GroupMachine(RuleBasedStateMachine):
    """A topic with one or two groups, and the model of each."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.topic = GroupTopic(Path(self._directory.name), settings=TopicSettings(count_limit=5))
        self.models: dict[str, ConsumerGroupModel] = {}
        self.values: dict[int, bytes] = {}
        self.held: list[Held] = []
        self.paused: set[str] = set()

    @initialize(names=st.sets(st.sampled_from([*GROUPS]), min_size=1, max_size=2))
    def begin(self, names: set[str]) -> None:
        for name in sorted(names):
            self.topic.make_group(name, **GROUPS[name])
            kept = GroupSettings.of(GROUPS[name])
            self.models[name] = ConsumerGroupModel(name, kept, kept.durability == "synced")
        self.publish(4, synced=False)

    @rule(call=st.one_of([calls_of(act) for act in WEIGHTED]))
    def step(self, call: tuple[str, dict[str, Any]]) -> None:
        method, given = call
        getattr(self, method)(**given)

    # -- producers, members and operators -------------------------------------------------------------------

    def publish(self, records: int, synced: bool) -> None:
        values = [b"%d" % (len(self.values) + row) for row in range(records)]
        pointers = self.topic.publish(*values, durability="synced" if synced else "")
        self.values.update(zip(pointers, values, strict=True))
        for model in self.models.values():
            model.records.update((pointer, ModelRecord()) for pointer in pointers)

    def fetch(self, group: int, records: int, lease_ms: int) -> None:
        name = self.name_of(group)
        model, now = self.models[name], self.now
        model.expire(now)
        found = self.topic.fetch(records, name, f"member {group}", lease_ms=lease_ms)
        pointers = found.pointers
        assert len({*pointers}) == len(pointers) <= records
        assert not (pointers and name in self.paused)
        assert pointers or name in self.paused or not model.is_anything_due(now)
        assert found.values == [self.values[pointer] for pointer in pointers]
        model.check_alone(found.rows, len(pointers))
        deadline = now + (lease_ms / 1_000 or model.settings.lease)
        for token, attempts, first, last in found.rows:
            within = found.within(first, last)
            model.hand_out(within, token, attempts, deadline, now)
            if model.settings.mode != AT_MOST_ONCE:
                self.held.append(Held(name, found.reply.generation, token, within))
        assert model.unfinished(self.letters_of(name)) <= model.settings.max_in_flight

    def settle(self, lease: int, low: int, high: int, every: int, kind: Settle, milliseconds: int) -> None:
        """Settle a part of a lease with one row, or every second record of it with a row for each."""
        held = self.held_at(lease)
        if held is None:
            return
        low, high = sorted((low % len(held.pointers), high % len(held.pointers)))
        pointers = held.pointers[low : high + 1 : every]
        model = self.models[held.group]
        numbered, letters = self.topic.numbered(pointers, held.group), self.letters_of(held.group)
        model.expire(self.now)  # the group was described
        is_sure = model.is_certain(pointers)
        ends = [(pointers[0], pointers[-1])] if every == 1 else [(one, one) for one in pointers]
        rows = [Settlement(kind, *each, held.token, milliseconds) for each in ends]
        done = self.topic.settle(*rows, group=held.group, generation=held.generation)
        if kind is Settle.ACK:
            finished = model.settled(pointers, numbered, letters)
            late = [one for one in finished if model.records[one].token != held.token]
            assert not is_sure or (done.records, done.late) == (len(finished), len(late)), done
            model.finish(finished)
            return
        mine = model.held(pointers, held.token)
        lost = {one for one in pointers for first, last in done.lost if first <= one <= last}
        assert lost == {*pointers} - {*mine}
        for one in (model.records[pointer] for pointer in mine):
            if kind is Settle.NACK:
                delay = (milliseconds - 1) / 1_000 if milliseconds else model.settings.delay(one.high)
                model.retry(one, self.now + delay)
            elif kind is Settle.EXTEND:
                one.deadline = self.now + (milliseconds / 1_000 or model.settings.lease)
            elif kind is Settle.RELEASE:
                model.release(one)
            else:
                model.die(one)

    def pass_time(self, seconds: float) -> None:
        self.topic.pass_time(seconds)

    def seek(self, group: int, record: int) -> None:
        after = [0, *self.values][-record - 1 :][0]
        self.topic.seek(after, self.name_of(group))
        self.models[self.name_of(group)].seek(after, self.letters_of(self.name_of(group)))
        self.held = [held for held in self.held if held.group != self.name_of(group)] + self.settled_in_vain(
            group
        )

    def settled_in_vain(self, group: int) -> list[Held]:
        """Settle the leases of the generation before: nothing of it has an effect."""
        name = self.name_of(group)
        for held in self.held[-LEASES:]:
            if held.group == name:
                row = Settlement(Settle.ACK, held.pointers[0], held.pointers[-1], held.token)
                done = self.topic.settle(row, group=name, generation=held.generation)
                assert (done.records, done.lost) == (0, [[row.first, row.last]])
        return []

    def pause(self, group: int, paused: bool) -> None:
        name = self.name_of(group)
        self.topic.call(UpdateGroup(name, paused=int(paused)))
        (self.paused.add if paused else self.paused.discard)(name)

    def trim(self, record: int, roll: bool) -> None:
        if roll:
            self.topic.call(RollTopic())
        self.topic.trim([*self.values][-record - 1 :][0])
        left = {one.pointer for one in salvaged(self.topic.topic.topic._log)}
        for model in self.models.values():
            model.lost |= model.records.keys() - left

    # -- dead letters ---------------------------------------------------------------------------------------

    def refuse_letters(self, code: str) -> None:
        self.topic.refuses = code

    def hold_letters(self, holds: bool) -> None:
        self.topic.holds_letters = holds
        self.topic.deliver()

    def store_a_letter_without_an_outcome(self) -> None:
        """The topic that has made it dies before it learns that."""
        if not self.topic.refuses and (letter := self.topic.take_letter()) is not None:
            self.topic.store_letter(letter)
            self.kill()

    def compact(self) -> None:
        """Compact the log of the groups, however small it is."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(group_log, "COMPACT_BYTES", 0)
            patch.setattr(group_log, "COMPACT_FACTOR", 0)
            self.topic.topic.topic.groups.compact()

    # -- deaths ---------------------------------------------------------------------------------------------

    def hibernate(self) -> None:
        self.topic.hibernate()

    def stop(self) -> None:
        self.topic.stop()
        self.synced_changes_are_noted()
        self.topic.restart()
        for model in self.models.values():
            model.restart(self.now)

    def kill(self) -> None:
        self.topic.kill()
        self.topic.restart()
        for model in self.models.values():
            model.restart(self.now)

    def lose_power(self, seed: int) -> None:
        self.synced_changes_are_noted()
        self.lose_power_now(seed)

    def acknowledge_and_lose_power(self, lease: int, seed: int) -> None:
        """An ack that is answered counts, although its fsync may not have been executed."""
        held = self.held_at(lease)
        if held is None:
            return
        model = self.models[held.group]
        numbered, letters = self.topic.numbered(held.pointers, held.group), self.letters_of(held.group)
        model.expire(self.now)
        self.synced_changes_are_noted()
        row = Settlement(Settle.ACK, held.pointers[0], held.pointers[-1], held.token)
        request = GroupSettle(held.group, 1, held.generation)
        asked = self.topic.ask(request, encode_settlements([row]))
        finished = model.settled(held.pointers, numbered, letters)
        is_certain = model.is_synced and asked in self.topic.topic.frames
        model.finish(finished)
        for pointer in finished:
            model.records[pointer].is_synced = is_certain
        self.lose_power_now(seed)

    def lose_power_now(self, seed: int) -> None:
        self.topic.lose_power(random.Random(seed))
        left = {one.pointer for one in salvaged(self.topic.topic.topic._log)}
        for model in self.models.values():
            model.lose_power(left, self.now)

    # -- what holds always ----------------------------------------------------------------------------------

    def check(self) -> None:
        self.letters_are_stored_once()
        self.memory_is_bounded()
        self.synced_changes_are_noted()

    @invariant()
    def letters_are_stored_once(self) -> None:
        for name, model in self.models.items():
            model.check_letters(self.letters_of(name))

    @invariant()
    def memory_is_bounded(self) -> None:
        if self.topic.topic.metadata.groups is not None:
            for group in self.topic.topic.metadata.groups:
                assert len(group.spans) <= len(self.values) + group.spans.unknown
                assert group.in_flight >= 0

    @invariant()
    def synced_changes_are_noted(self) -> None:
        if self.topic.is_synced:
            for model in self.models.values():
                for one in model.records.values():
                    one.is_synced = True

    @property
    def now(self) -> float:
        return self.topic.clock.monotonic()

    def name_of(self, group: int) -> str:
        return [*self.models][group % len(self.models)]

    def held_at(self, lease: int) -> Held | None:
        return self.held[-1 - lease % min(len(self.held), LEASES)] if self.held else None

    def letters_of(self, name: str) -> Counter[int]:
        return Counter(self.topic.dead_pointers(name))

    def teardown(self) -> None:
        try:
            if self.models:
                self.drain_all()
        finally:
            self.close()

    def close(self) -> None:
        self.topic.kill()
        self._directory.cleanup()

    def drain_all(self) -> None:
        """In the end members work without faults: then every record has been finished."""
        self.refuse_letters("")
        self.hold_letters(False)
        for group, name in enumerate(self.models):
            self.pause(group, paused=False)
            self.drain(group)
            self.models[name].check_end(self.letters_of(name))

    def drain(self, group: int) -> None:
        name = self.name_of(group)
        for _ in range(DRAIN_ROUNDS_MAX):
            self.held.clear()
            self.fetch(group, 6, 0)
            for held in self.held:
                self.topic.ack([[held.token, 0, held.pointers[0], held.pointers[-1]]], name)
                self.models[name].finish(held.pointers)
            info = self.topic.info(name)
            if (info.lag, info.after) == (0, info.cursor):
                break
            if not self.held:
                self.pass_time(41.0)
        assert (info.lag, info.pending, info.after) == (0, 0, info.cursor), info


GroupMachine.TestCase.settings = settings(
    max_examples=times(40, 1_000),
    stateful_step_count=times(40, 60),
)
test_groups_keep_their_promises = GroupMachine.TestCase


def test_random_histories_of_groups_keep_their_promises(rng: random.Random) -> None:
    """The same machine without Hypothesis, which repeats itself: many times as many different steps."""
    for history in range(times(60, 10_000)):
        machine, calls = GroupMachine(), []
        try:
            machine.begin({*rng.sample([*GROUPS], rng.choice((1, 2)))})
            for _ in range(STEPS):
                act = rng.choice(WEIGHTED)
                calls.append((act.method, {name: rng.choice(some) for name, some in act.choices.items()}))
                machine.step(calls[-1])
                machine.check()
            machine.drain_all()
        except BaseException:
            print(f"history {history}, groups {[*machine.models]}", *calls, sep="\n")
            raise
        finally:
            machine.close()
