"""The function of `quothlog.storage.filesystem` that reads what is in memory, without filling its buffer twice."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t

from quothwire._native.values cimport as_word

cdef extern from *:
    """
    #include <limits.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/syscall.h>
    #endif

    /* The function of libc would bind a wheel to glibc 2.26 or newer. */
    static int64_t read_in_memory(int fd, void *to, size_t size, uint64_t offset) {
    #if defined(SYS_preadv2) && LONG_MAX > INT_MAX
        struct iovec place = {to, size};
        return syscall(SYS_preadv2, fd, &place, 1L, (long)offset, 0L, 8 /* RWF_NOWAIT */);
    #else
        (void)fd, (void)to, (void)size, (void)offset;
        return -1;
    #endif
    }
    """
    int64_t read_in_memory(int fd, void *to, size_t size, uint64_t offset) nogil

cdef uint64_t FD_MAX = 2**31 - 1
cdef uint64_t WORD_MAX = 2**63 - 1
cdef uint64_t SIZE_MAX = 2**31 - 1
cdef dict references = {}


def take(function):
    """Registers the reference of a function, and returns the compiled function of its name."""
    references[function.__name__] = function
    return globals()[function.__name__]


def read_now(fd, size, offset):
    cdef uint64_t number, wanted, begin
    cdef int64_t found
    cdef char *to
    is_plain = as_word(fd, &number) and as_word(size, &wanted) and as_word(offset, &begin)
    if not is_plain or number > FD_MAX or wanted > SIZE_MAX or begin > WORD_MAX:
        return references["read_now"](fd, size, offset)
    data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>wanted)
    to = PyBytes_AS_STRING(data)
    with nogil:
        found = read_in_memory(<int>number, to, wanted, begin)
    return data if found >= 0 and <uint64_t>found == wanted else None
