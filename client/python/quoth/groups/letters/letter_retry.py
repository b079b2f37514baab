"""Publishes the records of dead letters again, each once.

The letters of a group are a producer for the topic of their records, and the pointer of a letter is its
sequence: a sparse numbering, so the broker takes any higher one, and recognises the last 64 of them for a
week. A letter below the newest one that was retried is not taken by that producer. It goes to the next one of
a series: a letter is tried with each of them until one takes it, or recognises it. So a letter finds its
producer again, in which order ever letters are retried. One that no producer recognises any more may have
been retried by another command meanwhile: then it is not left, and is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from quoth.columns import columns
from quoth.core import calls
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.groups.letters.dead_letters import GroupLetters, LetterProblem, LettersLeft, StoredLetter
from quoth.message import Ack, Message
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import Conflict, Damaged, NotFound
from quothwire.protocol.messages import Publish, Published

CHUNK = 32
"""Letters that are published before they are acknowledged: fewer than the results that the broker keeps of a
producer, so that all of them are recognised after a crash in between."""
SERIES_MAX = 1_000
"""Producers of one group. Each stands for a time at which older letters were retried than before."""
_NOT_TAKEN = ("out_of_sequence", "forgotten_sequence")


@dataclass(slots=True)
class RetryCounts:
    """The outcome. duplicates: letters that an earlier attempt has published, and that came no second time.

    handled: letters that another command has retried or dropped meanwhile. first, last: the lowest and the
    highest pointer of the records in their topic, 0 for none.
    """

    retried: int = 0
    duplicates: int = 0
    handled: int = 0
    first: int = 0
    last: int = 0

    def add(self, ack: Ack) -> None:
        """Count a record."""
        self.retried += 1
        self.duplicates += ack.duplicate
        self.first = min(self.first or ack.first, ack.first)
        self.last = max(self.last, ack.last)


class LetterRetry:
    """Publishes the records of letters again, in the topic that they come from."""

    def __init__(self, letters: GroupLetters) -> None:
        self.counts = RetryCounts()
        self._client = letters.client
        self._letters = letters
        self._log = 0
        """The identity of the log of the letters, whose topic is there once there is a letter."""
        self._left: LettersLeft | None = None
        """The letters that were left when one was not taken."""

    def publish(self, letters: Sequence[StoredLetter]) -> ClientCall[None]:
        """Publish the records of at most `CHUNK` letters; the last one is synced.

        `GroupLetters.finish` is to follow.
        """
        for letter in letters:
            durability = "synced" if letter is letters[-1] else ""
            ack = (yield from self._publish(letter, durability)) if self._is_left(letter) else None
            if ack is not None:
                self.counts.add(ack)
            else:
                self.counts.handled += 1

    def _is_left(self, letter: StoredLetter) -> bool:
        return self._left is None or self._left.has(letter.pointer)

    def _publish(self, letter: StoredLetter, durability: str) -> ClientCall[Ack | None]:
        """Publish the record of a letter; return None if it turns out that the letter is not left."""
        topic, message = self._letters.topic, letter.message
        if not self._log:
            self._log = (yield from calls.topic(self._client, self._letters.letters)).log
        headers = letter.headers
        if not (message.value or message.key or headers):
            message = yield from self._whole(letter)
            headers = dict(message.headers)
        taken = columns(message.value, message.key, headers or None)
        deadline = deadline_in(self._client.timeout)
        for number in range(SERIES_MAX):
            payload = batch.encode(
                *taken,
                producer=self._producer(number),
                sequence=letter.pointer,
                flags=int(Flag.SPARSE | Flag.START),
            )
            try:
                reply = (yield RequestState(Publish(durability), topic, payload, deadline=deadline)).reply
            except Conflict as problem:
                if problem.code not in _NOT_TAKEN:
                    raise
                if number == 0:
                    self._left = yield from self._letters.left()
                    if not self._is_left(letter):
                        return None
            else:
                assert isinstance(reply, Published)
                return Ack.of(reply)
        text = f"the letter {letter.pointer} is older than those that were retried {SERIES_MAX:,} times"
        raise LetterProblem(
            "not_retried", text, "`quoth group dead show` prints it, `quoth pub` publishes it"
        )

    def _producer(self, number: int) -> int:
        letters = self._letters
        named = f"retry {self._log:016x} {letters.topic}/{letters.group} {number}"
        return xxh3_64_intdigest(named.encode()) or 1

    def _whole(self, letter: StoredLetter) -> ClientCall[Message]:
        """Read the record of a letter without content: it was empty, too large for a letter, or damaged."""
        try:
            return (yield from calls.get(self._client, self._letters.topic, letter.original))
        except (Damaged, NotFound):
            text = f"the letter {letter.pointer} has no content, and its record cannot be read any more"
            hint = "`quoth group dead drop` lets the others be retried"
            raise LetterProblem("not_retried", text, hint) from None
