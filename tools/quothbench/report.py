"""A report: the conditions of a measurement, then a row for each figure as soon as it is known.

In JSON the conditions are the first object, and every row is another one with the same keys in every run.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zmq

from quothbench.figures import Spread
from quothcli.printing.output import Format, Printer
from quothwire.native import implementation

_GAP = "  "
_CPU_INFO = Path("/proc/cpuinfo")


class ReportColumn(NamedTuple):
    """A figure of every row. key: in JSON. text: prints it for people. The first column is a name."""

    key: str
    title: str
    text: Callable[[Any], str] = str
    width: int = 9


def goal_columns(text: Callable[[Any], str], width: int) -> tuple[ReportColumn, ReportColumn]:
    """Return the columns of a `Goal`. width: of the second one."""
    return ReportColumn("required", "required", text, 8), ReportColumn("aim", "aim", text, width)


class Report:
    """Prints the conditions at once, and each row when it is measured."""

    def __init__(
        self, printer: Printer, name: str, conditions: Mapping[str, Any], columns: Sequence[ReportColumn]
    ) -> None:
        self._printer = printer
        self._name = name
        self._columns = columns
        shown = {**conditions, **machine()}
        if printer.form is Format.JSON:
            printer.object({"benchmark": name, **shown})
        else:
            for key, value in shown.items():
                printer.line(f"{key.replace('_', ' '):<11} {value}")
            printer.line("")
            printer.line(self._line([column.title for column in columns]))
        printer.flush()

    def row(self, *figures: Any) -> None:
        """Print a row: a figure for each column, None where it is unknown."""
        if self._printer.form is Format.JSON:
            named: dict[str, Any] = {"benchmark": self._name}
            for column, figure in zip(self._columns, figures, strict=True):
                named[column.key] = figure._asdict() if isinstance(figure, Spread) else figure
            self._printer.object(named)
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
    """Return the conditions that every figure depends on: processor, system, versions, other load."""
    from importlib.metadata import version  # loads much of Python's email, which --help does not need

    versions = ", ".join(f"{name} {version(name)}" for name in ("quoth", "pyzmq", "msgpack", "xxhash"))
    return {
        "machine": f"{os.cpu_count()} x {_processor()}, {platform.system()} {platform.release()}",
        "versions": f"{versions}, libzmq {zmq.zmq_version()}",
        "python": f"{platform.python_version()}, {_python_build()}",
        "hot_path": implementation(),
        "system_load": ", ".join(f"{load:.1f}" for load in os.getloadavg()) + " in 1, 5, 15 minutes",
    }


def count(figure: float) -> str:
    """Print a number for people."""
    return f"{figure:,.0f}"


def number(figure: float) -> str:
    """Print a figure of any size for people."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def seconds(figure: float) -> str:
    """Print a duration for people."""
    return f"{figure * 1e6:,.0f} us" if figure < 0.001 else f"{figure * 1e3:,.2f} ms"


def factor(figure: float) -> str:
    """Print a ratio for people."""
    return f"{figure:.2f}"


def spread(figure: Spread) -> str:
    """Print the median, the smallest and the largest of some ratios for people."""
    return f"{figure.median:.2f} ({figure.low:.2f}-{figure.high:.2f})"


def published(figures: Mapping[str, float | None]) -> str:
    """Print what an ancestor of Quoth published and, in brackets, what it reached where we measured it."""
    texts = {key: "-" if figure is None else count(figure) for key, figure in figures.items()}
    return texts["published"] if figures["measured"] is None else "{published} ({measured})".format(**texts)


def _python_build() -> str:
    """Return what distinguishes builds of one version, whose speed differs by up to a fifth."""
    from sysconfig import get_config_var  # loads a large table, which --help does not need

    optimized = "--enable-optimizations" in str(get_config_var("CONFIG_ARGS"))
    kind = "with" if optimized else "without"
    return f"{kind} profile-guided optimization, {platform.python_compiler()}, {sys.executable}"


def _processor() -> str:
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
