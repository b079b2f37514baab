"""Takes the records of a group, prints them or runs a command for them, and settles them."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quothcli.cli.exit_status import say
from quothcli.groups.execution import (
    VERDICTS,
    CommandPool,
    ShellCommand,
    Verdict,
    not_started,
    variables_of,
)
from quothcli.groups.leases import LeaseExtender
from quothcli.groups.member import PatientMember
from quothcli.groups.stopping import StopRequest
from quothcli.printing.output import Format, Printer
from quothcli.printing.record_printer import OutputBlocked, RecordPrinter, has_reader
from quothcli.printing.text import records_text
from quothwire.errors import error
from quothwire.protocol.group_settings import CURSOR

if TYPE_CHECKING:
    from quoth import ConsumerGroup, GroupMessage, Message


PRINTED_MAX = 100
"""Records that are fetched at once to be printed."""
CLOSING_S = 2.5
"""Time after which the end of a member says what it waits for. It takes a second where a broker is there."""


class Consumption:
    """The work of one member, until it is asked to stop, or has had as many records as it may.

    limit: None for no limit. until_empty: end when there is nothing to hand out. failures: commands that have
    not ended with status 0.
    """

    def __init__(
        self, group: ConsumerGroup, stop: StopRequest, limit: int | None, *, until_empty: bool
    ) -> None:
        self.failures = 0
        self._group = group
        self._stop = stop
        self._left = math.inf if limit is None else limit
        self._until_empty = until_empty
        self._is_stop_reported = False
        self._within = ExitStack()

    def __enter__(self) -> Self:
        """Join the group. Raises ``bad_request`` for a cursor."""
        group = self._within.enter_context(self._group)
        info = group.info()
        if info.settings["mode"] == CURSOR:
            self._within.close()
            raise error(
                "bad_request",
                f"group {group.name!r} of topic {group.topic!r} is a cursor, which has no members",
                "`quoth read` reads the topic; another group shares its records among members",
            )
        if info.paused:
            say(f"quoth: group {group.name!r} is paused; `quoth group resume` ends that")
        self._member = PatientMember(group, info, self._stop, until_empty=self._until_empty)
        self._extender = self._within.enter_context(LeaseExtender(self._member.lease, self._report_lost))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        waits = threading.Timer(
            CLOSING_S,
            say,
            ("quoth: waits until the broker has taken what was acknowledged; Ctrl-C ends that",),
        )
        waits.start()
        try:
            self._within.__exit__(kind, value, trace)
        finally:
            waits.cancel()

    @property
    def _goes_on(self) -> bool:
        return self._stop.status is None and self._left > 0

    # -- printing ---------------------------------------------------------------------------------------

    def print(self, line: Callable[[Message], bytes], batch: int | None) -> None:
        """Print records, and acknowledge them once the system has taken their lines.

        What the system has not taken, at the end, is released. batch: the number that is fetched at once;
        None for one where the death of this member would lose what it has not printed.
        """
        size = batch or (PRINTED_MAX if self._member.may_hold_several else 1)
        printer = RecordPrinter(line, is_stopped=lambda: self._stop.status is not None)
        with suppress(OutputBlocked), printer:
            while self._goes_on:
                found = self._taken(size)
                if not found:
                    if self._until_empty and self._member.is_empty:
                        return
                    continue
                before = printer.written
                try:
                    with self._extender.held(found):
                        printer.take(found)
                finally:
                    count = printer.written - before
                    self._member.ack(found[:count])
                    self._member.release(found[count:])

    # -- executing --------------------------------------------------------------------------------------

    def execute(self, command: ShellCommand, batch: int | None, concurrency: int) -> None:
        """Run a command for each record, or for up to `batch` records at once."""

        def handle(records: Sequence[GroupMessage]) -> None:
            self._handle(command, records, is_batch=batch is not None)

        size = batch or 1
        with CommandPool(concurrency, handle, command.kill, self._report_stop) as pool:
            while self._goes_on:
                room, was_idle = pool.room(), pool.is_idle
                if not self._goes_on:
                    break
                found = self._taken(room * size)
                for begin in range(0, len(found), size):
                    pool.start(found[begin : begin + size])
                if self._until_empty and self._member.is_empty:
                    if was_idle:
                        return
                    pool.wait_for_one()

    def _taken(self, most: int) -> list[GroupMessage]:
        found = self._member.take(int(min(most, self._left)))
        self._left -= len(found)
        return found

    def _handle(self, command: ShellCommand, records: Sequence[GroupMessage], *, is_batch: bool) -> None:
        """Run the command for records, in one of the threads, and settle them."""
        name = self._group.name
        if is_batch:
            printer = Printer(Format.JSON)
            given = b"".join(map(printer.encoded, records))
            variables = {
                b"QUOTH_TOPIC": records[0].topic.encode(),
                b"QUOTH_GROUP": name.encode(),
                b"QUOTH_RECORDS": b"%d" % len(records),
            }
        else:
            given, variables = records[0].value, variables_of(records[0], name)
        try:
            with self._extender.held(records):
                status = command.run(given, variables)
            verdict = VERDICTS.get(status, Verdict.NACK)
            if verdict is Verdict.NOT_STARTED:
                raise not_started(command.line, f"status {status}")
        except BaseException:
            self._member.release(records)
            raise
        if verdict is Verdict.ACK:
            self._member.ack(records)
            return
        if verdict is Verdict.NACK and self._member.lease and not has_reader():
            self._member.release(records)  # it could not print
            return
        self.failures += 1
        reason = _reason(status)
        if verdict is Verdict.TERM:
            self._member.reject(records, reason)
        else:
            self._member.give_back(records, reason, at_once=command.is_killed)
        what = verdict.value if self._member.lease else "not handed out again, as its group is at_most_once"
        say(f"quoth: {_range_text(records)}: {reason}: {what}")

    def _report_stop(self) -> None:
        """Say once, after a request to stop, what is waited for."""
        if self._stop.status is not None and not self._is_stop_reported:
            self._is_stop_reported = True
            say("quoth: waits for the commands that run; a second signal ends them")

    def _report_lost(self, records: Sequence[GroupMessage]) -> None:
        say(f"quoth: {_range_text(records)}: the lease is lost, another member may get it, too")


def _reason(status: int) -> str:
    """Return the reason that the end of a command is for a nack or a term."""
    if status >= 0:
        return f"the command has ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"{name} has ended the command"


def _range_text(records: Sequence[GroupMessage]) -> str:
    """Return the name of records in a report."""
    if len(records) == 1:
        return f"record {records[0].pointer}, attempt {records[0].attempts}"
    return f"{records_text(len(records))} from {records[0].pointer} to {records[-1].pointer}"
