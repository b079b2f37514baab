"""Lists the words that names and texts of the project do not use, and what stands in their place.

`client/CONCEPTS.md` explains the words that are used.
"""

from __future__ import annotations

import re

NAMES = {
    "applications": "transaction table",
    "bell": "wakeup",
    "caller": "responder",
    "cells": "Arrow buffers",
    "chosen": "session",
    "complain": "log",
    "courier": "I/O thread",
    "cutting": "chunking",
    "delivery": "record printer",
    "dialogue": "operations",
    "disk": "atomic files",
    "division": "partitioning",
    "drafts": "record parser",
    "effort": "scale",
    "exchange": "request state",
    "gathering": "multi-reader",
    "glance": "precheck",
    "happening": "transition",
    "harms": "corruptions",
    "homes": "XDG paths",
    "job": "pending request",
    "keeper": "topic",
    "lanes": "sequence pool",
    "ledgers": "model",
    "lives": "scenarios",
    "losses": "data loss",
    "marks": "forwarding progress",
    "moment": "timestamp",
    "names": "directory watch",
    "pace": "rate limit",
    "park": "pending fetch",
    "passage": "batch cursor",
    "patience": "adaptive timeout",
    "place": "topic metadata",
    "planning": "offset planner",
    "producing": "foreach producer",
    "questions": "request multiplexer",
    "refusal": "error",
    "relay": "loop bridge",
    "relieved": "takeover",
    "rest": "hibernate",
    "room": "disk space",
    "standin": "stall guard",
    "steps": "calls",
    "stretch": "range",
    "tip": "appender",
    "trouble": "write failure",
    "turns": "scheduler",
    "upkeep": "verify",
    "voice": "event list",
    "waits": "pending fetches",
    "walk": "call driver",
}
"""Names of modules, classes and functions that meant something here alone, and the field's words."""

TEXTS = {
    "whoever": "the one who",
    "nobody": "no one, no client, no thread",
    "somebody": "a client, another thread",
    "anybody": "any client",
    r"(?:is|are|was|were|be|been|being) told": "learns, the reply has",
    "keepers?": "topic",
    "stand-?ins?": "stall guard",
    "relieved": "takeover",
    "happenings?": "transition",
    "couriers?": "I/O thread",
    "(?:set|sets|setting) aside": "quarantined",
    "borrowed_us": "pointer_ahead_us",
    "unseen_records": "records_not_visible",
    "unanswerable": "malformed_requests",
    "stray_files": "unknown_files",
}
"""Patterns of words that no text has, and what can stand there."""

QUESTIONS = re.compile(
    r"(what|how|whether|who|whoever|whatever|that|is|are|does|do|has|have|may|can|could|where|when|why|if|which"
    r"|it|they|nobody|somebody|something|those|there|so|then)\b",
    re.IGNORECASE,
)
"""Matches the beginning of a docstring that says neither what a thing does nor what it is."""
