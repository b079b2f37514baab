"""Records are printed in columns on a terminal, with widths in cells and a line for each new date."""

from __future__ import annotations

from quoth import Message
from quothcli.printing.rows import PrintedColumns
from quothcli.printing.text import cells_of

POINTER = 1_767_323_045_000_001  # 2026-01-02T03:04:05.000001Z
DAY = 86_400_000_000

CELLS = {
    "": 0,
    "key": 3,
    "\u00fc": 1,
    "u\u0308": 1,  # a combining mark
    "\u9375": 2,  # wide
    "\uff21": 2,  # full width
    "\U0001f511": 2,
    "\u0e01\u0e31\u0e19": 2,  # Thai: a mark above, of combining class 0
    "a\u20ddb": 2,  # an enclosing mark
}


def test_cells_of_a_text() -> None:
    assert {text: cells_of(text) for text in CELLS} == CELLS


def test_values_stand_below_each_other_behind_wide_keys() -> None:
    rows = PrintedColumns(pointers=False, with_topic=False, colour=False, columns=80)
    keys = ("abcd", "\u9375\u9375", "\u0e01\u0e31\u0e19-\u0e01", "ab")
    for number, key in enumerate(keys):
        line = rows(Message("orders", POINTER + number, b"value", key.encode(), {})).decode().splitlines()[-1]
        assert cells_of(line.partition("value")[0]) == 20, line


def test_each_new_date_has_a_line() -> None:
    rows = PrintedColumns(pointers=False, with_topic=False, colour=False, columns=80)
    pointers = [POINTER, POINTER + 1_000, POINTER + DAY, POINTER + DAY + 1_000]
    printed = b"".join(rows(Message("orders", pointer, b"v", None, {})) for pointer in pointers)
    assert printed.decode().splitlines() == [
        "--- 2026-01-02 UTC ---",
        "03:04:05.000  v",
        "03:04:05.001  v",
        "--- 2026-01-03 UTC ---",
        "03:04:05.000  v",
        "03:04:05.001  v",
    ]
