"""`quoth status` and `quoth ping`: how the broker is, and whether it is there."""

from __future__ import annotations

from dataclasses import asdict

import typer

from quoth import Status
from quothcli.chosen import chosen
from quothcli.command import command
from quothcli.exits import say
from quothcli.formats import Format
from quothcli.options import Form, Timeout, Url
from quothcli.output import Printer, printable

_WRONG = (
    "torn_bytes", "damaged_bytes", "lost_records", "set_aside_bytes", "scrub_damages", "scrub_missing_records"
)  # fmt: skip
"""Counters that somebody should know of who looks at the status."""


def add(app: typer.Typer) -> None:
    """Put `status` and `ping` into the command."""
    command(app, "status", "quoth status", "quoth status --format json | jq .counters")(status)
    command(app, "ping", "quoth ping", "quoth ping --timeout 1 || quoth serve")(ping)


def status(context: typer.Context, url: Url = None, timeout: Timeout = None, form: Form = None) -> None:
    """Show all topics, with a letter per segment.

    The totals go to stderr. The letters, oldest segment first: w is being written, r is open for reading,
    h hibernates.
    """
    asked = chosen(context, url, timeout, form)
    with asked.connect() as client:
        found = client.status()
    printer = Printer(asked.format)
    if asked.format is Format.JSON:
        printer.object(asdict(found))
        return
    for name, states in found.states.items():
        printer.line(f"{printable(name)}: {states}")
    printer.flush()
    say(
        f"{found.topics:,} topics, {found.active:,} active, {found.waits:,} waiting; {found.server}, "
        f"process {found.pid}, up {found.uptime:.0f} s, {found.directory}"
    )
    if said := damage_text(found):
        say(f"quoth: something was damaged: {said}; `quoth log verify {found.directory}` tells more")


def damage_text(found: Status) -> str:
    """What was damaged, as the broker has counted; empty if nothing was."""
    wrong = {name: found.counters.get(name, 0) for name in _WRONG}
    return ", ".join(f"{name} {number:,}" for name, number in wrong.items() if number)


def ping(context: typer.Context, url: Url = None, timeout: Timeout = None, form: Form = None) -> None:
    """Measure one round trip to the broker.

    The exit status is 4 if nobody answers.
    """
    asked = chosen(context, url, timeout, form)
    with asked.connect() as client:
        seconds = client.ping()
    Printer(asked.format).answer(
        f"{asked.address} answers in {seconds * 1e3:.3f} ms",
        {"url": asked.address, "seconds": seconds},
        f"{seconds:.6f}",
    )
