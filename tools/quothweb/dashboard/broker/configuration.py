"""The configuration of this server with the source of each value, and the limits of the broker."""

from __future__ import annotations

from quothweb.config import KEYS
from quothweb.dashboard.markup import facts, section, tag
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothwire.text.quantity import format_size

COLUMNS = (
    TableColumn("key", "Key"),
    TableColumn("value", "Value", kind="mono"),
    TableColumn("source", "Source"),
    TableColumn("about", "Meaning", kind="text"),
)
HIDDEN = (
    "A client of the broker cannot see the broker's configuration file, which of its values are defaults, "
    "its clients file, or its environment. `quothd --check` on its machine prints what is no default."
)


async def configuration(view: PageView) -> None:
    """Build the page."""
    tag("h1", "Configuration")
    with section("This server (quoth-web)"):
        table = DataTable("Configuration of this server", COLUMNS, "")
        table.show(_row(view, name) for name in KEYS)
    welcome = await view.ask(lambda client: client.hello())
    with section("The broker"), tag("div", classes="card section"):
        facts(
            [
                ("address", view.config.url),
                ("version", welcome.server),
                ("protocol versions", ", ".join(map(str, welcome.versions))),
                (
                    "announcements",
                    welcome.announcements or "at the next port" if welcome.announcements_port else "none",
                ),
            ]
        )
        tag("h3", "Limits")
        facts([(name, _limit(name, value)) for name, value in sorted(welcome.limits.items())])
        tag("p", HIDDEN, "note")


def _row(view: PageView, name: str) -> DataRow:
    key = KEYS[name]
    source = view.services.origins.get(name, "default")
    value = {
        "text": printable(key.words(getattr(view.config, name))),
        "tone": "" if source == "default" else "good",
    }
    return DataRow(name, (name, value, source, key.help))


def _limit(name: str, value: object) -> str:
    if isinstance(value, int) and "bytes" in name:
        return f"{value:,} ({format_size(value, rough=True)})"
    return f"{value:,}" if isinstance(value, int | float) else printable(str(value))
