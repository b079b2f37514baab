"""The keys of a configuration as options of a command."""

from __future__ import annotations

from typing import Annotated, Any

from quothcli.cli.command import SharedOptions, as_typed, option
from quothwire.config.config_key import ConfigKey, Schema


def key_options(schema: Schema[Any]) -> SharedOptions:
    """Return an option for each key of a configuration, as a map of what was typed."""
    return SharedOptions({name: _option(key) for name, key in schema.keys.items()}, as_typed)


def _option(key: ConfigKey) -> Any:
    if key.kind is bool:
        return Annotated[bool | None, option(f"{key.option}/--no-{key.option[2:]}", key.summary)]
    return Annotated[str | None, option(f"{key.option} {key.metavar}", key.summary)]
