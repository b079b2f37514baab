"""Decides when the active segment is sealed, and which sealed segments are removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quothlog.active_segment import ActiveSegment
    from quothlog.segment import Segment

SHARE = 4
"""Segments are cut so that retention, which removes whole ones, overshoots by at most a quarter."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The limits by which a log rolls and removes segments. 0 stands for "no limit".

    size_limit: bytes a segment. count_limit: records a segment. age_limit, max_age: seconds.
    max_bytes: bytes of all segments. synced_reads: readers see only what survives a loss of power.
    disk_free_min: bytes that writing leaves free on the disk. staged_bytes_max, staged_max_age: bytes of all
    that is staged, and seconds after which it is removed if nothing was added.
    """

    size_limit: int = 64 * 2**20
    count_limit: int = 0
    age_limit: float = 0.0
    max_age: float = 0.0
    max_bytes: int = 0
    synced_reads: bool = False
    disk_free_min: int = 0
    staged_bytes_max: int = 16 * 2**30
    staged_max_age: float = 86_400.0

    @property
    def staged_age_us(self) -> int:
        """`staged_max_age` in microseconds."""
        return round(self.staged_max_age * 1e6)

    @property
    def max_age_us(self) -> int:
        """`max_age` in microseconds."""
        return round(self.max_age * 1e6)

    @property
    def roll_bytes(self) -> int:
        """The size at which the active segment is sealed."""
        return min(self.size_limit, self.max_bytes // SHARE) if self.max_bytes else self.size_limit

    @property
    def roll_age_us(self) -> int:
        """The age of its first record at which the active segment is sealed, 0 for never."""
        ages = [round(self.age_limit * 1e6), self.max_age_us // SHARE]
        return min((age for age in ages if age), default=0)


def roll_size(options: LogOptions, active: ActiveSegment) -> int:
    """The size above which the active segment is sealed.

    It holds at least as many bytes of batches as its header block takes, up to 4.5 MiB with a full producer
    table, so small segments are not all header block.
    """
    return max(options.roll_bytes, 2 * active.block.size)


def due_for_roll(options: LogOptions, active: ActiveSegment, now: int) -> bool:
    """Return True if the active segment, which holds records, is old or large enough to be sealed."""
    age = options.roll_age_us
    return bool(age and active.oldest + age <= now) or active.size > roll_size(options, active)


def wholly_below(before: int, sealed: Sequence[Segment], active: ActiveSegment) -> int:
    """Count the sealed segments, oldest first, that hold only pointers below `before`."""
    following = [*sealed[1:], active][: len(sealed)]
    return next((row for row, one in enumerate(following) if one.start.pointer >= before), len(sealed))


def next_due(options: LogOptions, sealed: Sequence[Segment], active: ActiveSegment) -> int | None:
    """Return when a limit of age will next be reached, as a pointer; None if never."""
    dues = []
    if sealed and options.max_age:
        following = sealed[1] if len(sealed) > 1 else active
        dues.append(following.start.pointer + options.max_age_us + 1)
    if active.records and (age_us := options.roll_age_us):
        dues.append(active.oldest + age_us)
    return min(dues, default=None)


def expired(
    options: LogOptions, sealed: Sequence[Segment], active: ActiveSegment, now: int, finished: int
) -> int:
    """Count the sealed segments, oldest first, that are to be removed.

    By age all of them may go, and those with pointers up to `finished` alone, too; for `max_bytes` the newest
    one that holds records stays, however large.
    """
    count = wholly_below(finished + 1, sealed, active) if finished else 0
    if options.max_age:
        count = max(count, wholly_below(max(0, now - options.max_age_us), sealed, active))
    if options.max_bytes:
        total = sum(one.size for one in [*sealed[count:], active])
        end = len(sealed) - (0 if active.records else 1)
        while count < end and total > options.max_bytes:
            total -= sealed[count].size
            count += 1
    return count
