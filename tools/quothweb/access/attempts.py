"""Counts wrong tokens by the address that sends them. Uses no clock of its own."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

ATTEMPTS_MAX = 10
"""Wrong tokens of one address in a window."""
WINDOW_S = 60.0
ADDRESSES_MAX = 10_000
"""Addresses that are remembered; 200 bytes each."""


class WrongTokens:
    """The wrong tokens of the last minute, by address. One thread."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def count(self, address: str, now: float) -> float:
        """Count one; returns the seconds for which the address has to wait, 0 below the limit."""
        network = _network(address)
        began, number = self._counts.pop(network, (now, 0))
        if now - began >= WINDOW_S:
            began, number = now, 0
        self._counts[network] = began, number + 1
        if len(self._counts) > ADDRESSES_MAX:
            self._counts.popitem(last=False)
        return max(1.0, WINDOW_S - (now - began)) if number >= ATTEMPTS_MAX else 0.0


def _network(address: str) -> str:
    """Return the part of an address that a client cannot choose: of IPv6 the first 64 bits.

    An address of IPv4 that is written as one of IPv6 is that of IPv4.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found.packed[:8] + bytes(8), 64)))
    return address
