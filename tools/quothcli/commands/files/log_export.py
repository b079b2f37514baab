"""`quoth log export`: writes the values of a log into files of another format, beside a broker."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import BadParameter

from quothcli.cli.command import argument, option
from quothcli.cli.exit_status import CommandStatus, say
from quothcli.cli.options import After, Limit
from quothcli.cli.quantities import size_option
from quothcli.commands.files.logs import Directory, Findings, Only, Printing, print_done
from quothcli.printing.progress import progress
from quothcli.printing.text import bytes_text, printable, records_text
from quothwire.errors import error
from quothwire.text.paths import given_path

if TYPE_CHECKING:
    from quothcli.printing.progress import Advance
    from quothlog.datadir.discovery import FoundLog
    from quothlog.slabs import SlabWriter


class ExportFormat(StrEnum):
    """The formats to which a log can be exported."""

    SLAB = "slab"


def export_log(
    session: Printing,
    directory: Directory,
    to: Annotated[Path, argument("TO", "The folder that gets the files; it is made, or is empty.")],
    form: Annotated[ExportFormat, option("--format", "slab: the slabs of queuefka.")],
    only: Only = None,
    after: After = None,
    limit: Limit = None,
    slab_bytes: Annotated[
        int | None,
        size_option("--slab-bytes", "A slab ends behind the record that makes it larger (default 64MiB)."),
    ] = None,
) -> int:
    """Write the values of a log's records into files of another format.

    It locks and changes nothing in the log, so it may run beside a broker. Slabs hold values alone: keys and
    headers are left out, which is reported with their number. Nor do they hold empty values: the number of
    such records is reported, too, and makes the exit status 1, as does what is damaged in the log.
    """
    from quothlog.datadir.discovery import bytes_of_segments, places
    from quothlog.slabs import SlabWriter
    from quothlog.slabs.slab_writer import SLAB_BYTES

    found = places(directory, only)
    if len(found) != 1:
        raise BadParameter(f"say which of the {len(found)} topics", param_hint="--topic")
    (place,) = found
    given_path(to, "TO")
    if to.exists() and any(to.iterdir()):
        raise error("bad_setting", f"{to} is not empty", "give an empty or a new directory")
    total = None if after or limit is not None else bytes_of_segments(place.directory)
    exported = _Exported(place)
    with (
        progress(f"exporting {printable(place.topic)}", total) as advance,
        SlabWriter(to, slab_bytes or SLAB_BYTES) as writer,
    ):
        try:
            exported.write(writer, after or 0, limit, advance)
        except BaseException:
            say(f"quoth: {to} is not whole: delete it, and begin anew")
            raise
    exported.report_left_out()
    amounts = f"{records_text(exported.records)}, {bytes_text(exported.bytes)}"
    content = {
        "topic": place.topic,
        "directory": str(to),
        "format": form.value,
        "records": exported.records,
        "bytes": exported.bytes,
        "without_keys_and_headers": exported.bare,
        "empty": exported.empty,
    }
    print_done(session.printer, f"{printable(place.topic)}: exported {amounts}, to {to}", content, str(to))
    return CommandStatus.FAILED if exported.empty else exported.findings.status


class _Exported:
    """The export of one log: what was written, and what was left out."""

    def __init__(self, place: FoundLog) -> None:
        self.findings = Findings()
        self.records = self.bytes = self.bare = self.empty = 0
        self._place = place

    def write(self, writer: SlabWriter, after: int, limit: int | None, advance: Advance) -> None:
        """Write records above a pointer, a number of them at most."""
        from quothlog.recovery import verify
        from quothlog.recovery.verify import Damage, Unfinished

        for found in verify.records(self._place.directory, after, log_id=self._place.log_id):
            if self.records + self.empty == limit:
                break
            if isinstance(found, Damage | Unfinished):
                self.findings.add(found)
            elif not found.value:
                self.empty += 1
            else:
                address = writer.write(found.value)
                self.records += 1
                self.bytes += writer.address - address
                self.bare += found.key is not None or bool(found.headers or found.raw_headers)
                advance(1, writer.address - address)
        writer.sync()

    def report_left_out(self) -> None:
        """Report on stderr what slabs have no place for."""
        topic = printable(self._place.topic)
        if self.bare:
            say(f"quoth: {topic}: the keys and headers of {records_text(self.bare)} were left out")
        if self.empty:
            say(f"quoth: {topic}: {records_text(self.empty)} with empty values were left out")
