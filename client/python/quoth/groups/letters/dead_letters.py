"""The dead letters of a group: reads them from their topic, and knows which are handled.

A log cannot delete a single record. So a letter stays in its topic, and a group of that topic, `HANDLED`,
acknowledges it once it was retried or dropped: what that group has not finished is what is left to do. A
letter is acknowledged without a lease. For that it has to be handed out once, see `GroupLetters.finish`; the
leases of this group end at once, and its backoff is as long as can be, so nothing is handed out twice soon.

Each function returns a call, which a client of either kind executes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from quoth.core import calls
from quoth.core.calls import ClientState, ask
from quoth.core.options import deadline_in
from quoth.core.paging import PageReader, ReadOptions
from quoth.core.request_state import ClientCall, RequestState
from quoth.groups.calls import GroupWork, info, pending
from quoth.groups.options import group_options
from quoth.message import Message, OnGap
from quothwire.errors import NotFound, error
from quothwire.protocol.group_messages import (
    DescribeGroup,
    GroupFetch,
    GroupFetched,
    GroupInfo,
    GroupSettle,
    OpenGroup,
)
from quothwire.protocol.group_settings import IN_FLIGHT_MAX, LEASE_S_MAX, LEASE_S_MIN, NAMES, GroupSettings
from quothwire.protocol.settlement import ROWS_MAX, Settle, Settlement, encode_settlements
from quothwire.topic import TOPIC_BYTES_MAX

HANDLED = "quoth-handled"
"""The group of a dead-letter topic that has finished the letters that were retried or dropped."""
_HANDLED_SETTINGS: dict[str, Any] = {
    "lease": LEASE_S_MIN,
    "backoff": [LEASE_S_MAX],
    "max_in_flight": IN_FLIGHT_MAX,
    "max_attempts": 0,
    "dead_letter": "",
}
_PAGE = 1_000
"""Records that are read at once."""
_HANDED_OUT = 10_000
"""Letters that the group hands out at once, at most a MiB of them."""
_ABOUT = ("topic", "pointer", "group", "attempts", "member", "reason")
ABOUT = frozenset(f"quoth-{name}" for name in _ABOUT)
"""The headers by which a letter says where it comes from."""


class LetterProblem(Exception):
    """Raised for what cannot be done with letters: a code that no broker sends, a text, a hint."""

    def __init__(self, code: str, text: str, hint: str) -> None:
        super().__init__(code, text, hint)
        self.code, self.text, self.hint = code, text, hint


class StoredLetter(NamedTuple):
    """A dead letter. pointer: its own. original: that of its record. message: as it lies in its topic."""

    pointer: int
    original: int
    attempts: int
    member: str
    reason: str
    message: Message

    @classmethod
    def of(cls, message: Message, topic: str, group: str) -> Self | None:
        """Return the letter in a record; None if it is none of a group of a topic."""
        about = {
            name: message.headers.get(f"quoth-{name}", b"").decode("utf-8", "replace") for name in _ABOUT
        }
        numbers = about["pointer"], about["attempts"]
        if (about["topic"], about["group"]) != (topic, group) or not all(map(_is_number, numbers)):
            return None
        original, attempts = map(int, numbers)
        return cls(message.pointer, original, attempts, about["member"], about["reason"], message)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of its record."""
        return {name: value for name, value in self.message.headers.items() if name not in ABOUT}


@dataclass(frozen=True, slots=True)
class LettersLeft:
    """The letters that are neither retried nor dropped: those in some ranges, and above the cursor.

    after: there is none up to this pointer.
    """

    after: int = 0
    cursor: int = 0
    ranges: Sequence[tuple[int, int]] = ()

    def has(self, pointer: int) -> bool:
        """Return True for a letter that is left."""
        if pointer > self.cursor:
            return True
        row = bisect_left(self.ranges, (pointer + 1,)) - 1
        return row >= 0 and self.ranges[row][0] <= pointer <= self.ranges[row][1]


