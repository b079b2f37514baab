"""The keys of the configuration in its table ``[poe]``."""

# ruff: noqa: RUF009  # a call after = makes a field

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from quothd.config.security_keys import SecurityKeys
from quothwire.config.config_key import Span, described

_poe = partial(described, "Poe's TCP protocol, in a process of its own", table="poe", live=False)


@dataclass(frozen=True, slots=True)
class PoeKeys(SecurityKeys):
    """The settings of the protocol of Poe, beside those of security: see `Config`."""

    poe_listen: str = _poe(
        "",
        "The address for clients of Poe, tcp://HOST:PORT; port 0 or *: any free one; empty: none.",
        "Only programs that were written for Poe need it. Keys and rights do not reach it.",
    )
    poe_connections_max: int = _poe(
        256,
        "Connections of such clients; more are closed at once.",
        "Each takes up to 400 KB and a descriptor; without descriptors for so many there are fewer.",
        least=1,
    )
    poe_idle: Span = _poe(
        300.0,
        "Time without a byte of such a connection, in either direction, after which it is closed.",
        "The protocol has no sign of life, so that a dead client could keep its place for ever.",
        least=0.01,
    )
