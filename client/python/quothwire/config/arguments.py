"""The arguments of a daemon: an option for each key, `--config` and `--check`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quothwire.config.config_key import Schema
from quothwire.errors import QuothError
from quothwire.text.paths import given_path
from quothwire.text.suggestion import nearest

FILE_HELP = "A TOML file with these keys; without this option no file is read. SIGHUP reads it again."
CHECK_HELP = "Do not start: check the configuration and print what differs from the defaults."


class GivenArguments(NamedTuple):
    """The typed arguments. keys: values by key, None for what was not given. file: that of `--config`."""

    keys: dict[str, Any]
    file: Path | None
    only_check: bool


def parse(
    schema: Schema[Any], arguments: Sequence[str] | None, *, prog: str, description: str, epilog: str
) -> GivenArguments:
    """Parse the arguments of a daemon, or exit with 2. The error for an unknown one suggests the right one.

    arguments: None for those of the process.
    """
    parser = parser_of(schema, prog, description, epilog)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        options = [key.option for key in schema.keys.values()]
        near = nearest(unknown[0], [*options, "--config", "--check"])
        parser.error(f"there is no {unknown[0]}" + (f", did you mean {near}?" if near else ""))
    keys = vars(given)
    return GivenArguments(keys, keys.pop("config"), keys.pop("check"))


def parser_of(schema: Schema[Any], prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of the arguments of a daemon."""
    parser = argparse.ArgumentParser(prog=prog, allow_abbrev=False, description=description, epilog=epilog)
    parser.add_argument("--config", type=_file, metavar="FILE", help=FILE_HELP)
    parser.add_argument("--check", action="store_true", help=CHECK_HELP)
    for key in schema.keys.values():
        about: dict[str, Any] = {"default": None, "dest": key.name, "help": key.summary.replace("%", "%%")}
        if key.kind is bool:
            parser.add_argument(key.option, action=argparse.BooleanOptionalAction, **about)
        else:
            parser.add_argument(key.option, metavar=key.metavar, **about)
    return parser


def _file(text: str) -> Path:
    try:
        return given_path(text, "--config")
    except QuothError as problem:
        raise argparse.ArgumentTypeError(f"{problem.text} ({problem.hint})") from None
