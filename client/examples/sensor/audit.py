"""Compares what a topic holds with what a device has confirmed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

Reading = tuple[int, int]
"""The start of the device, and the number of the reading since."""


class Verdict(NamedTuple):
    """Readings that are not as promised, by problem. stored: how many different ones the topic holds."""

    stored: int
    missing: list[Reading]
    doubled: list[Reading]
    disordered: list[Reading]

    @property
    def problems(self) -> list[str]:
        """A line for each kind of problem."""
        kinds = self._asdict().items()
        return [f"{kind}: {_listed(found)}" for kind, found in kinds if isinstance(found, list) and found]


def audit(confirmed: Mapping[int, int], stored: Iterable[Reading]) -> Verdict:
    """Compare. confirmed: by start, up to which number all readings are safe. stored: in the topic's order.

    A power cut may take readings that were not confirmed, but none before others of the same start.
    """
    found = list(stored)
    times = Counter(found)
    last = dict(confirmed)
    for start, number in times:
        last[start] = max(number, last.get(start, 0))
    expected = {(start, number) for start in last for number in range(1, last[start] + 1)}
    return Verdict(
        len(times),
        sorted(expected - times.keys()),
        sorted(one for one, count in times.items() if count > 1),
        [other for one, other in pairwise(found) if other < one],
    )


def _listed(readings: list[Reading], most: int = 20) -> str:
    text = ", ".join(f"{start}.{number}" for start, number in readings[:most])
    return f"{text} and {len(readings) - most:,} more" if len(readings) > most else text
