"""The batches of a producer that are in flight: sent and not settled. Uses no socket and no clock.

The broker takes sequences without a hole only. So when one is refused for now, or answers stay away, all of
them are sent again in order: the next *round*.

    ready --sent--> in flight --acknowledged--> settled
                      |  ^
    refused for now,  |  | everything in flight again, in order, under the same sequences
    or lost           +--+
                      |
    refused for good  +--> settled, and the later ones get new sequences of a new producer id

A broker takes the requests of one connection in order, so when the newest copy of a batch is answered, the
older ones have had their effect. An acknowledgement therefore counts whichever copy it is for, an error only
if it is for the newest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

from quoth.core.idempotence import FORGOTTEN, new_producer_id
from quoth.core.outgoing import Failure, OutgoingBatch
from quoth.core.request_state import BACKOFF_MAX_S, BACKOFF_S, RETRIED
from quoth.message import Ack
from quothwire.errors import BrokerFailure, QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Publish, Published

IN_FLIGHT_MAX = 32
"""Half of the results that a broker remembers for one producer, so that every retry is recognised."""
_SEQUENCES = 2**32
_PASSING = RETRIED | {"disk_low"}

P = TypeVar("P", bound=OutgoingBatch)


class Inflight(Generic[P]):
    """Batches in flight, oldest first. Owned by one thread.

    again_at: when the next round is due, or None. renumbers: a batch that is refused for good is left out,
    and the later ones get new sequences; else it fails, with all batches in flight behind it. stops: no batch
    is sent behind one that has failed; `ended` is the error then.
    """

    def __init__(
        self,
        topic: str,
        request: Publish,
        settle: Callable[[P, Ack | Failure], None],
        *,
        renumbers: bool = True,
        stops: bool = False,
    ) -> None:
        self.again_at: float | None = None
        self.ended: QuothError | None = None
        self._topic = topic
        self._request = request
        self._settle = settle
        self._renumbers = renumbers
        self._stops = stops
        self._in_flight: deque[P] = deque()
        self._producer = new_producer_id()
        self._sequence = 0
        self._round = self._first_round = 1
        self._backoff = BACKOFF_S

    def __len__(self) -> int:
        return len(self._in_flight)

    @property
    def what(self) -> str:
        """Its name in an error."""
        return f"publishing to {self._topic}"

    @property
    def has_room(self) -> bool:
        """True if another batch may be sent now."""
        return self.again_at is None and len(self._in_flight) < IN_FLIGHT_MAX

    @property
    def oldest(self) -> P | None:
        """The batch that has been in flight for longest."""
        return self._in_flight[0] if self._in_flight else None

    def launch(self, outgoing: P) -> list[bytes]:
        """Put a batch in flight and return its frames.

        Raises `QuothError` if it cannot be encoded, and the error that has `ended` it.
        """
        if self.ended is not None:
            raise self.ended
        outgoing.encode(self._producer, self._sequence + 1)
        self._sequence += 1
        self._in_flight.append(outgoing)
        return self._copy(outgoing)

    def refuse(self, parcel: P, problem: QuothError) -> None:
        """Settle a batch that was never sent."""
        self._fail(parcel, "refused", problem)

    def next_round(self) -> Iterator[list[bytes]]:
        """Return the frames of everything in flight, once more."""
        self.again_at = None
        self._round += 1
        return map(self._copy, list(self._in_flight))

    def take(self, answer: Answer, now: float) -> None:
        """Process an answer of the broker."""
        copy, sequence = divmod(answer.correlation, _SEQUENCES)
        outgoing = next((one for one in self._in_flight if one.sequence == sequence), None)
        if outgoing is None or copy < self._first_round:
            return
        reply = answer.reply
        if isinstance(reply, Published):
            self._in_flight.remove(outgoing)
            self._backoff = BACKOFF_S
            self._settle(outgoing, Ack.of(reply))
        elif isinstance(reply, QuothError):
            if not isinstance(reply, BrokerFailure):  # else this copy may have been written
                outgoing.unanswered -= 1
            if copy == outgoing.round:
                outgoing.problem = reply
                self._refused(outgoing, reply, now)

    def pause(self, now: float) -> None:
        """Plan the next round after a pause, which is longer each time."""
        if self.again_at is None:
            self.again_at = now + self._backoff
            self._backoff = min(2 * self._backoff, BACKOFF_MAX_S)

    def give_up(self, problem: QuothError) -> None:
        """Fail everything in flight: sequences have no holes, so none can arrive without the first one."""
        given_up = list(self._in_flight)
        self._in_flight.clear()
        self._renumber()
        for outgoing in given_up:
            answered = outgoing.problem
            if answered is not None and _is_certain(answered, outgoing):
                self._fail(outgoing, "refused", answered)
            else:
                self._fail(outgoing, "unknown", answered or problem)

    def _copy(self, outgoing: P) -> list[bytes]:
        outgoing.round = self._round
        outgoing.copies += 1
        outgoing.unanswered += 1
        outgoing.problem = None
        correlation = self._round * _SEQUENCES + outgoing.sequence
        return binary_codec.encode_request(self._request, correlation, self._topic, outgoing.payload)

    def _refused(self, outgoing: P, problem: QuothError, now: float) -> None:
        if outgoing is not self._in_flight[0]:
            # The outcome of the earlier ones is not known yet; the next round answers this one again.
            self.pause(now)
        elif not self._renumbers and problem.code not in _PASSING:
            self.give_up(problem)
        elif problem.code in FORGOTTEN:
            # All before it are settled, so the broker has lost or forgotten them. Go on without them.
            if outgoing.sequence == 1:
                self.pause(now)  # a correct broker does not say that of a first batch: do not hurry
            else:
                self.again_at = now
            self._renumber()
        elif problem.code in _PASSING:
            self.pause(now)
        elif not _is_certain(problem, outgoing):
            self.give_up(problem)
        else:
            self._in_flight.popleft()
            self._renumber()
            self.again_at = now
            self._fail(outgoing, "refused", problem)
            if self.ended is not None:
                self._end(self.ended)

    def _fail(self, outgoing: P, outcome: Literal["refused", "unknown"], problem: QuothError) -> None:
        if self._stops and self.ended is None:
            self.ended = problem
        self._settle(outgoing, outgoing.failure(outcome, problem))

    def _end(self, problem: QuothError) -> None:
        """Fail everything in flight, none of which is stored: the batch before it was refused for good."""
        left = list(self._in_flight)
        self._in_flight.clear()
        for outgoing in left:
            self._fail(outgoing, "refused", problem)

    def _renumber(self) -> None:
        """Renumber everything in flight, none of which is stored, under a new producer id."""
        self._producer = new_producer_id()
        self._sequence = 0
        self._first_round = self._round + 1
        for outgoing in self._in_flight:
            self._sequence += 1
            outgoing.encode(self._producer, self._sequence)
        self._round += 1


def _is_certain(problem: QuothError, outgoing: OutgoingBatch) -> bool:
    """Return True if the error for its newest copy proves that nothing of a batch was stored.

    A broker that is busy refuses without looking whether an older copy was stored. One whose disk fails may
    have written before it failed.
    """
    if isinstance(problem, BrokerFailure) or problem.code == "forgotten_sequence":
        return False
    return problem.code not in RETRIED or not outgoing.unanswered
