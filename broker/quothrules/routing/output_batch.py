"""The outputs of one record for one topic: a batch that is stored once, whatever happens.

The producer id is a hash of the group, the source log, and the target; the sequence is the pointer of the
source record. So a second attempt, by this process or by the one after it, is recognised by the broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from quothrules.evaluation.outcome import RoutedRecord
from quothwire import batch as wire
from quothwire.batch import Flag
from quothwire.errors import QuothError
from quothwire.headers import encode_headers


class SourceRecord(NamedTuple):
    """The record that outputs are made of.

    group: of the rules. log: of the topic. moves: how often the group on it was moved. is_fresh: no member of
    the group had it before.
    """

    group: str
    log: int
    moves: int
    pointer: int
    is_fresh: bool

    def producer(self, target: str, level: int) -> int:
        """Return the producer id of what is written to a topic. level: see `OutputBatch`."""
        parts = (self.group, f"{self.log:x}", str(self.moves), target, str(level))
        return xxh3_64_intdigest("\0".join(parts).encode()) | 1


@dataclass(eq=False, slots=True)
class OutputBatch:
    """The outputs of one record for one topic. is_done: it is stored, or has a problem.

    is_absent: the topic does not have it, so it may begin its producer anew.
    level: a higher one names another producer id. A later record was stored under that of the level below,
    which therefore takes this one no more.
    """

    source: SourceRecord
    target: str
    outputs: list[RoutedRecord]
    level: int = 0
    is_absent: bool = False
    is_done: bool = False
    problem: QuothError | None = None

    def __post_init__(self) -> None:
        self.is_absent = self.is_absent or self.source.is_fresh

    @property
    def producer(self) -> int:
        """The producer id."""
        return self.source.producer(self.target, self.level)

    def encode(self, *, begins: bool) -> bytes:
        """Encode it. begins: the producer may be one that the topic does not know. Raises ``too_large``."""
        return wire.encode(
            [one.value for one in self.outputs],
            [one.key for one in self.outputs],
            [encode_headers(one.headers) for one in self.outputs],
            producer=self.producer,
            sequence=self.source.pointer,
            flags=Flag.SPARSE | (Flag.START if begins else 0),
        )


def batches_of(source: SourceRecord, outputs: Iterable[RoutedRecord]) -> list[OutputBatch]:
    """Return a batch for each topic, in the order in which the rules name them."""
    by_target: defaultdict[str, list[RoutedRecord]] = defaultdict(list)
    for output in outputs:
        by_target[output.topic].append(output)
    return [OutputBatch(source, target, found) for target, found in by_target.items()]
