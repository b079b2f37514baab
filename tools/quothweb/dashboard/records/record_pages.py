"""Finds the records of one page of a topic: forward from a place, or those in front of one.

The broker says first how far so many records reach, so a page is bounded by records and by bytes. Nothing
here creates a topic, a group or a cursor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quoth.message import Gap, Message
from quothweb.brokers import BrokerClient
from quothwire.pointer import POINTER_MAX

PAGE_RECORDS = 50
PAGE_BYTES_MAX = 4 * 2**20
_SMALLER = (PAGE_RECORDS, 10, 1)


@dataclass(slots=True)
class RecordPage:
    """Some records of a topic in order. gaps: what is missing between them. newest: of the topic."""

    records: list[Message] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    newest: int = 0

    @property
    def first(self) -> int:
        """The pointer of the first record, 0 if there is none."""
        return self.records[0].pointer if self.records else 0

    @property
    def last(self) -> int:
        """The pointer of the last record, 0 if there is none."""
        return self.records[-1].pointer if self.records else 0

    def rows(self) -> list[Message | Gap]:
        """Return records and gaps in the order of their pointers."""
        places: list[tuple[int, int, Message | Gap]] = [(one.pointer, 1, one) for one in self.records]
        places += [(one.after + 1, 0, one) for one in self.gaps]
        return [one for _, _, one in sorted(places, key=lambda place: place[:2])]


async def page_after(client: BrokerClient, topic: str, after: int, size: int = PAGE_RECORDS) -> RecordPage:
    """Return the records behind a pointer."""
    found = await client.advance(topic, after, max_records=size, max_bytes=PAGE_BYTES_MAX)
    page = RecordPage(newest=found.newest)
    if found.records:
        until = min(found.until + 1, POINTER_MAX)
        read = await client.read(topic, after=after, until=until, limit=size, on_gap=page.gaps.append)
        page.records = [*read]
    elif found.gone:
        page.gaps.append(Gap(topic, after, found.newest + 1, found.gone, "trimmed"))
    return page


async def page_before(client: BrokerClient, topic: str, before: int) -> RecordPage:
    """Return the records in front of a pointer, as many as a page has. Fewer if they are large."""
    until = max(0, before - 1)
    counted = await client.count(topic, 0, until)
    page = RecordPage(newest=counted.newest)
    if not counted.records:
        return page
    for size in _SMALLER:
        begin = 0
        if counted.records > size:
            begin = (await client.advance(topic, 0, max_records=counted.records - size)).until
        reached = await client.advance(topic, begin, max_records=size, max_bytes=PAGE_BYTES_MAX)
        if reached.until >= min(until, counted.last) or size == 1:
            break
    end = min(until, counted.last) + 1
    read = await client.read(topic, after=begin, until=end, limit=size, on_gap=page.gaps.append)
    page.records = [*read]
    page.gaps = [one for one in page.gaps if begin or one.reason != "trimmed"]
    return page
