"""The dead letters of a group for a command: `quoth.groups.letters` with a client that waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from quoth import Client
from quoth.core.request_state import ClientCall
from quoth.groups.letters.dead_letters import (
    LetterProblem,
    LettersLeft,
    StoredLetter,
    dead_letters,
)
from quoth.groups.letters.letter_retry import LetterRetry, RetryCounts
from quoth.message import OnGap
from quothcli.cli.exit_status import Refused

T = TypeVar("T")


class LetterBox:
    """The dead letters of one group of a topic, which lie in the topic `letters`.

    on_gap: called with letters that were removed or are damaged.
    """

    def __init__(self, client: Client, topic: str, group: str, on_gap: OnGap) -> None:
        self.topic, self.group = topic, group
        self.client = client
        self._on_gap = on_gap
        self.found = self.execute(dead_letters(client, topic, group))
        self.letters = self.found.letters

    def execute(self, call: ClientCall[T]) -> T:
        """Execute a call. Raises `Refused` for what cannot be done."""
        try:
            return self.client._run(call)
        except LetterProblem as problem:
            raise Refused(problem.code, problem.text, problem.hint) from None

    def left(self) -> LettersLeft:
        """Find out which letters are neither retried nor dropped."""
        return self.execute(self.found.left())

    def unhandled(self) -> Iterator[StoredLetter]:
        """Yield the letters of now that are neither retried nor dropped, the oldest first."""
        newest, left = self.execute(self.found.newest()), self.left()
        after = left.after
        while after < newest:
            letters, after = self.execute(self.found.page(left, after, newest, self._on_gap))
            yield from letters

    def letter(self, pointer: int) -> StoredLetter:
        """Read one letter. Raises `NotFound` ``unknown_record`` for what is no letter of this group."""
        return self.execute(self.found.letter(pointer))

    def finish(self, letters: Sequence[StoredLetter]) -> None:
        """Take note that some letters, in the order of their pointers, were retried or dropped."""
        self.execute(self.found.finish(letters))


class Redelivery:
    """Publishes the records of letters again, in the topic that they come from."""

    def __init__(self, box: LetterBox) -> None:
        self._box = box
        self._retry = LetterRetry(box.found)

    @property
    def counts(self) -> RetryCounts:
        """The outcome so far."""
        return self._retry.counts

    def retry(self, letters: list[StoredLetter]) -> None:
        """Publish the records of a few letters, and finish these once the last one is synced."""
        self._box.execute(self._retry.publish(letters))
        self._box.finish(letters)
