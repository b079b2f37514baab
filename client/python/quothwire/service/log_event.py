"""Events of logs: kinds with a name that stays, and the line of one.

Programs can search for the names. Fields are names, numbers and texts of errors, never the content of
records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

FOREIGN = "message"
"""The event for messages of other libraries."""

_BARE = re.compile(r"[\w./:~@%+*,-]+", re.ASCII)


class LogEvent(NamedTuple):
    """A kind of event. sentence: its line for people; empty: text is a list of fields, too."""

    level: int
    meaning: str
    sentence: str = ""


def line_of(event: str, fields: Mapping[str, Any]) -> str:
    """Format an event as one line: event=NAME, then its fields as KEY=VALUE."""
    return " ".join([f"event={event}", *(f"{name}={_shown(value)}" for name, value in fields.items())])


def _shown(value: Any) -> str:
    """Format a value as one word, or quoted as in JSON, which is safe for a terminal."""
    text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    if _BARE.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
