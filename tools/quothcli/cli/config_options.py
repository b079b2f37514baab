"""The keys of the configuration as options, for the commands that read one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quothd.config.sources import FILE_HELP

if TYPE_CHECKING:
    from quothd.config.config import Key


File = Annotated[Path | None, typer.Option("--config", metavar="FILE", help=FILE_HELP)]


def key_options() -> dict[str, Any]:
    """The annotation of each, by the name of its key; to be spread into a command."""
    from quothd.config.config import KEYS

    return {name: _option(key) for name, key in KEYS.items()}


def _option(key: Key) -> Any:
    if key.kind is bool:
        both = f"{key.option}/--no-{key.option[2:]}"
        return Annotated[bool | None, typer.Option(both, help=key.summary)]
    return Annotated[str | None, typer.Option(key.option, metavar=key.metavar, help=key.summary)]
