"""Reads the configuration of a broker: arguments win over the environment, that over the file, then defaults.

A variable is ``QUOTH_`` and the key in capitals. The error for an unknown one suggests the right one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quothd.config.config import KEYS, SCHEMA, Config
from quothwire.config import sources
from quothwire.config.sources import Sourced
from quothwire.text.variables import check_variables


def read(
    arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ, file: Path | None = None
) -> Sourced[Config]:
    """Read a configuration from all sources. Raises `RequestError` ``bad_setting`` with the origin.

    arguments: values by key; None stands for an argument that was not given.
    """
    found = sources.read(SCHEMA, arguments, environment, file)
    check_variables(environment, lambda: KEYS)
    return found


def load(
    arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ, file: Path | None = None
) -> Config:
    """Read a configuration without its origins; see `read`."""
    return read(arguments, environment, file).config
