"""The slabs of queuefka: reads, follows and writes them, and maps their addresses to pointers.

`slab_format` draws the bytes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quothlog.slabs.slab_addresses import SlabAddresses, import_producer, stored_in
    from quothlog.slabs.slab_follower import SlabFollower
    from quothlog.slabs.slab_format import SlabGap, SlabRecord, xxh32
    from quothlog.slabs.slab_reader import SlabReader
    from quothlog.slabs.slab_writer import SlabWriter

__all__ = [
    "SlabAddresses", "SlabFollower", "SlabGap", "SlabReader", "SlabRecord", "SlabWriter", "import_producer",
    "stored_in", "xxh32",
]  # fmt: skip

_MODULES = {
    "SlabAddresses": "slab_addresses",
    "SlabFollower": "slab_follower",
    "SlabGap": "slab_format",
    "SlabReader": "slab_reader",
    "SlabRecord": "slab_format",
    "SlabWriter": "slab_writer",
    "import_producer": "slab_addresses",
    "stored_in": "slab_addresses",
    "xxh32": "slab_format",
}
"""The module of each name, loaded when the name is used: a log needs the names of slabs alone."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
