"""Addresses to listen on."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """True for an address, or the name localhost, that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