class GroupLetters:
    """The dead letters of one group of a topic, which lie in the topic `letters`. See `dead_letters`."""

    def __init__(self, client: ClientState, topic: str, group: str, letters: str) -> None:
        self.topic, self.group, self.letters = topic, group, letters
        self.client = client

    def newest(self) -> ClientCall[int]:
        """Return the pointer of the newest record of the topic of the letters, 0 if there is none."""
        try:
            found = yield from calls.topic(self.client, self.letters)
        except NotFound:
            return 0
        return found.last

    def left(self) -> ClientCall[LettersLeft]:
        """Find out which letters are neither retried nor dropped."""
        handled = _group(self.client, self.letters, HANDLED)
        try:
            found = yield from info(handled)
            ranges = yield from pending(handled)
        except NotFound:
            return LettersLeft()
        return LettersLeft(found.after, found.cursor, [(one.first, one.last) for one in ranges])

    def page(
        self, left: LettersLeft, after: int, until: int, on_gap: OnGap | None, limit: int = _PAGE
    ) -> ClientCall[tuple[list[StoredLetter], int]]:
        """Read the letters that are left among the next records, and return up to where they reach.

        It returns `until` once there are no further ones.
        """
        options = ReadOptions(self.letters, after, False, until, limit, 0.0, on_gap)
        found = yield from PageReader(options).read(options, self.client.timeout)
        letters = [
            letter
            for message in found
            if left.has(message.pointer)
            and (letter := StoredLetter.of(message, self.topic, self.group)) is not None
        ]
        return letters, found[-1].pointer if found else until

    def letter(self, pointer: int) -> ClientCall[StoredLetter]:
        """Read one letter. Raises `NotFound` ``unknown_record`` for what is no letter of this group."""
        message = yield from calls.get(self.client, self.letters, pointer)
        letter = StoredLetter.of(message, self.topic, self.group)
        if letter is None:
            text = f"the record {pointer} of topic {self.letters!r} is no dead letter of group {self.group!r}"
            raise error("unknown_record", text, "`quoth group dead ls` lists them")
        return letter

    def finish(self, letters: Sequence[StoredLetter]) -> ClientCall[None]:
        """Take note that some letters, in the order of their pointers, were retried or dropped."""
        yield from _hand_out(self.client, self.letters, letters[-1].pointer)
        for begin in range(0, len(letters), ROWS_MAX):
            part = [one.pointer for one in letters[begin : begin + ROWS_MAX]]
            yield from _acknowledge(self.client, self.letters, part)


def dead_letters(client: ClientState, topic: str, group: str) -> ClientCall[GroupLetters]:
    """Find the topic of the letters of a group. A group that was deleted had the default one.

    Raises `NotFound`, or `LetterProblem` ``no_dead_letters`` for a group without one.
    """
    try:
        settings = (yield from info(_group(client, topic, group))).settings
        known = {name: value for name, value in settings.items() if name in NAMES}
        found = GroupSettings.of(known).dead_letter_topic(topic, group)
    except NotFound as problem:
        found = GroupSettings().dead_letter_topic(topic, group)
        is_possible = problem.code == "unknown_group" and len(found.encode()) <= TOPIC_BYTES_MAX
        if not (is_possible and (yield from _is_there(client, found))):
            raise
    if not found:
        hint = "`quoth group set --dead-letter TOPIC` names a topic for those to come"
        text = f"group {group!r} of topic {topic!r} writes no dead letters"
        raise LetterProblem("no_dead_letters", text, hint)
    return GroupLetters(client, topic, group, found)


def _group(client: ClientState, topic: str, name: str) -> GroupWork:
    return GroupWork(client, group_options(topic, name, "begin", {}, create=False))


def _is_there(client: ClientState, topic: str) -> ClientCall[bool]:
    try:
        yield from calls.topic(client, topic)
    except NotFound:
        return False
    return True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


# -- the group of the letters that are handled --------------------------------------------------------------


def _hand_out(client: ClientState, topic: str, until: int) -> ClientCall[None]:
    """Let the group hand out everything up to a pointer, once. Creates the group."""
    opening = OpenGroup(HANDLED, 0, _HANDLED_SETTINGS)
    state = yield from ask(GroupInfo, opening, topic, timeout=client.timeout)
    cursor = state.cursor
    while cursor < until:
        reply = yield from ask(
            GroupFetched, GroupFetch(HANDLED, records_max=_HANDED_OUT), topic, timeout=client.timeout
        )
        if reply.leases:
            cursor = max(cursor, *(last for *_, last in reply.leases))
            continue
        state = yield from ask(GroupInfo, DescribeGroup(HANDLED), topic, timeout=client.timeout)
        if state.cursor < until:
            text = f"{state.pending:,} older letters of topic {topic!r} are neither retried nor dropped"
            raise LetterProblem("too_many_letters", text, "begin with the oldest, or raise group_pending_max")
        cursor = state.cursor


def _acknowledge(client: ClientState, topic: str, pointers: Iterable[int]) -> ClientCall[None]:
    """Finish records that were handed out, whether they are under a lease or not."""
    rows = [Settlement(Settle.ACK, pointer, pointer) for pointer in pointers]
    payload = encode_settlements(rows)
    settle = GroupSettle(HANDLED, len(rows))
    yield RequestState(settle, topic, payload, deadline=deadline_in(client.timeout))
