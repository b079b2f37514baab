"""A report: under which conditions something was measured, then a row for each figure as soon as it is known.

In JSON the conditions are the first object and every row is another one, with the same keys for every run.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zmq

from quothbench.figures import Spread
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer, bytes_text

_GAP = "  "
_CPU_INFO = Path("/proc/cpuinfo")


class Column(NamedTuple):
    """A figure of every row. key: in JSON. text: how people read it; the first column is a name."""

    key: str
    title: str
    text: Callable[[Any], str] = str
    width: int = 9


def goal_columns(text: Callable[[Any], str], width: int) -> tuple[Column, Column]:
    """The columns of a `Goal`: what is required of a figure, and what is aimed at. width: of the second."""
    return Column("required", "required", text, 8), Column("aim", "aim", text, width)


class Report:
    """Prints conditions at once, rows as they come."""

    def __init__(
        self, printer: Printer, name: str, conditions: Mapping[str, Any], columns: Sequence[Column]
    ) -> None:
        self._printer = printer
        self._name = name
        self._columns = columns
        told = {**conditions, **machine()}
        if printer.form is Format.JSON:
            printer.object({"benchmark": name, **told})
        else:
            for key, value in told.items():
                printer.line(f"{key.replace('_', ' '):<12}{value}")
            printer.line("")
            printer.line(self._line([column.title for column in columns]))
        printer.flush()

    def row(self, *figures: Any) -> None:
        """Print a row: a figure for each column, None where there is none."""
        if self._printer.form is Format.JSON:
            named = {
                column.key: _plain(figure) for column, figure in zip(self._columns, figures, strict=True)
            }
            self._printer.object({"benchmark": self._name, **named})
        else:
            texts = [
                "-" if figure is None else column.text(figure)
                for column, figure in zip(self._columns, figures, strict=True)
            ]
            self._printer.line(self._line(texts))
        self._printer.flush()

    def _line(self, texts: Sequence[str]) -> str:
        first, *others = self._columns
        cells = [texts[0].ljust(first.width)]
        cells += [text.rjust(column.width) for column, text in zip(others, texts[1:], strict=True)]
        return _GAP.join(cells).rstrip()


def machine() -> dict[str, str]:
    """What a figure depends on beside the broker: processor, system, versions."""
    from importlib.metadata import version  # loads much of Python's email, which --help does not need

    versions = ", ".join(f"{name} {version(name)}" for name in ("quoth", "pyzmq", "msgpack", "xxhash"))
    return {
        "machine": f"{os.cpu_count()} x {_processor()}, {platform.system()} {platform.release()}",
        "versions": f"{versions}, libzmq {zmq.zmq_version()}, Python {platform.python_version()}",
    }


def count(figure: float) -> str:
    """A number, for people."""
    return f"{figure:,.0f}"


def seconds(figure: float) -> str:
    """A duration, for people."""
    if math.isnan(figure):
        return "-"
    return f"{figure * 1e6:,.0f} us" if figure < 0.001 else f"{figure * 1e3:,.2f} ms"


def factor(figure: float) -> str:
    """A ratio, for people."""
    return f"{figure:.2f}"


def spread(figure: Spread) -> str:
    """The median of some ratios and how far they are apart, for people."""
    return f"{figure.median:.2f} ({figure.low:.2f}-{figure.high:.2f})"


size = bytes_text
"""A number of bytes, for people."""


def _plain(figure: Any) -> Any:
    """A figure as JSON has it: a spread is an object, and there is no NaN."""
    if isinstance(figure, Spread):
        return figure._asdict()
    return None if isinstance(figure, float) and math.isnan(figure) else figure


def _processor() -> str:
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
