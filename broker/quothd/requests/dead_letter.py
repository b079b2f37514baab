"""The publish of a dead letter: a request that a topic makes, and another topic answers.

Its answer is frames as any other, with an empty one in place of the client's address: the front end takes
them as an item for the topic that has made the request.

Each group is a producer, whose id is not secret: log id and number of the group make it. So these ids are
kept for the broker. A client that published under one could let letters look like repeated ones.
"""

from __future__ import annotations

from typing import Any, ClassVar

from xxhash import xxh3_64_intdigest

from quothd.connections.connection import FRAME_BYTES, unwatched
from quothd.requests.events import DeadLetter, DeadLetterDone
from quothd.requests.pending_request import PendingRequest
from quothwire import batch
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.messages import Operation, Publish, Reply

NUMBERS_FROM = 2**62
"""Lower numbers are from brokers whose letters had ids that clients may use, too. Such a letter keeps its id:
it may be stored."""
LETTERS = bytes.fromhex("1eadde")
"""The last bytes of these ids in a batch, where ids are little-endian. One of 16 million random ids
has them."""
LETTERS_AT = slice(37, 40)
"""The place of these bytes in a batch."""
_HASHED_BYTES = 5


def producer_of_letter(log_id: int, group: int, number: int) -> int:
    """Return the producer id of a letter with a number, of the group with a number in a log."""
    hashed = xxh3_64_intdigest(f"{log_id:016x} {group}".encode())
    if number < NUMBERS_FROM:
        return hashed or 1
    return int.from_bytes(hashed.to_bytes(8, "little")[:_HASHED_BYTES] + LETTERS, "little")


class DeadLetterResponder:
    """Makes the answer of a dead letter's publish. origin: the topic whose record it is."""

    __slots__ = ("_letter", "origin")
    sees_records_alone: ClassVar[bool] = False
    opens_groups: ClassVar[bool] = False

    def __init__(self, origin: str, letter: DeadLetter) -> None:
        self.origin = origin
        self._letter = letter

    def request(self) -> Any:
        """Return the request, answered once the letter survives a power cut: then its record is finished."""
        return Publish("synced")

    def payload(self) -> batch.Bytes:
        """Return the batch."""
        return self._letter.batch

    def reply(self, _reply: Reply, _payload: batch.Bytes | None = None) -> Frames:
        """Return the frames for a letter that was stored."""
        return self._frames()

    def refuse(self, problem: QuothError) -> Frames:
        """Return the frames for a letter that was not stored."""
        return self._frames(problem.code.encode(), problem.text.encode("utf-8", "replace"))

    def _frames(self, *problem: bytes) -> Frames:
        letter = self._letter
        return [b"", self.origin.encode(), letter.group.encode(), b"%d" % letter.number, *problem]


def publish_of(origin: str, letter: DeadLetter) -> PendingRequest:
    """Return the request that publishes a letter."""
    responder, size = DeadLetterResponder(origin, letter), len(letter.batch) + FRAME_BYTES
    return PendingRequest(responder, Operation.PUBLISH, letter.topic, size, unwatched())


def outcome_of(frames: Frames) -> tuple[str, DeadLetterDone]:
    """Return the topic that has made the letter, and what it is to know."""
    _, origin, group, number, *problem = (bytes(frame).decode() for frame in frames)
    failure = error(problem[0], problem[1]) if problem else None
    return origin, DeadLetterDone(group, int(number), failure)
