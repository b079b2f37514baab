"""The name that a person probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LENGTH_MAX = 60
"""Characters of a name that are compared. The time of the comparison grows with their square."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar name, None if none is similar. Names with the same first word come first.

    ``_`` and ``-`` separate words: ``count_limit`` is nearer to ``count_interval`` than ``scrub_interval``,
    though that has more letters in common.
    """
    known = list(names)
    same_word = [one for one in known if _first_word(one) == _first_word(name)]
    for candidates, likeness in ((same_word, 0.5), (known, 0.6)):
        if near := difflib.get_close_matches(name[:_LENGTH_MAX], candidates, n=1, cutoff=likeness):
            return near[0]
    return None


def _first_word(name: str) -> str:
    return re.split("[_-]", name[:_LENGTH_MAX].removeprefix("--").lower(), maxsplit=1)[0]
