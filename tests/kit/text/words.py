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
"""Whole names of modules, classes and functions that meant something here alone, and the field's words."""

PARTS = {
    "aside": "quarantined",
    "bell": "wakeup",
    "blow": "change, damage, failure",
    "complain": "log",
    "complaint": "logged problem",
    "courier": "I/O thread",
    "dialogue": "operations",
    "effort": "scale",
    "exchange": "request",
    "gathering": "builder, multi-reader",
    "glance": "precheck",
    "happening": "transition",
    "harm": "corruption, change",
    "hush": "drain",
    "keeper": "topic",
    "lane": "sequence pool",
    "pace": "rate limit, pause",
    "passage": "batch cursor",
    "patience": "timeout",
    "refusal": "error, problem",
    "relay": "loop bridge",
    "siege": "failures, series",
    "standin": "stall guard",
    "stand_in": "stall guard",
    "stray": "unknown file, false segment",
    "stretch": "range",
    "trouble": "write failure",
    "upkeep": "verify",
    "voice": "event list",
    "wreck": "crashed log",
}
"""Words that are no part of a name of a module, class, function, parameter, variable or attribute.

Left out are words with an ordinary use: the cells of a table, the losses of an archive, `names` of topics,
a `place` in a file, the `rest` of a list, `room` for a request, `steps` of a benchmark, a moment, a draft,
marks, turns. `NAMES` and `NAMES_OF_PACKAGES` have those that meant something here alone as whole names. A
ledger is a topic of the golden files.
"""

SUFFIXES = "s|es|ed|ing|ful|less"
"""Endings with which a part of a name is still the same word."""

ALLOWED_NAMES = {
    "Stretch": "the former name of `quoth.PointerRange`, which programs may use",
}
"""Names with such a part that stay."""

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
    "refusals?": "error",
    "wrecks?": "crashed log",
}
"""Patterns of words that no text has, and what can stand there."""

QUESTIONS = re.compile(
    r"(what|how|whether|who|whoever|whatever|that|is|are|does|do|has|have|may|can|could|where|when|why|if|which"
    r"|it|they|nobody|somebody|something|those|there|so|then)\b",
    re.IGNORECASE,
)
"""Matches the beginning of a docstring that says neither what a thing does nor what it is."""
