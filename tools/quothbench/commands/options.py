"""What the commands share: how much is measured, where the data lies, on which broker."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from quothbench.load.target import Target, own_broker, running_broker
from quothcli.cli.quantities import size, span
from quothcli.cli.session import Chosen

PAIRS_MIN = 9
"""Below that a median says little on a shared machine."""
SECONDS_MAX = 600


class Level(StrEnum):
    """The durability levels."""

    WRITTEN = "written"
    SYNCED = "synced"


Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIRECTORY", help="Where the data lies while it is measured (default: the system's)."
    ),
]
Pairs = Annotated[int, typer.Option("--pairs", metavar="N", min=1, help="Measurements of each of the two.")]
Levels = Annotated[
    list[Level] | None,
    typer.Option("--durability", help="Which durability levels; may be repeated (default: both)."),
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="A broker that is running (default: one of its own, which ends with it)."
    ),
]
Records = Annotated[int, typer.Option("--records", metavar="N", min=1, help="Messages of a call.")]
Size = Annotated[
    int, typer.Option("--size", metavar="SIZE", parser=size("--size"), help="Bytes of a message: 100, 1KiB.")
]
Seconds = Annotated[
    float,
    typer.Option(
        "--seconds",
        metavar="SPAN",
        parser=span("--seconds", 0.01, SECONDS_MAX),
        help="How long a row is measured.",
    ),
]


@contextmanager
def target(asked: Chosen, directory: Path | None) -> Iterator[Target]:
    """The broker at a URL, or one of its own on a temporary directory. Raises `Disconnected` or OSError.

    A URL in the environment does not count: nobody asked for load on that broker.
    """
    if asked.url is None:
        with folder(directory) as made, own_broker(made / "data") as broker:
            yield broker
    elif directory is not None:
        raise typer.BadParameter("a broker that is running has its own", param_hint="--dir")
    else:
        with asked.connect() as client:
            broker = running_broker(client)
        yield broker


@contextmanager
def folder(directory: Path | None) -> Iterator[Path]:
    """A temporary directory. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="quoth-bench-", dir=directory) as made:
        yield Path(os.path.realpath(made))
