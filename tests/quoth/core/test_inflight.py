"""The pipeline of a producer against a model of a broker, joined by a link that loses and delays.

Whatever happens: acknowledged is stored once and in order, refused is not stored, unknown is stored at most
once, and every batch is settled. Only what the broker refuses for good, or a failing disk took, is not stored
once the broker is well again.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from kit.scale import times
from quoth.core.inflight import IN_FLIGHT_MAX, Inflight
from quoth.core.outgoing import Failure, ProducerBatch
from quoth.message import Ack
from quothwire import batch
from quothwire.errors import error
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Publish, Published
from quothwire.record import RecordBuffer

Settled = tuple[ProducerBatch, Ack | Failure]


class Sender:
    """A pipeline with what it settled, and batches that are numbered by their value."""

    def __init__(self) -> None:
        self.settled: list[Settled] = []
        self.pipeline: Inflight[ProducerBatch] = Inflight(
            "t", Publish(), lambda outgoing, outcome: self._settle(outgoing, outcome)
        )
        self.launched = 0

    def launch(self) -> Call:
        """Send the next batch."""
        outgoing = ProducerBatch(self.launched, RecordBuffer(1_000, 1_000))
        outgoing.records.append(b"%d" % self.launched)
        self.launched += 1
        return call_of(self.pipeline.launch(outgoing))

    def next_round(self) -> list[Call]:
        """Send everything in flight again."""
        return list(map(call_of, self.pipeline.next_round()))

    def numbers(self, kind: str) -> list[int]:
        """The batches that were settled as stored, refused or unknown, in that order."""
        return [outgoing.number for outgoing, outcome in self.settled if kind_of(outcome) == kind]

    def _settle(self, outgoing: ProducerBatch, outcome: Ack | Failure) -> None:
        self.settled.append((outgoing, outcome))


@pytest.fixture
def sender() -> Sender:
    """A pipeline in which nothing is in flight."""
    return Sender()


def kind_of(outcome: Ack | Failure) -> str:
    """Return the outcome of a batch."""
    return "stored" if isinstance(outcome, Ack) else outcome.outcome


def call_of(frames: list[bytes]) -> Call:
    """Frames as a broker reads them."""
    return binary_codec.decode_call(frames)


def header_of(call: Call) -> batch.Header:
    """Producer and sequence of a request."""
    return batch.parse_header(call.payload, 0)


def number_of(call: Call) -> int:
    """Return the number of its batch."""
    return int(batch.decode(call.payload).values[0])


def stored(call: Call, *, duplicate: bool = False) -> Answer:
    """An acknowledgement."""
    return Answer(call.correlation, Published(1, 1, 1, 1, "written", duplicate), b"")


def refused(call: Call, code: str) -> Answer:
    """An error."""
    return Answer(call.correlation, error(code, "of the test"), b"")


# -- single steps -------------------------------------------------------------------------------------------


def test_batches_go_out_under_one_producer_id_and_rising_sequences(sender: Sender) -> None:
    calls = [sender.launch() for _ in range(IN_FLIGHT_MAX)]
    assert not sender.pipeline.has_room
    assert len({header_of(call).producer for call in calls}) == 1
    assert [header_of(call).sequence for call in calls] == list(range(1, IN_FLIGHT_MAX + 1))
    for call in calls:
        sender.pipeline.take(stored(call), 0.0)
    assert sender.numbers("stored") == list(range(IN_FLIGHT_MAX))
    assert sender.pipeline.has_room
    assert not len(sender.pipeline)


def test_a_retry_is_byte_for_byte_the_same(sender: Sender) -> None:
    calls = [sender.launch() for _ in range(3)]
    again = sender.next_round()
    assert [call.payload for call in again] == [call.payload for call in calls]
    assert {call.correlation for call in again}.isdisjoint(call.correlation for call in calls)


@pytest.mark.parametrize("code", ["busy", "recovering", "stopping", "disk_low"])
def test_temporary_error_sends_all_batches_again_after_a_pause(sender: Sender, code: str) -> None:
    first, second, third = (sender.launch() for _ in range(3))
    sender.pipeline.take(refused(first, code), 10.0)
    sender.pipeline.take(refused(second, "out_of_sequence"), 10.0)
    sender.pipeline.take(refused(third, "out_of_sequence"), 10.0)
    assert sender.settled == []
    assert sender.pipeline.again_at is not None
    assert sender.pipeline.again_at > 10.0
    assert not sender.pipeline.has_room  # nothing may overtake what is sent again
    again = sender.next_round()
    assert [number_of(call) for call in again] == [0, 1, 2]
    for call in again:
        sender.pipeline.take(stored(call), 11.0)
    assert sender.numbers("stored") == [0, 1, 2]


def test_pauses_grow_until_an_acknowledgement(sender: Sender) -> None:
    call = sender.launch()
    pauses = []
    for _ in range(10):
        sender.pipeline.take(refused(call, "busy"), 0.0)
        assert sender.pipeline.again_at is not None
        pauses.append(sender.pipeline.again_at)
        (call,) = sender.next_round()
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] <= 0.5
    sender.pipeline.take(stored(call), 0.0)
    sender.pipeline.take(refused(sender.launch(), "busy"), 0.0)
    assert sender.pipeline.again_at == pauses[0]


def test_lasting_error_fails_one_batch_and_renumbers_the_later_ones(sender: Sender) -> None:
    calls = [sender.launch() for _ in range(3)]
    sender.pipeline.take(refused(calls[0], "bad_batch"), 0.0)
    again = sender.next_round()
    for call in calls[1:]:
        sender.pipeline.take(refused(call, "unknown_producer"), 0.0)  # late, and of no meaning any more
    assert sender.numbers("refused") == [0]
    assert [number_of(call) for call in again] == [1, 2]
    assert [header_of(call).sequence for call in again] == [1, 2]
    assert header_of(again[0]).producer == header_of(again[1]).producer != header_of(calls[0]).producer
    for call in again:
        sender.pipeline.take(stored(call), 0.0)
    assert sender.numbers("stored") == [1, 2]


def test_answers_to_a_former_producer_id_are_ignored(sender: Sender) -> None:
    old = sender.launch()
    sender.pipeline.take(refused(old, "bad_batch"), 0.0)
    sender.launch()
    sender.pipeline.take(stored(old), 0.0)
    assert sender.numbers("stored") == []
    assert len(sender.pipeline) == 1


GIVEN_UP = [
    # what was heard of the only copy, what that proves
    (None, "unknown"),
    ("busy", "refused"),
    ("disk_low", "refused"),
    ("out_of_sequence", "refused"),
    ("storage_failed", "unknown"),
]


@pytest.mark.parametrize(("code", "outcome"), GIVEN_UP)
def test_giving_up_reports_the_certain_outcome_of_each_batch(
    sender: Sender, code: str | None, outcome: str
) -> None:
    first, second = sender.launch(), sender.launch()
    if code is not None:
        sender.pipeline.take(refused(second, code), 0.0)
    assert first is not None
    sender.pipeline.give_up(error("disconnected", "of the test"))
    assert [kind_of(done) for _, done in sender.settled] == ["unknown", outcome]
    failures = [done for _, done in sender.settled if isinstance(done, Failure)]
    assert failures[0].error.code == "disconnected"
    assert failures[1].error.code == (code or "disconnected")


def test_busy_does_not_settle_an_older_copy(sender: Sender) -> None:
    """A broker that is busy refuses without looking whether it has the batch."""
    sender.launch()
    (again,) = sender.next_round()
    sender.pipeline.take(refused(again, "busy"), 0.0)
    sender.pipeline.give_up(error("disconnected", "of the test"))
    assert sender.numbers("unknown") == [0]


def test_busy_does_not_settle_a_copy_on_which_the_disk_failed(sender: Sender) -> None:
    sender.launch()
    failed = sender.launch()
    (_, again) = sender.next_round()
    sender.pipeline.take(refused(failed, "storage_failed"), 0.0)
    sender.pipeline.take(refused(again, "busy"), 0.0)
    sender.pipeline.give_up(error("disconnected", "of the test"))
    assert sender.numbers("unknown") == [0, 1]


def test_failing_disk_leaves_everything_in_flight_unknown(sender: Sender) -> None:
    """A refused batch may have been written, and those behind it as well."""
    calls = [sender.launch() for _ in range(3)]
    sender.pipeline.take(refused(calls[0], "storage_failed"), 0.0)
    assert sender.numbers("unknown") == [0, 1, 2]
    assert not len(sender.pipeline)
    assert sender.pipeline.has_room


# -- everything at once -------------------------------------------------------------------------------------


@dataclass
class ModelBroker:
    """A broker, as far as a producer can see it."""

    rng: random.Random
    log: list[tuple[int, int]] = field(default_factory=list)
    """Number and producer of every batch, oldest first."""
    known: dict[int, int] = field(default_factory=dict)
    """The newest sequence of every producer."""
    gone: set[int] = field(default_factory=set)
    """What was taken from it by force."""
    sick: bool = False
    has_failed: bool = False
    poison: int = -1

    def take(self, call: Call) -> Answer:
        """Answer a request."""
        if self.rng.random() < 0.05:
            return refused(call, self.rng.choice(["busy", "recovering", "stopping"]))
        if self.sick:
            return refused(call, "storage_failed")
        header, number = header_of(call), number_of(call)
        if number == self.poison:
            return refused(call, "bad_batch")
        newest = self.known.get(header.producer, 0)
        if header.sequence <= newest:
            return stored(call, duplicate=True)
        if header.sequence != newest + 1:
            return refused(call, "out_of_sequence" if newest else "unknown_producer")
        if self.rng.random() < 0.05:
            return refused(call, "disk_low")
        self.known[header.producer] = header.sequence
        self.log.append((number, header.producer))
        if self.rng.random() < 0.01:
            self.sick = self.has_failed = True
            return refused(call, "storage_failed")
        return stored(call)

    def suffer(self) -> None:
        """Lose acknowledged batches, or heal the disk."""
        match self.rng.randrange(3):
            case 0:  # the topic is made anew
                self.gone.update(number for number, _ in self.log)
                self.log.clear()
                self.known.clear()
            case 1:  # a loss of power takes the last ones
                for _ in range(min(self.rng.randint(1, 3), len(self.log))):
                    number, producer = self.log.pop()
                    self.gone.add(number)
                    self.known[producer] -= 1
            case _:
                self.sick = False


@dataclass
class Link:
    """Requests in flight, in order, and answers, in any order."""

    requests: deque[Call] = field(default_factory=deque)
    answers: list[Answer] = field(default_factory=list)


def test_random_answers_leave_an_exact_account(rng: random.Random) -> None:
    for _ in range(times(60, 10_000)):
        simulate(random.Random(rng.getrandbits(32)))


def simulate(rng: random.Random) -> None:
    """One life of a producer."""
    sender, broker, link = Sender(), ModelBroker(rng), Link()
    broker.poison = rng.randrange(60)
    suffering = rng.random() < 0.3
    now = 0.0
    while now < 400.0:
        now += 1.0
        match rng.randrange(8 if now < 200.0 else 6):
            case 0 | 1 if sender.pipeline.has_room and sender.launched < 50:
                link.requests.append(sender.launch())
            case 2 | 3 if link.requests:
                answer = broker.take(link.requests.popleft())
                if rng.random() > 0.1 or now >= 200.0:
                    link.answers.append(answer)
            case 4 if link.answers:
                sender.pipeline.take(link.answers.pop(rng.randrange(len(link.answers))), now)
            case 5 if (sender.pipeline.again_at or now + 1.0) <= now or not link.requests:
                link.requests.extend(sender.next_round())
            case 6 if rng.random() < 0.2:  # the connection is cut: a part arrived, no answer will
                for _ in range(rng.randint(0, len(link.requests))):
                    broker.take(link.requests.popleft())
                link.requests.clear()
                link.answers.clear()
                sender.pipeline.again_at = now
            case 7 if suffering and rng.random() < 0.1:
                broker.suffer()
    if rng.random() < 0.5:
        sender.pipeline.give_up(error("disconnected", "the end"))
    else:
        recover(sender, broker)
    judge(sender, broker)


def recover(sender: Sender, broker: ModelBroker) -> None:
    """Rounds over a connection that loses nothing, with a broker that is well again, settle everything."""
    broker.sick = False
    for _ in range(100):
        for answer in [broker.take(call) for call in sender.next_round()]:
            sender.pipeline.take(answer, 0.0)
        broker.sick = False
        if not len(sender.pipeline):
            break
    assert not len(sender.pipeline)
    if not broker.has_failed:  # else batches behind the one that failed were given up
        assert set(sender.numbers("refused")) <= {broker.poison}


def judge(sender: Sender, broker: ModelBroker) -> None:
    """Check the account."""
    settled = Counter(outgoing.number for outgoing, _ in sender.settled)
    assert settled == Counter(range(sender.launched)), "every batch is settled once"
    log = [number for number, _ in broker.log]
    assert len(set(log)) == len(log), "nothing is stored twice"
    assert set(sender.numbers("stored")) - set(log) <= broker.gone, "what is acknowledged is stored"
    assert log == sorted(log), "in order"
    assert not set(sender.numbers("refused")) & set(log), "what is refused is not stored"
