"""The steps that a topic can go through while its broker fails or dies, each checked against an account."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, Peers, code_of, replied
from kit.broker.transactions import LOADER, staged
from kit.client.topic_account import Account, Fate
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

DIED = "died"
"""The code of a request whose broker ended without an answer."""


class Life:
    def __init__(self, topic: str, broker: BrokerProcess, peers: Peers) -> None:
        self.topic = topic
        self.account = Account()
        self.version = self.sent = 0
        self.staged: list[StagedPart] = []
        self.meet(broker, peers)

    def meet(self, broker: BrokerProcess, peers: Peers) -> None:
        """Connect to a broker that has just started."""
        self.broker = broker
        self._peers = peers
        self._fast: FastPeer = peers.fast(broker)

    def leave(self) -> None:
        """Close the connection, so that no request reaches the next broker."""
        self._fast.close()

    # -- requests; each returns the code of the error, "" for a reply -------------------------------

    def create(self, settings: Mapping[str, object] | None = None) -> str:
        return self._code(self._ask(CreateTopic(dict(settings or {}))))

    def publish(self, count: int = 1, size: int = 10, durability: str = "written") -> str:
        """Send a batch of new values. A batch that fails as `storage_failed` may have been stored."""
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

    # -- transactions -------------------------------------------------------------------------------------

    def stage(self, size: int = 100) -> str:
        """Stage the parts of the next version, one batch after the other."""
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
        """Publish the staged parts. What fails as `storage_failed` may have been stored."""
        answer = self._ask(PublishStaged(LOADER, self.version, 3), encode_parts(self.staged))
        code = self._code(answer)
        if answer is not None and isinstance(answer.reply, Published):
            assert (answer.reply.count, answer.reply.durability) == (12, "synced")
            self.account.hears(Fate.STORED, answer.reply.first, self.sent)
        elif code not in (DIED, "storage_failed"):
            self.account.hears(Fate.ABSENT, number=self.sent)
        return code

    def abort(self) -> str:
        """Remove the staged parts."""
        self.account.hears(Fate.ABSENT, number=self.sent)
        code = self._code(self._ask(AbortTransaction(LOADER, self.version)))
        self.staged = []
        return code

    def settle_transaction(self) -> None:
        """Publish what was staged whole, once, and compare it with the account."""
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
        return self._code(self._ask(RollTopic()))

    def trim(self) -> str:
        """Trim all that was seen so far."""
        self.account.trims(self.account.seen + 1)
        return self._code(self._ask(TrimTopic(before=self.account.seen + 1)))

    def update(self) -> str:
        """Change a setting of the topic."""
        return self._code(self._ask(UpdateTopic({"age_limit": 1e6})))

    def delete(self) -> str:
        code = self._code(self._ask(DeleteTopic()))
        if not code:
            self.account.deletes()
        elif code in (DIED, "storage_failed"):
            self.account.may_delete()
        return code

    def read(self) -> str:
        """Ask for the first records."""
        return self._code(self._ask(Fetch()))

    # -- stored state -----------------------------------------------------------------------------------

    def check(self, *, settle: bool = False) -> None:
        """Compare all records with the account. settle: see `Account.check`."""
        records = self._fast.read_all(self.topic) if self.exists() else []
        self.account.check(records, settle=settle)

    def exists(self) -> bool:
        return code_of(self._fast.request(DescribeTopic(), self.topic)) != "unknown_topic"

    @property
    def problem(self) -> str:
        """Return the problem that the broker reports for the topic."""
        return self._fast.describe(self.topic).problem

    @property
    def segments(self) -> list[Path]:
        (folder,) = self.broker.topics_directory.glob(f"{self.topic}~*")
        return segments(folder)

    def sleep(self) -> None:
        """Wait until every topic has been opened and hibernates, or the broker has ended."""

        def sleeps() -> bool:
            answer = self._answer_to(self._fast.send(GetStatus(limit=0)))
            if answer is None:
                return True
            status = replied(answer)
            return (status.active, status.counters["unopened"]) == (0, 0)

        eventually(sleeps, "all topics hibernate")

    def _ask(self, request: Request, payload: bytes | None = None) -> Answer | None:
        return self._answer_to(self._fast.send(request, self.topic, payload))

    def _answer_to(self, correlation: int) -> Answer | None:
        """Return the answer, None if the broker has ended without it."""

        def comes() -> bool:
            ended = self.broker.exit_status is not None
            return bool(self._fast.socket.poll(20 if not ended else 200)) or ended

        eventually(comes, "the broker answers, or dies")
        return self._fast.answer_to(correlation) if self._fast.socket.poll(0) else None

    def _code(self, answer: Answer | None) -> str:
        return DIED if answer is None else code_of(answer)


class Step(NamedTuple):
    """An action on a topic, and its preparation."""

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
    """Stage more than a segment, in several files a part: it becomes segments of its own."""
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
"""Steps of an open topic without background work: for a broker with the settings `PATIENT`."""

SLEEPY = {
    "publish from sleep to sleep": Step(_asleep, _then_sleep(Life.publish)),
    "read from sleep to sleep": Step(_asleep, _then_sleep(Life.read)),
}
"""Steps that end with the topic hibernating: for a broker with the settings `TIRED`."""

STEPS = {**AWAKE, **SLEEPY}

PATIENT = {"worker_timeout": 60, "sync_interval": 60, "check_interval": 60}
TIRED = {**PATIENT, "worker_timeout": 0.02}


def settings_for(step: str) -> dict[str, float]:
    """Return the settings of the broker that a step is for."""
    return dict(TIRED if step in SLEEPY else PATIENT)


class Stage:
    """A broker, a topic that no fault concerns, and the topics of the steps."""

    def __init__(self, broker: BrokerProcess, peers: Peers, output: Path) -> None:
        self.broker = broker
        self.output = output
        self.lives: list[Life] = []
        self._peers = peers
        self.other = self.life("other")
        assert not self.other.publish()

    def life(self, topic: str = "") -> Life:
        """Return a topic that does not exist yet."""
        self.lives.append(Life(topic or f"t{len(self.lives)}", self.broker, self._peers))
        return self.lives[-1]

    def prepare(self, step: Step) -> Life:
        """Return a topic that is prepared for a step."""
        life = self.life()
        step.prepare(life)
        return life

    def rehearse(self, step: Step) -> list[Call]:
        """Take a step without a fault; returns its calls to files of the broker."""
        life = self.prepare(step)
        with Tracer(self.broker.pid, self.output) as tracer:
            assert not step.act(life)
        return self.own(tracer.calls)

    def own(self, calls: Sequence[Call]) -> list[Call]:
        """Return the calls that concern the broker's directory."""
        return [call for call in calls if call.path.startswith(str(self.broker.directory))]

    def leave(self) -> None:
        """Close all connections, so that no request reaches the next broker."""
        for life in self.lives:
            life.leave()

    def meet_again(self) -> None:
        """Connect to the broker again after a start."""
        for life in self.lives:
            life.meet(self.broker, self._peers)

    def meet(self) -> None:
        """Connect to the broker after a start, and check that it holds what was acknowledged."""
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
        """Return the names of unfinished topics in the directory of topics."""
        return [path.name for path in self.broker.topics_directory.glob(".*")]
