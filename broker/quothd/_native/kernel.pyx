"""The function of `quothd.connections.kernel` that reads the counters of thousands of connections at a time."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

from quothwire._native.values cimport as_word

cdef extern from *:
    """
    #include <sys/ioctl.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #include <termios.h>
    #ifdef __linux__
    #include <netinet/in.h>
    enum { QUOTH_TCP = IPPROTO_TCP, QUOTH_TCP_INFO = 11, QUOTH_COOKIE = 57 };
    #else
    enum { QUOTH_TCP = -1, QUOTH_TCP_INFO = -1, QUOTH_COOKIE = -1 };
    #endif
    """
    int SOL_SOCKET, QUOTH_TCP, QUOTH_TCP_INFO, QUOTH_COOKIE
    unsigned long TIOCOUTQ
    int getsockopt(int fd, int level, int option, void *value, unsigned int *size)
    int ioctl(int fd, unsigned long request, int *value)

cdef enum:
    COOKIE_BYTES = 8
    COUNTERS_AT = 120
    INFO_BYTES = 136
cdef uint64_t FD_MAX = 2**31 - 1
cdef dict references = {}


def take(function):
    """Registers the reference of a function, and returns the compiled function of its name."""
    references[function.__name__] = function
    return globals()[function.__name__]


def counted_bytes(descriptor, cookie):
    cdef uint64_t number
    cdef uint64_t counters[2]
    cdef char info[INFO_BYTES]
    cdef char found[COOKIE_BYTES]
    cdef unsigned int size = COOKIE_BYTES
    cdef int unread = 0
    if not (
        as_word(descriptor, &number)
        and number <= FD_MAX
        and PyBytes_CheckExact(cookie)
        and PyBytes_GET_SIZE(cookie) == COOKIE_BYTES
    ):
        return references["counted_bytes"](descriptor, cookie)
    if getsockopt(<int>number, SOL_SOCKET, QUOTH_COOKIE, found, &size) < 0:
        return references["counted_bytes"](descriptor, cookie)
    if memcmp(found, PyBytes_AS_STRING(cookie), COOKIE_BYTES):
        return None
    size = INFO_BYTES
    if getsockopt(<int>number, QUOTH_TCP, QUOTH_TCP_INFO, info, &size) < 0 or size < INFO_BYTES:
        return references["counted_bytes"](descriptor, cookie)
    if ioctl(<int>number, TIOCOUTQ, &unread) < 0:
        return references["counted_bytes"](descriptor, cookie)
    memcpy(counters, info + COUNTERS_AT, sizeof(counters))
    return counters[0], counters[1], unread
