"""A model of a consumer group: what each record may be, and what must not happen to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from quothlog.groups.group_state import ALONE_FROM
from quothwire.protocol.group_settings import AT_MOST_ONCE, GroupSettings

Stage = Literal["new", "leased", "free", "dying", "finished"]


@dataclass(slots=True)
class ModelRecord:
    """One record for one group.

    low, high: the attempts are between them. logged: those that a restart leaves. peak: those of the last
    hand-out, which a power cut may leave of a release. is_sure: False if a power cut may have undone the
    stage. is_synced: no power cut undoes it any more.
    """

    stage: Stage = "new"
    token: int = 0
    deadline: float = 0.0
    due: float = 0.0
    low: int = 0
    high: int = 0
    logged: int = 0
    peak: int = 0
    is_sure: bool = True
    is_synced: bool = True

    def become(self, stage: Stage) -> None:
        self.stage, self.is_sure, self.is_synced = stage, True, False


@dataclass
class ConsumerGroupModel:
    """A group. lost: pointers of records that retention or a power cut has removed.

    deaths, perhaps: how often each record has certainly become a dead letter, and perhaps beyond that.
    """

    name: str
    settings: GroupSettings
    is_synced: bool
    records: dict[int, ModelRecord] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    deaths: Counter[int] = field(default_factory=Counter)
    perhaps: Counter[int] = field(default_factory=Counter)

    # -- what happens ---------------------------------------------------------------------------------------

    def hand_out(
        self, pointers: Iterable[int], token: int, attempts: int, deadline: float, now: float
    ) -> None:
        """A lease, or a hand-out without one, is in a reply."""
        for pointer in pointers:
            one = self.records[pointer]
            assert one.stage in ("new", "free") or not one.is_sure, f"{pointer} is {one.stage}"
            assert one.due <= now or not one.is_sure, f"{pointer} is due at {one.due}"
            assert one.low < attempts <= one.high + 1, (
                f"{pointer}: {attempts} attempts, of {one.low}-{one.high}"
            )
            assert attempts <= (self.settings.max_attempts or attempts)
            one.low = one.high = attempts
            one.logged = one.peak = attempts
            one.token, one.deadline, one.due = token, deadline, 0.0
            one.become("finished" if self.settings.mode == AT_MOST_ONCE else "leased")

    def expire(self, now: float) -> None:
        for one in self.records.values():
            if one.stage == "leased" and one.deadline <= now:
                self.retry(one, now + self.settings.delay(one.high))

    def retry(self, one: ModelRecord, due: float) -> None:
        """A lease ends without an ack."""
        one.token, one.due = 0, due
        if 0 < self.settings.max_attempts <= one.high:
            self.die(one)
        else:
            one.become("free")

    def release(self, one: ModelRecord) -> None:
        """A member has not begun with a record."""
        one.token, one.due = 0, 0.0
        one.low = one.high = one.logged = one.high - 1
        one.become("free")

    def finish(self, pointers: Iterable[int]) -> None:
        for pointer in pointers:
            self.records[pointer].token = 0
            self.records[pointer].become("finished")

    def die(self, one: ModelRecord) -> None:
        one.token = 0
        one.become("dying")
        self.deaths[self.pointer_of(one)] += 1

    def pointer_of(self, one: ModelRecord) -> int:
        return next(pointer for pointer, other in self.records.items() if other is one)

    def restart(self, now: float) -> None:
        """The broker has died: leases and delays are gone, what was logged is there."""
        for one in self.records.values():
            if one.stage in ("leased", "free"):
                one.stage, one.token, one.due, one.low = "free", 0, 0.0, one.logged
                if 0 < self.settings.max_attempts <= one.low:
                    one.stage, one.deadline = "leased", now + self.settings.lease
                elif 0 < self.settings.max_attempts <= one.high:
                    one.is_sure = False  # its last attempts may be forgotten
                    self.perhaps[self.pointer_of(one)] += 1

    def lose_power(self, left: set[int], now: float) -> None:
        """A power cut: what was not synced may be there or not. left: the pointers that are in the topic."""
        for one in self.records.values():
            if not self.is_synced or one.logged == 1:
                one.logged = 0
            if not one.is_synced:
                one.is_sure = False
                one.due, one.low, one.high = 0.0, one.logged, max(one.high, one.peak)
                if 0 < self.settings.max_attempts <= one.high and one.stage == "finished":
                    self.perhaps[self.pointer_of(one)] += 1  # the ack is lost, but not its last attempt
        self.restart(now)
        self.lost |= self.records.keys() - left

    def seek(self, after: int, letters: Counter[int]) -> None:
        """The group goes on above a pointer, without any lease. A dead letter that has left may come yet."""
        for pointer in self.records:
            self.perhaps[pointer] += max(0, self.deaths[pointer] - letters[pointer])
            self.deaths[pointer] = letters[pointer]
            self.records[pointer] = ModelRecord("new" if pointer > after else "finished")

    # -- what has to be -------------------------------------------------------------------------------------

    def is_certain(self, pointers: Iterable[int]) -> bool:
        """Return True if no power cut and no retention has made anything about some records uncertain."""
        return all(
            self.records[one].is_sure and one not in self.lost and not self.perhaps[one] for one in pointers
        )

    def settled(self, pointers: Iterable[int], numbered: set[int], letters: Counter[int]) -> list[int]:
        """Return the records that an ack finishes now. numbered: those whose dead letter is on its way."""
        return [
            one for one in pointers
            if self.records[one].stage != "finished"
            and not self.is_dead(one, letters)
            and one not in numbered
        ]  # fmt: skip

    def is_dead(self, pointer: int, letters: Counter[int]) -> bool:
        """Return True if the dead letter of a record is stored."""
        return self.records[pointer].stage == "dying" and letters[pointer] >= self.deaths[pointer]

    def held(self, pointers: Iterable[int], token: int) -> list[int]:
        """Return the records that have the lease of a token."""
        return [one for one in pointers if self.records[one].token == token]

    def unfinished(self, letters: Counter[int]) -> int:
        """Count records that are handed out, and certainly neither finished nor gone nor dead letters."""
        return sum(
            one.is_sure and pointer not in self.lost
            and (one.stage == "leased" or (one.stage == "free" and one.low > 0)
                 or (one.stage == "dying" and not self.is_dead(pointer, letters)))
            for pointer, one in self.records.items()
        )  # fmt: skip

    def is_anything_due(self, now: float) -> bool:
        """Return True if a fetch certainly has to find a record that was handed out before."""
        return any(
            one.is_sure and one.stage == "free" and one.due <= now and pointer not in self.lost
            for pointer, one in self.records.items()
        )

    def check_alone(self, rows: list[list[int]], records: int) -> None:
        """A record that was handed out often is handed out alone."""
        limit = min(ALONE_FROM, self.settings.max_attempts or ALONE_FROM)
        if any(attempts > 1 and attempts >= limit for _, attempts, *_ in rows):
            assert records == 1, rows

    def check_letters(self, letters: Counter[int]) -> None:
        """No record has more dead letters than it died."""
        for pointer, count in letters.items():
            assert count <= self.deaths[pointer] + self.perhaps[pointer], f"{count} dead letters of {pointer}"

    def check_end(self, letters: Counter[int]) -> None:
        """No record is lost: each is finished by a member, or a dead letter, or gone from the topic."""
        for pointer, one in self.records.items():
            if pointer not in self.lost and one.is_sure:
                assert one.stage == "finished" or letters[pointer], f"{pointer} is {one}"
