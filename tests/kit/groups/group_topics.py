"""A topic with consumer groups and their dead-letter topics, without threads: a test has clock and disk."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kit.broker.open_topic import LOG_ID, NAME, OpenTopic, pending, reply_in
from kit.clocks import ManualClock
from kit.disk.logs import encoded, salvaged
from kit.disk.memory_disk import MemoryDisk
from quothd.requests.dead_letter import outcome_of, publish_of
from quothd.requests.events import Close, DeadLetter, DeadLetterDone
from quothd.requests.pending_request import PendingRequest
from quothd.topics.metadata import TopicMetadata
from quothlog.datadir.topic_file import TopicFile
from quothlog.groups.group_state import GroupState
from quothlog.storage.filesystem import FileSystem
from quothwire import batch
from quothwire.errors import QuothError, error
from quothwire.protocol.group_messages import (
    DescribeGroup,
    GroupFetch,
    GroupFetched,
    GroupInfo,
    GroupSettle,
    GroupSettled,
    ListPending,
    OpenGroup,
    Pending,
    SeekGroup,
)
from quothwire.protocol.messages import Publish, Published, Request, RollTopic, TrimTopic
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements
from quothwire.record import Record, records_of
from quothwire.settings import TopicSettings

DEAD = f"{NAME}.%s.dead"


@dataclass
class FetchedRecords:
    """The reply of a fetch. records: by pointer, all that lie in the payload."""

    reply: GroupFetched
    records: dict[int, Record] = field(default_factory=dict)

    @property
    def rows(self) -> list[list[int]]:
        """The leases: token, attempts, first and last pointer."""
        return self.reply.leases

    @property
    def pointers(self) -> list[int]:
        return [pointer for _, _, first, last in self.rows for pointer in self.within(first, last)]

    @property
    def values(self) -> list[bytes]:
        return [self.records[pointer].value for pointer in self.pointers]

    def within(self, first: int, last: int) -> list[int]:
        return [pointer for pointer in self.records if first <= pointer <= last]


class GroupTopic:
    """A topic with its groups, and a dead-letter topic for each group that has dead letters.

    refuses: the code with which dead letters are refused; "" lets them be stored. holds_letters: they stay
    on their way, in `letters`, until `deliver_letters`.
    """

    def __init__(
        self,
        directory: Path,
        disk: FileSystem | None = None,
        clock: ManualClock | None = None,
        settings: TopicSettings | None = None,
        **config: Any,
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = clock or ManualClock(tick=1)
        self.directory = directory
        self.refuses = ""
        self.holds_letters = False
        self.letters: deque[DeadLetter] = deque()
        self._config = config
        self._topics: dict[str, OpenTopic] = {}
        self._seen = 0
        self._was_closed = True
        self.open(TopicMetadata(self._path(NAME), TopicFile(NAME, LOG_ID, settings or TopicSettings())))

    # -- a life ---------------------------------------------------------------------------------------------

    def open(self, metadata: TopicMetadata) -> None:
        self.topic = OpenTopic(self.directory, cast(Any, self.disk), metadata, self.clock, **self._config)
        self._seen = 0

    def stop(self) -> None:
        """Close the topics, all of them synced."""
        self._was_closed |= self.topic.topic.groups.is_quick
        for topic in (self.topic, *self._topics.values()):
            topic.handle(Close())
            topic.deliver()
        self._topics.clear()
        self.letters.clear()

    def kill(self) -> None:
        """End as a process does that is killed: what was written is there."""
        for topic in (self.topic, *self._topics.values()):
            topic.topic._log.discard()
            topic.topic.groups.discard()
        self._topics.clear()
        self.letters.clear()
        self._was_closed = False

    def restart(self) -> None:
        """Open the topic that has ended as another process."""
        old = self.topic.metadata
        self.open(TopicMetadata(old.path, old.topic))

    def hibernate(self) -> None:
        """Close the topic and open it again in the same process."""
        self._was_closed |= self.topic.topic.groups.is_quick
        self.topic.handle(Close())
        self.topic.deliver()
        self.open(self.topic.metadata)

    def lose_power(self, rng: random.Random) -> None:
        """End, with what a power cut leaves, and start again."""
        assert isinstance(self.disk, MemoryDisk)
        self.kill()
        self.disk.lose_power(rng)
        self.clock.reboot()
        self.restart()

    # -- requests -------------------------------------------------------------------------------------------

    def ask(self, request: Request, payload: bytes | None = None) -> PendingRequest:
        """Let the topic handle a request; what other threads do for it waits for `deliver`."""
        asked = pending(request, payload)
        self.topic.handle(asked)
        return asked

    def deliver(self) -> None:
        """Execute what other threads have to do, and the dead letters."""
        self.topic.deliver()
        if not self.holds_letters:
            self.deliver_letters()

    def call(self, request: Request, payload: bytes | None = None) -> Any:
        """Return the reply to a request. Raises its error."""
        asked = self.ask(request, payload)
        self.deliver()
        return reply_in(self.topic.frames[asked])[0]

    def publish(self, *values: bytes, durability: str = "") -> range:
        """Publish a batch; returns its pointers."""
        stored: Published = self.call(Publish(durability), encoded(values))
        return range(stored.first, stored.last + 1)

    def make_group(self, name: str = "g", start: int = 0, **settings: Any) -> GroupInfo:
        made: GroupInfo = self.call(OpenGroup(name, start, settings))
        return made

    def fetch(self, records: int = 100, group: str = "g", member: str = "m", **more: Any) -> FetchedRecords:
        """Fetch for a group, without waiting."""
        asked = self.ask(GroupFetch(group, member, records, **more))
        self.deliver()
        return self.handed_out(asked)

    def ask_fetch(self, records: int = 100, group: str = "g", member: str = "m") -> GroupFetched:
        """Return the reply of a fetch whose records may be damaged."""
        found: GroupFetched = self.call(GroupFetch(group, member, records))
        return found

    def handed_out(self, asked: PendingRequest) -> FetchedRecords:
        reply, payload = reply_in(self.topic.frames[asked])
        assert isinstance(reply, GroupFetched)
        found = FetchedRecords(reply)
        for raw in batch.split(payload, LOG_ID):
            found.records |= {one.pointer: one for one in records_of(batch.decode(raw, LOG_ID))}
        return found

    def settle(
        self, *rows: Settlement, group: str = "g", generation: int = 0, reason: str = ""
    ) -> GroupSettled:
        request = GroupSettle(group, len(rows), generation, reason)
        settled: GroupSettled = self.call(request, encode_settlements(rows))
        return settled

    def ack(self, rows: Iterable[list[int]], group: str = "g") -> GroupSettled:
        """Acknowledge leases."""
        return self.settle(
            *(Settlement(Settle.ACK, first, last, token) for token, _, first, last in rows), group=group
        )

    def nack(self, rows: Iterable[list[int]], group: str = "g", milliseconds: int = 1) -> GroupSettled:
        """Give leases back. milliseconds: as in `Settlement`."""
        return self.settle(
            *(Settlement(Settle.NACK, row[2], row[3], row[0], milliseconds) for row in rows), group=group
        )

    def info(self, group: str = "g") -> GroupInfo:
        found: GroupInfo = self.call(DescribeGroup(group))
        return found

    def pending(self, group: str = "g", after: int = 0, limit: int = 1_000) -> Pending:
        found: Pending = self.call(ListPending(group, after, limit))
        return found

    def seek(self, after: int, group: str = "g") -> GroupInfo:
        moved: GroupInfo = self.call(SeekGroup(group, after))
        return moved

    def trim(self, before: int) -> None:
        """Seal the active segment, and remove the segments that lie below a pointer."""
        self.call(RollTopic())
        self.call(TrimTopic(before))

    def pass_time(self, seconds: float) -> None:
        self.topic.pass_time(seconds)
        self.deliver()

    # -- what is there --------------------------------------------------------------------------------------

    def group(self, name: str = "g") -> GroupState:
        """The state of a group in memory."""
        groups = self.topic.metadata.groups
        assert groups is not None
        return groups.by_name[name]

    @property
    def is_synced(self) -> bool:
        """True if no power cut takes anything from the log of the groups."""
        log = self.topic.topic.groups._store._group_log
        return self._was_closed if log is None else not log.log.unsynced_bytes

    def numbered(self, pointers: Iterable[int], group: str = "g") -> set[int]:
        """The records among these whose dead letter is on its way."""
        self.info(group)
        spans = [span for span in self.group(group).spans if span.number]
        return {one for one in pointers if any(span.after < one <= span.until for span in spans)}

    def dead(self, group: str = "g") -> list[Record]:
        """The dead letters of a group that are stored."""
        return salvaged(self._dead_letter_topic(DEAD % group).topic._log)

    def dead_pointers(self, group: str = "g") -> list[int]:
        """The pointers of the records of which there are dead letters."""
        return [int(bytes(one.headers["quoth-pointer"])) for one in self.dead(group)]

    def deliver_letters(self) -> None:
        """Publish the dead letters that are on their way, and those that follow them."""
        while letter := self.take_letter():
            self.finish_letter(self.store_letter(letter))

    def take_letter(self) -> DeadLetter | None:
        """Take the next dead letter that leaves the topic; None if there is none."""
        self.letters.extend(
            event for event in self.topic.events[self._seen :] if isinstance(event, DeadLetter)
        )
        self._seen = len(self.topic.events)
        return self.letters.popleft() if self.letters else None

    def store_letter(self, letter: DeadLetter) -> DeadLetterDone:
        """Publish a dead letter, unless that is refused; returns the outcome."""
        if self.refuses:
            return DeadLetterDone(letter.group, letter.number, error(self.refuses, "refused by the test"))
        target = self._dead_letter_topic(letter.topic)
        asked = publish_of(NAME, letter)
        target.handle(asked)
        target.deliver()
        return outcome_of(target.frames[asked])[1]

    def finish_letter(self, done: DeadLetterDone) -> None:
        """Let the topic take note of the outcome of a dead letter."""
        self.topic.handle(done)
        self.topic.deliver()

    def _dead_letter_topic(self, name: str) -> OpenTopic:
        if name not in self._topics:
            topic = TopicFile(name, LOG_ID + 1 + sum(name.encode()), TopicSettings())
            metadata = TopicMetadata(self._path(name), topic)
            self._topics[name] = OpenTopic(self.directory, cast(Any, self.disk), metadata, self.clock)
        return self._topics[name]

    def _path(self, name: str) -> Path:
        path = self.directory / "topics" / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def code(call: Any, *arguments: Any, **named: Any) -> str:
    """Return the code of the error of a call, "" if it raises none."""
    try:
        call(*arguments, **named)
    except QuothError as problem:
        return problem.code
    return ""
