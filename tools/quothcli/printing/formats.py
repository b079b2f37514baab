"""The formats in which commands print."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"  # the same as json, for whoever calls it so
    RAW = "raw"
