"""Lets the allocator of glibc keep the memory of large messages, as a daemon that sends many of them needs.

By default it returns freed memory to the system as soon as some MB lie at the end of the heap. Then each read
of a MB makes 256 page faults, a tenth of its processor time.
"""

from __future__ import annotations

import ctypes

KEPT_BYTES_MAX, KEPT_PART = 64 * 2**20, 32
"""Memory that a heap keeps at its end; no more than this part of `memory_max`, since each thread that is busy
has a heap of its own, and `give_back_memory` leaves the ends."""
MAPPED_BYTES = 32 * 2**20
"""Pieces from this size on are given back when they are freed: more than any message has, and the most that
glibc takes. It adapts neither of the two any further."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The options of mallopt(3)."""


def keep_memory(memory_max: int) -> None:
    """Set both limits for this process. Does nothing where the C library has no `mallopt`."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, min(KEPT_BYTES_MAX, memory_max // KEPT_PART))
        mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)


def give_back_memory() -> None:
    """Give all freed memory back to the system. Takes up to 0.1 s, in which other threads allocate little.

    Does nothing where the C library has no `malloc_trim`.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)


def allocated_bytes() -> int | None:
    """Return the bytes that the allocator has given out; None where the C library has no `mallinfo2`."""
    if _mallinfo2 is None:
        return None
    found: _MallInfo = _mallinfo2()
    return int(found.uordblks + found.hblkhd)


class _MallInfo(ctypes.Structure):
    """Of mallinfo2(3): hblkhd are the bytes in mappings, uordblks those given out of the heaps."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
            "keepcost",
        )
    )  # fmt: skip


_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
_mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
if _mallinfo2 is not None:
    _mallinfo2.restype = _MallInfo
