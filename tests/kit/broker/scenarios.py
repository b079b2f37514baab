"""The life of a topic, step by step, and the account of what its client was told.

The client may lose the broker at any moment. What it was not told may have been stored, whole and once, or
not at all; what is found after the next start has to stay so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, Peers, code_of, replied
from kit.broker.transactions import LOADER, staged
from kit.deadlines import eventually
from kit.disk.logs import encoded, segments
from kit.machine.tracing import Call, Tracer
from quothwire.protocol import messages
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import (
    AbortTransaction,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    Fetch,
    GetStatus,
    GetTransaction,
    Publish,
    Published,
    PublishStaged,
    RollTopic,
    TrimTopic,
    UpdateTopic,
)
from quothwire.protocol.operations import Request
from quothwire.protocol.transaction import StagedPart, encode_parts
from quothwire.record import Record

DIED = "died"
"""In place of a code: the broker ended without an answer."""


class Fate(Enum):
    """What a client knows of a batch that it sent."""

    STORED = "acknowledged, or found after a start"
    ABSENT = "refused, or not found after a start"
    UNKNOWN = "nobody said"


class _Batch:
    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        self.fate = Fate.UNKNOWN
        self.first = 0


class Account:
    """What a client was told about one topic."""

    def __init__(self) -> None:
        self.seen = 0
        """The newest pointer that it was told or has read."""
        self._batches: list[_Batch] = []
        self._trimmed = 0
        self._doubtful = 0

    def sends(self, count: int, size: int) -> list[bytes]:
        """Values of the next batch, which nobody sent before."""
        number = len(self._batches)
        self._batches.append(_Batch([b"%d.%d." % (number, i) + b"-" * size for i in range(count)]))
        return self._batches[-1].values

    def hears(self, fate: Fate, first: int = 0, number: int = -1) -> None:
        """Of the batch that was sent last, or of this one; `first` is its first pointer if it is stored."""
        last = self._batches[number]
        last.fate = fate
        if fate is Fate.STORED:
            assert first > self.seen, "a pointer below one that was seen"
            last.first = first
            self.seen = first + len(last.values) - 1

    @property
    def newest(self) -> int:
        """The number of the batch that was sent last."""
        return len(self._batches) - 1

    def again(self, number: int) -> None:
        """This batch, which is not there, is sent once more."""
        self._batches[number].fate = Fate.UNKNOWN

    def was_not_written(self) -> None:
        """The batch that was sent last, unless it was acknowledged: something before its write failed."""
        if self._batches and self._batches[-1].fate is Fate.UNKNOWN:
            self.hears(Fate.ABSENT)

    def trims(self, before: int) -> None:
        """Records below may be gone, the oldest first."""
        self._trimmed = max(self._trimmed, before)

    def deletes(self) -> None:
        """Nothing of what was sent so far is ever seen again."""
        for one in self._batches:
            one.fate = Fate.ABSENT
        self.seen = self._trimmed = self._doubtful = 0

    def may_delete(self) -> None:
        """All of what was sent so far is there, or nothing."""
        self._doubtful = len(self._batches)

    def check(self, records: list[Record], *, settle: bool = False) -> None:
        """Hold it against all records of the topic. settle: what is open is as it is found here."""
        pointers = [record.pointer for record in records]
        assert pointers == sorted({*pointers}), "out of order"
        found = {record.value: record.pointer for record in records}
        assert len(found) == len(records), "stored twice"
        doubtful = self._batches[: self._doubtful]
        if doubtful and not any(value in found for one in doubtful for value in one.values):
            for one in doubtful:
                one.fate = Fate.ABSENT
        if settle:
            self._doubtful = 0
        gone = [0]
        for one in self._batches:
            there = [found.pop(value) for value in one.values if value in found]
            told = list(range(one.first, one.first + len(one.values)))
            match one.fate:
                case Fate.STORED if not there:
                    assert told[-1] < self._trimmed, f"lost: {one.values[0][:20]!r} at {one.first}"
                    gone += told
                case Fate.STORED:
                    assert there == told, f"not as acknowledged: {one.values[0][:20]!r}"
                case Fate.ABSENT:
                    assert not there, f"refused, and there: {one.values[0][:20]!r}"
                case Fate.UNKNOWN if there:
                    assert there == list(range(there[0], there[0] + len(one.values))), "a part of a batch"
            if settle and one.fate is Fate.UNKNOWN:
                one.fate, one.first = (Fate.STORED, there[0]) if there else (Fate.ABSENT, 0)
        assert not found, f"nobody sent this: {[*found]!r:.200}"
        assert not pointers or max(gone) < pointers[0], "not the oldest were trimmed"
        self.seen = max([self.seen, *pointers])


class Life:
    """A topic, its client and the client's account."""

    def __init__(self, topic: str, broker: BrokerProcess, peers: Peers) -> None:
        self.topic = topic
        self.account = Account()
        self.version = self.sent = 0
        self.staged: list[StagedPart] = []
        self.meet(broker, peers)

    def meet(self, broker: BrokerProcess, peers: Peers) -> None:
        """Go on with a broker that has just been started."""
        self.broker = broker
        self._peers = peers
        self._fast: FastPeer = peers.fast(broker)

    def leave(self) -> None:
        """Close the connection, so that nothing that is on its way reaches the next broker."""
        self._fast.close()

    # -- what is asked; each returns the code of the refusal, "" for none -----------------------------

    def create(self, settings: Mapping[str, object] | None = None) -> str:
        """Make the topic."""
        return self._code(self._ask(CreateTopic(dict(settings or {}))))

    def publish(self, count: int = 1, size: int = 10, durability: str = "written") -> str:
        """Send a batch of new values. What is refused as `storage_failed` may have been stored."""
        values = self.account.sends(count, size)
        answer = self._ask(Publish(durability), encoded(values))
        code = self._code(answer)
        if answer is not None and isinstance(answer.reply, Published):
            reply = answer.reply
            assert (reply.count, reply.duplicate, reply.durability) == (count, False, durability)
            self.account.hears(Fate.STORED, reply.first)
        elif code not in (DIED, "storage_failed"):
            self.account.hears(Fate.ABSENT)
        return code

    # -- transactions: parts of which are staged, and published as one ------------------------------------

    def stage(self, size: int = 100) -> str:
        """Stage the parts of the next version, each batch of which is answered before the next is sent."""
        self.version += 1
        self.staged = []
        values = self.account.sends(12, size)
        self.sent = self.account.newest
        for part in range(3):
            for number in range(2):
                at = part * 4 + number * 2
                request = messages.Stage(LOADER, self.version, part, 7, number)
                code = self._code(self._ask(request, staged(values[at : at + 2], self.version)))
                if code:
                    return code
            self.staged.append(StagedPart(part, 7, 2, 4))
        return ""

    def publish_staged(self) -> str:
        """Publish what was staged. What is refused as `storage_failed` may have been stored."""
        answer = self._ask(PublishStaged(LOADER, self.version, 3), encode_parts(self.staged))
        code = self._code(answer)
        if answer is not None and isinstance(answer.reply, Published):
            assert (answer.reply.count, answer.reply.durability) == (12, "synced")
            self.account.hears(Fate.STORED, answer.reply.first, self.sent)
        elif code not in (DIED, "storage_failed"):
            self.account.hears(Fate.ABSENT, number=self.sent)
        return code

    def abort(self) -> str:
        """Remove what was staged."""
        self.account.hears(Fate.ABSENT, number=self.sent)
        code = self._code(self._ask(AbortTransaction(LOADER, self.version)))
        self.staged = []
        return code

    def settle_transaction(self) -> None:
        """What was staged whole can be published, once, and lies where the account says."""
        if not self.version or not self.exists():
            return
        standing = replied(self._fast.request(GetTransaction(LOADER, self.version), self.topic))
        if standing.state == "published":
            again = self._fast.call(PublishStaged(LOADER, self.version, 0), self.topic, b"")
            assert (again.first, again.count, again.duplicate) == (standing.first, 12, True)
            self.account.check(self._fast.read_all(self.topic))
        elif len(self.staged) == 3:
            self.account.again(self.sent)
            assert not self.publish_staged()
        else:
            self._fast.call(AbortTransaction(LOADER, self.version), self.topic)
        (folder,) = self.broker.topics_directory.glob(f"{self.topic}~*")
        left = [path.name for path in folder.iterdir() if path.suffix in (".staged", ".merged", ".plan")]
        assert left == []
        self.staged = []

    def roll(self) -> str:
        """Begin a new segment."""
        return self._code(self._ask(RollTopic()))

    def trim(self) -> str:
        """Let all go that was seen so far."""
        self.account.trims(self.account.seen + 1)
        return self._code(self._ask(TrimTopic(before=self.account.seen + 1)))

    def update(self) -> str:
        """Change a setting of the topic."""
        return self._code(self._ask(UpdateTopic({"age_limit": 1e6})))

    def delete(self) -> str:
        """Delete the topic."""
        code = self._code(self._ask(DeleteTopic()))
        if not code:
            self.account.deletes()
        elif code in (DIED, "storage_failed"):
            self.account.may_delete()
        return code

    def read(self) -> str:
        """Ask for the first records."""
        return self._code(self._ask(Fetch()))

    # -- what is there ------------------------------------------------------------------------------------

    def check(self, *, settle: bool = False) -> None:
        """Read everything and hold the account against it. settle: see `Account.check`."""
        records = self._fast.read_all(self.topic) if self.exists() else []
        self.account.check(records, settle=settle)

    def exists(self) -> bool:
        """Is there such a topic?"""
        return code_of(self._fast.request(DescribeTopic(), self.topic)) != "unknown_topic"

    @property
    def problem(self) -> str:
        """What the broker says is wrong with the topic."""
        return self._fast.describe(self.topic).problem

    @property
    def segments(self) -> list[Path]:
        """The segment files of the topic, oldest first."""
        (folder,) = self.broker.topics_directory.glob(f"{self.topic}~*")
        return segments(folder)

    def sleep(self) -> None:
        """Wait until every topic has been opened and sleeps, if the broker lives that long."""

        def sleeps() -> bool:
            answer = self._answer_to(self._fast.send(GetStatus(limit=0)))
            if answer is None:
                return True
            status = replied(answer)
            return (status.active, status.counters["unopened"]) == (0, 0)

        eventually(sleeps, "all topics sleep")

    def _ask(self, request: Request, payload: bytes | None = None) -> Answer | None:
        return self._answer_to(self._fast.send(request, self.topic, payload))

    def _answer_to(self, correlation: int) -> Answer | None:
        """The answer, None if the broker has ended without giving it."""

        def comes() -> bool:
            ended = self.broker.exit_status is not None
            return bool(self._fast.socket.poll(20 if not ended else 200)) or ended

        eventually(comes, "the broker answers, or dies")
        return self._fast.answer_to(correlation) if self._fast.socket.poll(0) else None

    def _code(self, answer: Answer | None) -> str:
        return DIED if answer is None else code_of(answer)


