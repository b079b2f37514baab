"""Lists the words that names and texts of the project do not use, and what stands in their place.

`client/CONCEPTS.md` explains the words that are used.
"""

from __future__ import annotations

import re

NAMES = {
    "applications": "transaction table",
    "bell": "wakeup",
    "cells": "Arrow buffers",
    "chosen": "session",
    "complain": "log",
    "courier": "I/O thread",
    "cutting": "chunking",
    "delivery": "record printer",
    "dialogue": "operations",
    "division": "partitioning",
    "drafts": "record parser",
    "effort": "scale",
    "exchange": "request state",
    "gathering": "multi-reader",
    "glance": "precheck",
    "happening": "transition",
    "harms": "corruptions",
    "homes": "XDG paths",
    "keeper": "topic",
    "lanes": "sequence pool",
    "ledgers": "model",
    "lives": "scenarios",
    "marks": "forwarding progress",
    "pace": "rate limit",
    "park": "pending fetch",
    "passage": "batch cursor",
    "patience": "adaptive timeout",
    "planning": "offset planner",
    "refusal": "error",
    "relay": "loop bridge",
    "standin": "stall guard",
    "stretch": "range",
    "tip": "appender",
    "trouble": "write failure",
    "turns": "scheduler",
    "upkeep": "verify",
    "voice": "event list",
}
"""Names of modules, classes and functions that meant something here alone, and the field's words."""

NAMES_OF_PACKAGES = {
    "quothlog": {
        "names": "directory watch",
        "room": "disk space",
    },
    "quothd": {
        "caller": "responder",
        "job": "pending request",
        "place": "topic metadata",
        "rest": "hibernate",
        "waits": "pending fetches",
    },
    "quoth": {
        "disk": "atomic files",
        "losses": "data loss",
        "moment": "timestamp",
        "producing": "foreach producer",
        "questions": "request multiplexer",
        "steps": "calls",
        "walk": "call driver",
    },
}
"""More of them, which are ordinary words in other packages."""

TEXTS = {
    "whoever": "the one who",
    "nobody": "no one, no client, no thread",
    "somebody": "a client, another thread",
    "anybody": "any client",
    r"(?:is|are|was|were|be|been|being) told": "learns, the reply has",
    "keepers?": "topic",
    "stand-?ins?": "stall guard",
    "happenings?": "transition",
    "couriers?": "I/O thread",
    "(?:set|sets|setting) aside": "quarantined",
}
"""Patterns of words that no text has, and what can stand there."""

QUESTIONS = re.compile(
    r"(what|how|whether|who|whoever|whatever|that|is|are|does|do|has|have|may|can|could|where|when|why|if|which"
    r"|it|they|nobody|somebody|something|those|there|so|then)\b",
    re.IGNORECASE,
)
"""Matches the beginning of a docstring that says neither what a thing does nor what it is."""
