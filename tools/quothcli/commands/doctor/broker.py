"""Checks of the broker: both of its ports, its version, its clock, its disk."""

from __future__ import annotations

import socket
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quothcli.cli.session import DEFAULT, BrokerAddress, is_here
from quothcli.commands.broker.status import announcer_text, damage_text, letters_text, server_text
from quothcli.commands.doctor import Finding, Findings, fail, machine, ok, warn
from quothcli.printing.text import printable
from quothwire.errors import RequestError
from quothwire.protocol import announcement

if TYPE_CHECKING:
    from quoth import Client, Disconnected, Status
    from quothd.config.config import Config


ANSWER_S = 1.0
_AHEAD_MAX_US = 60_000_000
_CHECKED_OTHERWISE = frozenset(
    ("announcer_down", "damage_found", "dead_letters_delayed", "pointer_ahead", "quarantined", "records_lost")
)
"""Alarms that the checks of its announcements, disk, groups and clock show, each in its own words."""
_PORT_MAX = 65_535
_ANY_HOST = frozenset(("0.0.0.0", "::", "*"))
_GREETING = b"\xff"
"""The first byte of a ZeroMQ socket."""


def reachable(client: Client) -> tuple[Finding, Status]:
    """Ask the broker for its status. Raises `Disconnected`."""
    seconds = client.ping()
    status = client.status()
    text = f"{client.url} answers in {seconds * 1e3:.2f} ms: {server_text(status)}"
    return ok("broker", text), status


def answering(client: Client, status: Status) -> Findings:
    """Check a broker that answers."""
    yield _versions(status)
    yield _announcements(client, status)
    yield _clock(status)
    if damage := damage_text(status):
        yield warn("its disk", damage, f"`quoth log verify {status.directory}` tells more")
    else:
        yield ok("its disk", "nothing torn or damaged since it was started")
    if letters := letters_text(status):
        advice = "`quoth group ls` tells why; their records stay in the groups, and it tries again by itself"
        yield warn("its groups", letters, advice)
    else:
        yield ok("its groups", "all dead letters are written")
    yield from _alarms(client)


def _alarms(client: Client) -> Findings:
    """Yield what `quoth check` and the dashboard show, but for what another check looks at."""
    from quoth.monitoring.alarms import KINDS, Severity, alarms

    try:
        found = [one for one in alarms(client.metrics()) if one.code not in _CHECKED_OTHERWISE]
    except RequestError as problem:  # a broker that has no metrics yet
        yield warn("its alarms", printable(problem.text), "update the broker")
        return
    if not found:
        yield ok("its alarms", "none; `quoth check` has limits for the lag of groups and for the disk")
    for one in found:
        subject = f"{one.subject}: " if one.subject else ""
        make = fail if one.severity is Severity.CRITICAL else warn
        yield make("its alarms", printable(f"{one.code}: {subject}{one.text}"), KINDS[one.code].action)


def guarded(address: BrokerAddress, status: Status) -> Finding:
    """Check that a broker whose port is open to other machines wants keys."""
    if address.key is not None:
        return ok("key", f"the broker knows the {address.key_text}")
    open_at = machine.open_addresses(status.pid) if is_here(address.url) else [printable(address.url)]
    if not open_at:
        return ok("key", "the broker has none, and listens on this machine alone")
    text = f"the broker has none: every program that reaches {' or '.join(open_at)} may do everything"
    advice = "`quoth key new broker`, and name it as server_key of the broker; or let it listen on loopback"
    return warn("key", text, advice)


def own_keys(config: Config) -> Findings:
    """Check the files of keys of a broker that would be started here; yields nothing for one without keys."""
    from quothd.keys.broker_keys import read_keys

    try:
        keys = read_keys(config)
    except RequestError as problem:
        yield fail("its keys", printable(problem.text), problem.hint)
        return
    if keys is not None:
        yield ok(
            "its keys", f"{config.server_key}, and {len(keys.clients.by_key)} of clients in {config.clients}"
        )


def silent(address: BrokerAddress, problem: Disconnected) -> Findings:
    """Check the ports of a broker that does not answer. Without an address there need be none."""
    if address.source == DEFAULT:
        yield warn("broker", problem.text, "`quoth serve` starts one; --url names another")
    else:
        yield fail("broker", problem.text, "start it, or correct the address; is a firewall between?")
    if not address.url.startswith("tcp://"):
        return
    try:
        host, port = host_and_port(address.url)
    except ValueError as wrong:  # libzmq takes it, and tries for ever
        yield fail("port", f"{printable(address.url)} is no address: {wrong}", "like tcp://127.0.0.1:5555")
        return
    for number in range(port, min(port + 1, _PORT_MAX) + 1):
        speaks = _speaks(host, number)
        if speaks is None:
            yield ok("port", f"nothing listens at {host}:{number}")
            continue
        what = "speaks ZeroMQ, but does not answer" if speaks else "speaks no ZeroMQ"
        advice = "a broker that hangs, or another program: end it, or give the broker another --port"
        yield fail("port", f"a program listens at {host}:{number} and {what}", advice)


def _versions(status: Status) -> Finding:
    ours = version("quoth")
    if ours == status.server.rpartition(" ")[2]:
        return ok("client", f"quoth {ours}, as the broker")
    text = f"quoth {ours} here, {status.server} there"
    return warn("client", text, "install the same version on both sides")


def _announcements(client: Client, status: Status) -> Finding:
    if problem := announcer_text(status):
        return fail(
            "announcements", problem, "restart the broker; announcer_failed in its log has the reason"
        )
    where = announcement.endpoint(client.url, client.hello())
    if not where.startswith("tcp://"):
        return ok("announcements", f"beside it, at {printable(where)}")
    if _speaks(*host_and_port(where)):
        return ok("announcements", f"{where} answers")
    advice = "records are pulled without them, only later: open this port, too"
    return warn("announcements", f"no answer from {where}", advice)


def _clock(status: Status) -> Finding:
    ahead_us, steps = (int(status.counters.get(name, 0)) for name in ("pointer_ahead_us_max", "clock_steps"))
    text = f"{steps} steps back since it was started, pointers up to {ahead_us / 1e6:.3g} s ahead of it"
    if ahead_us > _AHEAD_MAX_US:
        advice = "it was set back, or was wrong: records of now seem to come later; keep it running"
        return warn("its clock", text, advice)
    if steps:
        return warn("its clock", text, "let chrony or ntpd slew it instead of setting it")
    return ok("its clock", text)


def host_and_port(url: str) -> tuple[str, int]:
    """Return host and port of a tcp address. Raises ValueError for another one."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return "127.0.0.1" if host in _ANY_HOST else host, parts.port or 0


def _speaks(host: str, port: int) -> bool | None:
    """True if a program there begins as a ZeroMQ socket does; None if none listens."""
    try:
        peer = socket.create_connection((host, port), ANSWER_S)
    except (OSError, UnicodeError):  # the latter of a name that can be none
        return None
    with peer:
        try:
            return peer.recv(1) == _GREETING
        except OSError:
            return False
