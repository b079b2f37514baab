"""The table of records that the browser, the search and the live tail share."""

from __future__ import annotations

from quoth.message import Gap, Message
from quothweb.dashboard import figures
from quothweb.dashboard.records.record_text import headers_preview, preview
from quothweb.dashboard.widgets.data_table import Cell, DataRow, DataTable, TableColumn

WHOLE = (
    TableColumn("time", "Time (UTC)"),
    TableColumn("key", "Key", kind="mono"),
    TableColumn("value", "Value", kind="mono"),
    TableColumn("size", "Size", numeric=True),
    TableColumn("headers", "Headers", kind="mono"),
    TableColumn("pointer", "Pointer", numeric=True),
)
BARE = (WHOLE[0], WHOLE[3], WHOLE[5])
"""The columns where records keep their content to themselves."""
REASONS = {
    "trimmed": "were removed by retention or a trim",
    "damaged": "are damaged and cannot be read",
    "recreated": "belong to an earlier topic of this name",
    "ahead": "are still to come: this place lies behind the newest record",
}
HIDDEN = "This server shows no content of records (payloads is off): only their times, pointers and sizes."


class RecordTable:
    """A table of records. shows_content: the keys, values and headers, too."""

    def __init__(self, caption: str, empty: str, *, shows_content: bool) -> None:
        self._shows_content = shows_content
        self.table = DataTable(caption, WHOLE if shows_content else BARE, empty)

    def row(self, message: Message) -> DataRow:
        """Return the row of a record."""
        pointer, size = str(message.pointer), figures.size(len(message.value))
        time: Cell = {"text": figures.time(message.pointer), "choose": self._shows_content}
        if not self._shows_content:
            return DataRow(pointer, [time, size, pointer])
        content = preview(message.key), preview(message.value), size, headers_preview(message.headers)
        return DataRow(pointer, [time, *content, pointer])

    def gap_row(self, gap: Gap) -> DataRow:
        """Return the row that stands for records that are missing."""
        what = f"{gap.records:,} records" if gap.records > 0 else "Records"
        return self.remark(f"gap {gap.after}", gap.after, f"{what} {REASONS[gap.reason]}")

    def remark(self, key: str, pointer: int, text: str) -> DataRow:
        """Return a row that says something about the records behind a pointer."""
        where = f"after {pointer}"
        if not self._shows_content:
            return DataRow(key, [text, "", where], "gap")
        return DataRow(key, [figures.time(pointer), "", text, "", "", where], "gap")
