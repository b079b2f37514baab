"""The name that was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LENGTH_MAX = 60
"""Of what is compared: the time for it grows with the square."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that comes nearest, None if none does. One that begins with the same word comes first.

    Words are parted by ``_`` and ``-``: for ``count_interval`` the nearest is ``count_limit``, not
    ``scrub_interval``, though that has more letters in common.
    """
    known = list(names)
    same_word = [one for one in known if _first_word(one) == _first_word(name)]
    for candidates, likeness in ((same_word, 0.5), (known, 0.6)):
        if near := difflib.get_close_matches(name[:_LENGTH_MAX], candidates, n=1, cutoff=likeness):
            return near[0]
    return None


def _first_word(name: str) -> str:
    return re.split("[_-]", name[:_LENGTH_MAX].removeprefix("--").lower(), maxsplit=1)[0]
