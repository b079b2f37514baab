"""The dead letters of a group: reads them from their topic, and knows which are handled.

A log cannot delete a single record. So a letter stays in its topic, and a group of that topic, `HANDLED`,
acknowledges it once it was retried or dropped: what that group has not finished is what is left to do. A
letter is acknowledged without a lease. For that it has to be handed out once, see `LetterBox.finish`; the
leases of this group end at once, and its backoff is as long as can be, so nothing is handed out twice soon.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from quoth import Client, Message
from quoth.core.calls import ask
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import OnGap
from quothcli.cli.exit_status import Refused
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


class LetterBox:
    """The dead letters of one group of a topic, which lie in the topic `letters`.

    on_gap: called with letters that were removed or are damaged.
    """

    def __init__(self, client: Client, topic: str, group: str, on_gap: OnGap) -> None:
        self.topic, self.group = topic, group
        self.letters = _letters_topic(client, topic, group)
        self.client = client
        self._on_gap = on_gap

    def newest(self) -> int:
        """Return the pointer of the newest record of the topic of the letters, 0 if there is none."""
        try:
            return self.client.topic(self.letters).last
        except NotFound:
            return 0

    def left(self) -> LettersLeft:
        """Find out which letters are neither retried nor dropped."""
        handled = self.client.group(self.letters, HANDLED, create=False)
        try:
            info, pending = handled.info(), handled.pending()
        except NotFound:
            return LettersLeft()
        return LettersLeft(info.after, info.cursor, [(one.first, one.last) for one in pending])

    def unhandled(self) -> Iterator[StoredLetter]:
        """Yield the letters of now that are neither retried nor dropped, the oldest first."""
        newest, left = self.newest(), self.left()
        after = left.after
        while after < newest:
            found = self.client.read(
                self.letters, after=after, until=newest + 1, limit=_PAGE, on_gap=self._on_gap
            )
            if not found:
                return
            after = found[-1].pointer
            for message in found:
                letter = (
                    StoredLetter.of(message, self.topic, self.group) if left.has(message.pointer) else None
                )
                if letter is not None:
                    yield letter

    def letter(self, pointer: int) -> StoredLetter:
        """Read one letter. Raises `NotFound` ``unknown_record`` for what is no letter of this group."""
        letter = StoredLetter.of(self.client.get(self.letters, pointer), self.topic, self.group)
        if letter is None:
            text = f"the record {pointer} of topic {self.letters!r} is no dead letter of group {self.group!r}"
            raise error("unknown_record", text, "`quoth group dead ls` lists them")
        return letter

    def finish(self, letters: Sequence[StoredLetter]) -> None:
        """Take note that some letters, in the order of their pointers, were retried or dropped."""
        self.client._run(_hand_out(self.client, self.letters, letters[-1].pointer))
        for begin in range(0, len(letters), ROWS_MAX):
            part = [one.pointer for one in letters[begin : begin + ROWS_MAX]]
            self.client._run(_acknowledge(self.client, self.letters, part))


def _letters_topic(client: Client, topic: str, group: str) -> str:
    """Return the topic of the letters of a group. One that was deleted had the default one.

    Raises `NotFound`, or `Refused` ``no_dead_letters`` for a group without one.
    """
    try:
        settings = client.group(topic, group, create=False).info().settings
        known = {name: value for name, value in settings.items() if name in NAMES}
        found = GroupSettings.of(known).dead_letter_topic(topic, group)
    except NotFound as problem:
        found = GroupSettings().dead_letter_topic(topic, group)
        if (
            problem.code != "unknown_group"
            or len(found.encode()) > TOPIC_BYTES_MAX
            or not _is_there(client, found)
        ):
            raise
    if not found:
        hint = "`quoth group set --dead-letter TOPIC` names a topic for those to come"
        raise Refused("no_dead_letters", f"group {group!r} of topic {topic!r} writes no dead letters", hint)
    return found


def _is_there(client: Client, topic: str) -> bool:
    try:
        client.topic(topic)
    except NotFound:
        return False
    return True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


# -- the group of the letters that are handled --------------------------------------------------------------


def _hand_out(client: Client, topic: str, until: int) -> ClientCall[None]:
    """Let the group hand out everything up to a pointer, once. Creates the group."""
    opening = OpenGroup(HANDLED, 0, _HANDLED_SETTINGS)
    info = yield from ask(GroupInfo, opening, topic, timeout=client.timeout)
    cursor = info.cursor
    while cursor < until:
        reply = yield from ask(
            GroupFetched, GroupFetch(HANDLED, records_max=_HANDED_OUT), topic, timeout=client.timeout
        )
        if reply.leases:
            cursor = max(cursor, *(last for *_, last in reply.leases))
            continue
        info = yield from ask(GroupInfo, DescribeGroup(HANDLED), topic, timeout=client.timeout)
        if info.cursor < until:
            text = f"{info.pending:,} older letters of topic {topic!r} are neither retried nor dropped"
            raise Refused("too_many_letters", text, "begin with the oldest, or raise group_pending_max")
        cursor = info.cursor


def _acknowledge(client: Client, topic: str, pointers: Iterable[int]) -> ClientCall[None]:
    """Finish records that were handed out, whether they are under a lease or not."""
    rows = [Settlement(Settle.ACK, pointer, pointer) for pointer in pointers]
    payload = encode_settlements(rows)
    settle = GroupSettle(HANDLED, len(rows))
    yield RequestState(settle, topic, payload, deadline=deadline_in(client.timeout))
