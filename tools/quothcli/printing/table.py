"""Prints rows below headings, each column as wide as its widest cell."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from quothcli.printing.output import Printer
from quothcli.printing.text import cells_of, padded


def print_table(
    printer: Printer, headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> None:
    """Print a line for each row, below the headings; nothing without a row.

    right: the headings of the columns that stand to the right, as numbers do.
    """
    columns = list(zip(*[headings, *rows], strict=True)) if rows else []
    widths = [max(map(cells_of, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = [
            " " * (width - cells_of(cell)) + cell if column[0] in right else padded(cell, width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        printer.line("  ".join(cells).rstrip())
