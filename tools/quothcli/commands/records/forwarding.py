"""The state file of a forwarding, its reports, and the sources that are directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from quothcli.cli.exit_status import say
from quothcli.printing.progress import Advance
from quothcli.printing.text import bytes_text, printable, records_text
from quothwire.errors import BrokerFailure, QuothError, error

if TYPE_CHECKING:
    from quoth.forward.addressed import AddressedRun, AddressProgress
    from quoth.forward.reporting_source import ReportingSource
    from quoth.forward.source import ForwardingProgress, LostRecords
    from quothlog.reading.tailer import Tailer
    from quothlog.slabs import SlabFollower, SlabGap, SlabRecord


def log_source(directory: Path) -> Tailer:
    """Read the synced batches of an embedded log, also while its program writes it."""
    from quothlog.reading.tailer import Tailer

    return Tailer(directory, durable=True, on_missing=lambda _: None)  # ordinals show gaps


def wait_for_kind(directory: Path, seconds: float | None) -> Literal["log", "slabs", ""]:
    """Return what a directory holds as soon as its names show it, "" if they do not within so many seconds.

    Nothing is made in it before: queuefka writes to the last file of its directory, whatever that is. Raises
    FileNotFoundError if there is no such directory, and ``bad_setting`` if it holds something else.
    """
    from quothlog.datadir.foreign import refuse_foreign
    from quothlog.reading.directory_watch import DirectoryWatch, take_in_time
    from quothlog.recovery.snapshot import floors_in
    from quothlog.slabs.slab_format import holds_slabs
    from quothlog.storage.clock import SystemClock
    from quothlog.storage.filesystem import names_in

    watch = DirectoryWatch(directory, SystemClock())

    def look() -> list[Literal["log", "slabs"]]:
        if not watch.may_differ():
            return []
        if floors_in(directory):
            return ["log"]
        try:
            refuse_foreign(directory)
        except QuothError:
            if holds_slabs(names_in(directory)):
                return ["slabs"]
            raise
        return []

    found = look()
    if not found:
        say(f"quoth: there is no log in {directory} yet")
        found = take_in_time(look, seconds, SystemClock())
    return found[0] if found else ""


class SlabSource:
    """The synced records of a directory of slabs, also while its program writes it."""

    def __init__(self, directory: Path) -> None:
        from quothlog.slabs.slab_format import RECORD_HEADER_BYTES

        self.overhead = RECORD_HEADER_BYTES
        self.directory = directory
        self._follower: SlabFollower | None = None

    @property
    def unfinished(self) -> int:
        """Bytes at the end that are no whole record yet."""
        return 0 if self._follower is None else self._follower.unfinished

    def seek(self, address: int) -> None:
        """Continue at an address. Raises as `SlabFollower` does."""
        from quothlog.slabs import SlabFollower

        self._follower = SlabFollower(self.directory, address, resume=True, durable=True)

    def wait(self, seconds: float) -> list[AddressedRun]:
        """Return the next records, those side by side together, and gaps; nothing after so many seconds."""
        assert self._follower is not None, "seek comes first"
        try:
            return list(_runs(self._follower.wait(seconds)))
        except BrokerFailure as problem:  # of this disk: another attempt could hide a failed sync
            raise error("damaged", problem.text, problem.hint) from problem


def _runs(found: list[SlabRecord | SlabGap]) -> Iterator[AddressedRun]:
    from quoth.forward.addressed import AddressedRun
    from quothlog.slabs import SlabGap

    begin, values = 0, list[bytes]()
    for one in found:
        if values and isinstance(one, SlabGap):
            yield AddressedRun(begin, one.address, values)
            values = []
        if isinstance(one, SlabGap):
            yield AddressedRun(one.address, one.next, [], f"{one.reason}, {one.text}")
            continue
        begin = begin if values else one.address
        values.append(one.value)
    if values:
        yield AddressedRun(begin, found[-1].next, values)


P = TypeVar("P", "ForwardingProgress", "AddressProgress")


class ForwardState(Generic[P]):
    """The file with the progress of a forwarding, of a kind.

    trimmed: the log that it lets trim. slabs: the directory of slabs to which it has to belong: they have no
    id, so nothing else tells its addresses from those of another log.
    """

    def __init__(
        self,
        path: Path,
        kind: type[P],
        source: str,
        url: str,
        topic: str,
        *,
        trimmed: Path | None = None,
        slabs: Path | None = None,
    ) -> None:
        from quothlog.reading import forwarding_progress

        self.progress: P | None = None
        self._path = path
        source = source if slabs is None else str(slabs.resolve())
        self._about = {"from": source, "url": url, "topic": topic, "trim": trimmed is not None}
        self._trimmed = trimmed
        self.reporting: ReportingSource | None = None
        """Gets to know what is finished."""
        found = forwarding_progress.read_mark(path)
        self.is_new = found is None
        if found is None:
            return
        if (found.get("url"), found.get("topic")) != (url, topic):
            raise error("bad_request", f"{path} belongs to {found.get('topic')} at {found.get('url')}")
        values: dict[str, Any] = {name: found.get(name) for name in kind._fields}
        if not all(isinstance(value, int) for value in values.values()):
            text = f"{path} does not say how far the forwarding is"
            raise error("damaged", text, "remove it to look again")
        if slabs is not None and found.get("from") != source:
            text = f"{path} belongs to the slabs in {found.get('from')}"
            hint = 'name another file by --state; if that directory was moved, correct "from" in the file'
            raise error("bad_request", text, hint)
        self.progress = kind(**values)

    def save(self, progress: P) -> None:
        """Write the file, trim what it releases, and report it to the source."""
        from quothlog.reading import forwarding_progress

        values = {"pointer": 0, **progress._asdict()}  # addresses release nothing
        forwarding_progress.write_mark(self._path, {**self._about, **values})
        if self._trimmed is not None:
            forwarding_progress.trim_unowned(self._trimmed)
        if self.reporting is not None:
            self.reporting.finish(values["pointer"])


class ForwardWatch:
    """Counts records, and reports on stderr what happens, the same thing once."""

    def __init__(self, advance: Advance, topic: str) -> None:
        self.records = self.bytes = self.lost_records = self.gaps = self.gap_bytes = 0
        self._advance = advance
        self._topic = topic
        self._reported = ""

    @property
    def counts(self) -> dict[str, int]:
        """The result for programs."""
        gaps = {"gaps": self.gaps, "gap_bytes": self.gap_bytes} if self.gaps else {}
        return {"records": self.records, "bytes": self.bytes, "lost": self.lost_records, **gaps}

    def text(self) -> str:
        """Return the result for people."""
        amounts = f"{records_text(self.records)}, {bytes_text(self.bytes)}"
        return f"forwarded {amounts}, to {printable(self._topic)}"

    def forwarded(self, records: int, size: int) -> None:
        """See `Events`."""
        self.records += records
        self.bytes += size
        self._reported = ""
        self._advance(records, size)

    def waits(self, problem: QuothError, _seconds: float) -> None:
        """See `Events`."""
        if problem.code != self._reported:
            self._reported = problem.code
            say(f"quoth: {problem.code}: {problem.text}; nothing is lost, it goes on by itself")

    def lost(self, losses: LostRecords) -> None:
        """See `Events`."""
        self.lost_records += losses.records
        say(
            f"quoth: {records_text(losses.records)} behind pointer {losses.after} and before {losses.next} "
            "are gone at the source and were not forwarded"
        )

    def missed(self, gap: AddressedRun) -> None:
        """See `AddressedEvents`."""
        self.gaps += 1
        self.gap_bytes += gap.next - gap.address
        say(
            f"quoth: {bytes_text(gap.next - gap.address)} at address {gap.address} of the source were not "
            f"forwarded: {gap.text}"
        )

    def began_anew(self, text: str) -> None:
        """See `Events`."""
        say(f"quoth: {text}")