class Step(NamedTuple):
    """One thing that is done to a topic, and what has to be done before it."""

    prepare: Callable[[Life], object]
    act: Callable[[Life], str]


def _nothing(life: Life) -> None:
    pass


def _begun(life: Life) -> None:
    assert [life.create({"count_limit": 4}), life.publish(2)] == ["", ""]


def _full(life: Life) -> None:
    _begun(life)
    assert not life.publish(2, durability="synced")


def _long(life: Life) -> None:
    _full(life)
    assert [life.publish(4), life.publish(2)] == ["", ""]


def _staged(life: Life) -> None:
    assert [life.create(), life.publish(2), life.stage()] == ["", "", ""]


def _staged_much(life: Life) -> None:
    """More than a segment, in several files a part: it becomes segments of its own."""
    assert [life.create({"size_limit": 16_384}), life.publish(2), life.stage(5_000)] == ["", "", ""]


def _asleep(life: Life) -> None:
    _begun(life)
    life.sleep()


def _then_sleep(act: Callable[[Life], str]) -> Callable[[Life], str]:
    def do_and_sleep(life: Life) -> str:
        code = act(life)
        life.sleep()
        return code

    return do_and_sleep


AWAKE = {
    "create": Step(_nothing, lambda life: life.create({"count_limit": 4})),
    "first publish": Step(_nothing, lambda life: life.publish(2)),
    "written publish": Step(_begun, Life.publish),
    "synced publish": Step(_begun, lambda life: life.publish(durability="synced")),
    "large publish": Step(_begun, lambda life: life.publish(2, 100_000, "synced")),
    "publish that rolls": Step(_full, Life.publish),
    "roll": Step(_begun, Life.roll),
    "trim": Step(_long, Life.trim),
    "update": Step(_begun, Life.update),
    "delete": Step(_long, Life.delete),
    "stage": Step(_begun, Life.stage),
    "publish of a transaction": Step(_staged, Life.publish_staged),
    "publish of a large transaction": Step(_staged_much, Life.publish_staged),
    "abort": Step(_staged, Life.abort),
}
"""Steps of a topic that nothing but they makes do anything: for a broker with the settings `PATIENT`."""

