"""Where writing to topics will be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from pyspark.sql.types import StructType

from quothwire.errors import error


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG001
    """Raises ``unknown_operation``: a topic can be read here, and not yet be written."""
    raise error("unknown_operation", "Spark reads topics and does not write them yet", "see Client.producer")


stream_writer = batch_writer
