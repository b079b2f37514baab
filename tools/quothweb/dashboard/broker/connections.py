"""Connections and keys: clients of the broker with their quotas, and tokens of this server by name."""

from __future__ import annotations

from typing import Any

from quoth.core.calls import ask
from quothweb.dashboard import figures
from quothweb.dashboard.markup import facts, section, tag
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothwire.protocol.messages import GetStatus, Status

CLIENTS_MAX = 1_000
COUNTERS = {
    "connections": "open now",
    "connections_max": "at most",
    "connections_ended": "ended by the broker",
    "connections_denied": "denied for an unknown key",
    "handshakes_failed": "handshakes failed",
    "accepts_failed": "not accepted for want of descriptors or memory",
    "subscriptions": "subscriptions to announcements",
    "subscribers_closed": "connections of subscribers closed",
    "waits": "fetches that wait",
    "replies_dropped": "replies dropped",
    "malformed_requests": "malformed requests",
}
CLIENTS = (
    TableColumn("client", "Client"),
    TableColumn("quotas", "What it has, and its quota", kind="text"),
)
TOKENS = (
    TableColumn("name", "Token"),
    TableColumn("key", "Key"),
    TableColumn("digests", "Valid secrets", numeric=True),
)


async def connections(view: PageView) -> None:
    """Build the page."""
    tag("h1", "Connections & keys")
    with tag("div", classes="wide"):
        _counters(view)
        _server(view)
    status = await view.ask(
        lambda client: client.execute(ask(Status, GetStatus(limit=CLIENTS_MAX), timeout=client.timeout))
    )
    _clients(status)
    _tokens(view)


def _counters(view: PageView) -> None:
    with section("Connections of the broker"), tag("div", classes="card"):
        box = tag("div")

    def refresh() -> None:
        counters = view.observer.metrics.counters if view.observer.metrics is not None else {}
        box.clear()
        with box:
            facts([(text, f"{counters[name]:,}") for name, text in COUNTERS.items() if name in counters])

    view.live(refresh)


def _server(view: PageView) -> None:
    config, services = view.config, view.services
    with section("This server"), tag("div", classes="card"):
        box = tag("div")

    def refresh() -> None:
        box.clear()
        with box:
            facts(
                [
                    ("clients of the broker", f"{len(services.brokers):,} of {config.tokens_open_max:,}"),
                    ("pages and streams", f"{len(services.streams):,} of {config.streams_max:,}"),
                    ("its own key", "in a key file" if config.key_file else "none"),
                    ("actions", "allowed" if config.allow_actions else "not allowed (allow_actions is off)"),
                    ("payloads", "shown" if config.payloads else "hidden (payloads is off)"),
                ]
            )

    view.live(refresh)


def _clients(status: Status) -> None:
    with section("Keys of the broker"):
        table = DataTable("Keys of the broker", CLIENTS, "The broker has no clients file: it knows no keys.")
        table.show(
            DataRow(name, (printable(name), _quotas(quotas))) for name, quotas in status.clients.items()
        )
        about = (
            "A client of the broker learns the names of keys and their quotas. It cannot see which "
            "connection has which key, the rights in the clients file, or any secret."
        )
        tag("p", about, "note")


def _quotas(quotas: Any) -> str:
    rows = quotas.items() if isinstance(quotas, dict) else ()
    shown = [
        f"{printable(str(name))} {has:,} of {'any' if limit < 0 else f'{limit:,}'}"
        for name, (has, limit) in rows
    ]
    return "; ".join(shown) or figures.NONE


def _tokens(view: PageView) -> None:
    tokens = view.services.access.tokens
    with section("Tokens of this server"):
        if tokens is None:
            tag(
                "p",
                "Requests need no token: every program that reaches the port has the rights of the server.",
            )
            return
        table = DataTable("Tokens of this server", TOKENS, "The tokens file has no token.")
        table.show(
            DataRow(
                name, (printable(name), "of its own" if token.key_file else "none", f"{len(token.digests)}")
            )
            for name, token in sorted(tokens.by_name.items())
        )
        tag("p", "The file holds digests of tokens, and this page not even these.", "note")