SLEEPY = {
    "publish from sleep to sleep": Step(_asleep, _then_sleep(Life.publish)),
    "read from sleep to sleep": Step(_asleep, _then_sleep(Life.read)),
}
"""Steps that end with the topic asleep: for a broker with the settings `TIRED`."""

STEPS = {**AWAKE, **SLEEPY}

PATIENT = {"worker_timeout": 60, "sync_interval": 60, "check_interval": 60}
TIRED = {**PATIENT, "worker_timeout": 0.02}


def settings_for(step: str) -> dict[str, float]:
    """The settings of a broker that a step of this name is for."""
    return dict(TIRED if step in SLEEPY else PATIENT)


class Stage:
    """A broker, the topic that nothing is done to, and the topics that something is done to."""

    def __init__(self, broker: BrokerProcess, peers: Peers, output: Path) -> None:
        self.broker = broker
        self.output = output
        self.lives: list[Life] = []
        self._peers = peers
        self.other = self.life("other")
        assert not self.other.publish()

    def life(self, topic: str = "") -> Life:
        """A topic that does not exist yet."""
        self.lives.append(Life(topic or f"t{len(self.lives)}", self.broker, self._peers))
        return self.lives[-1]

    def prepare(self, step: Step) -> Life:
        """A topic with which a step can be taken."""
        life = self.life()
        step.prepare(life)
        return life

    def rehearse(self, step: Step) -> list[Call]:
        """Take a step while nothing fails; returns the calls to files of the broker that it takes."""
        life = self.prepare(step)
        with Tracer(self.broker.pid, self.output) as tracer:
            assert not step.act(life)
        return self.own(tracer.calls)

    def own(self, calls: Sequence[Call]) -> list[Call]:
        """Those that concern the broker's directory."""
        return [call for call in calls if call.path.startswith(str(self.broker.directory))]

    def leave(self) -> None:
        """Close all connections, so that nothing on its way reaches the next broker."""
        for life in self.lives:
            life.leave()

    def meet_again(self) -> None:
        """Connect to a broker that was started."""
        for life in self.lives:
            life.meet(self.broker, self._peers)

    def meet(self) -> None:
        """Go on with a broker that was started: what is there is what was acknowledged, and stays."""
        self.meet_again()
        for life in self.lives:
            life.check(settle=True)
            life.settle_transaction()
            assert not life.publish(durability="synced")
            life.check()
            assert not life.problem
        assert self.half_made == []

    @property
    def half_made(self) -> list[str]:
        """What is left in the directory of topics that are neither there nor not there."""
        return [path.name for path in self.broker.topics_directory.glob(".*")]
