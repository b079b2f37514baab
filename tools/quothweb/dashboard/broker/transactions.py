"""Transactions: the state of one that is named, and the topics on which some are open."""

from __future__ import annotations

from quoth.core.calls import ask
from quothweb.dashboard import figures
from quothweb.dashboard.markup import banner, facts, section, tag
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothwire.errors import QuothError
from quothwire.protocol.messages import GetTransaction, TransactionInfo
from quothwire.topic import check_topic

OPEN = (
    TableColumn("topic", "Topic"),
    TableColumn("bytes", "Staged bytes", numeric=True),
)
SHOWN = 100
VERSION_DIGITS = 19
MEANINGS = {
    "published": "Its records are in the topic.",
    "staged": "Some of its parts are stored, and no reader sees them yet.",
    "unknown": "The topic knows no such transaction: it was never begun, was aborted, or is long past.",
}


async def transactions(view: PageView) -> None:
    """Build the page."""
    tag("h1", "Transactions")
    about = (
        "A transaction is a version of an application on one topic. The broker keeps no list of them that a "
        "client can ask for; it answers about one that is named."
    )
    tag("p", about, "muted")
    topic, application, version = (view.query(name).strip() for name in ("topic", "application", "version"))
    with tag("form", classes="row end", method="get"):
        for name, value in (("topic", topic), ("application", application), ("version", version)):
            with tag("label", name.capitalize()):
                numeric = {"inputmode": "numeric", "pattern": "[0-9]+"} if name == "version" else {}
                tag("input", type="text", name=name, value=value, required=True, maxlength=200, **numeric)
        tag("button", "Look up", "strong")
    if topic and application and version:
        await _state(view, topic, application, version)
    _open(view)


async def _state(view: PageView, topic: str, application: str, version: str) -> None:
    if not (version.isdecimal() and len(version) <= VERSION_DIGITS):
        banner("A version is a number.", "warning", "alert")
        return
    try:
        request = GetTransaction(application, int(version))
        found = await view.ask(
            lambda client: client.execute(
                ask(TransactionInfo, request, check_topic(topic), timeout=client.timeout)
            )
        )
    except (QuothError, ValueError) as problem:
        banner(problem.text if isinstance(problem, QuothError) else str(problem), "warning", "alert")
        return
    with section(f"Version {version} of {printable(application)} on {printable(topic)}"):
        rows = [("state", f"{found.state}. {MEANINGS.get(found.state, '')}")]
        if found.count:
            rows += [("records", f"{found.count:,}, pointers {found.first} to {found.last}")]
        if found.parts:
            rows += [
                (
                    "staged",
                    f"{found.records:,} records in {found.batches:,} batches of {found.parts:,} parts",
                ),
                ("staged bytes", figures.size(found.bytes)),
            ]
        newest = "none is known" if found.newest_version < 0 else f"{found.newest_version:,}"
        with tag("div", classes="card"):
            facts([*rows, ("newest published version", newest)])


def _open(view: PageView) -> None:
    with section("Topics with open transactions"):
        table = DataTable("Topics with open transactions", OPEN, "No topic holds staged records.")

    def refresh() -> None:
        rows = [
            (row["staged_bytes"], name)
            for name, row in view.observer.topics.items()
            if row.get("staged_bytes")
        ]
        table.show(
            DataRow(name, ({"text": printable(name), "href": view.topic_url(name)}, figures.size(staged)))
            for staged, name in sorted(rows, reverse=True)[:SHOWN]
        )

    view.live(refresh)
