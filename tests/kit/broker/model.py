"""Topics in memory that answer what a broker tells of ranges, record by record: slow, and plainly right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quoth.message import PointerRange
from quothwire.errors import error
from quothwire.protocol.messages import Advance, Count, TopicInfo


@dataclass
class Ledger:
    """One topic: the pointers of its records, batch by batch. removed: records that are not kept any more."""

    log: int
    batches: list[list[int]] = field(default_factory=list)
    removed: int = 0
    last: int = 0

    @property
    def kept(self) -> list[int]:
        """The pointers of all records, oldest first."""
        return [pointer for batch in self.batches for pointer in batch]

    def above(self, after: int, until: int) -> list[int]:
        """The pointers in (after, until]."""
        return [pointer for pointer in self.kept if after < pointer <= until]

    def gone(self, after: int) -> int:
        """Records that were removed above a pointer, at most."""
        floor = self.kept[0] - 1 if self.batches else self.last
        return self.removed if after < floor else 0


class Ledgers:
    """A broker's topics. Bytes are 100 a record."""

    def __init__(self) -> None:
        self.url = "tcp://127.0.0.1:1"
        self.ledgers: dict[str, Ledger] = {}
        self.meanwhile: Callable[[], object] | None = None
        """What happens once, between two answers."""
        self._pointer = 1_000
        self._log = 1

    def append(self, topic: str, records: int) -> list[int]:
        """Append a batch; returns its pointers."""
        if topic not in self.ledgers:
            self._log += 1
            self.ledgers[topic] = Ledger(self._log)
        first = self._pointer + 7
        self._pointer = first + records - 1
        pointers = list(range(first, first + records))
        ledger = self.ledgers[topic]
        ledger.batches.append(pointers)
        ledger.last = self._pointer
        return pointers

    def trim(self, topic: str, batches: int) -> list[int]:
        """Remove the oldest batches; returns what was in them."""
        ledger = self.ledgers[topic]
        pointers = [pointer for batch in ledger.batches[:batches] for pointer in batch]
        ledger.removed += len(pointers)
        del ledger.batches[:batches]
        return pointers

    def lose_power(self, topic: str) -> list[int]:
        """The newest batch is gone, its ordinals will be given again; returns what was in it."""
        ledger = self.ledgers[topic]
        pointers = ledger.batches.pop()
        ledger.last = ledger.kept[-1] if ledger.batches else pointers[0] - 1
        return pointers

    # -- what a broker tells ----------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """See `quoth.Client.topics`."""
        return sorted(self.ledgers)

    def topic(self, topic: str) -> TopicInfo:
        """See `quoth.Client.topic`."""
        ledger = self._ledger(topic)
        kept = ledger.kept
        first = kept[0] if kept else 0
        return TopicInfo(
            topic, ledger.log, first, ledger.last, len(kept), ledger.removed, 100 * len(kept), 1, "w", {}
        )

    def advance(
        self, topic: str, after: int = 0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Advance:
        """See `quoth.Client.advance`."""
        ledger = self._ledger(topic)
        assert max_records is None or max_records > 0
        found = ledger.above(after, ledger.last)[:max_records]
        if max_bytes is not None:
            first = next((len(batch) for batch in ledger.batches if found and found[0] in batch), 0)
            found = found[: max(first, max_bytes // 100)]
        until = found[-1] if found else after
        begin = found[0] - 1 if found and ledger.gone(after) else after
        return Advance(
            ledger.log, begin, until, len(found), 100 * len(found), ledger.gone(after), *self._end(ledger)
        )

    def split(self, topic: str, after: int, until: int, parts: int) -> list[PointerRange]:
        """See `quoth.Client.split`."""
        ledger = self._ledger(topic)
        cut = [[one for one in batch if after < one <= until] for batch in ledger.batches]
        batches = [batch for batch in cut if batch]
        total, begin = sum(map(len, batches)), 0
        stretches: dict[int, list[int]] = {}
        for batch in batches:
            stretches.setdefault(begin * parts // total, []).extend(batch)
            begin += len(batch)
        return [PointerRange(one[0] - 1, one[-1], len(one), 100 * len(one)) for one in stretches.values()]

    def count(self, topic: str, after: int = 0, until: int | None = None) -> Count:
        """See `quoth.Client.count`."""
        ledger = self._ledger(topic)
        found = ledger.above(after, ledger.last if until is None else until)
        first, last = (found[0], found[-1]) if found else (0, 0)
        size = 100 * len(found)
        return Count(ledger.log, len(found), size, ledger.gone(after), first, last, *self._end(ledger))

    def _ledger(self, topic: str) -> Ledger:
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        if topic not in self.ledgers:
            raise error("unknown_topic", f"there is no topic {topic!r}")
        return self.ledgers[topic]

    def _end(self, ledger: Ledger) -> tuple[int, int]:
        return ledger.last, ledger.removed + len(ledger.kept)
