"""The function of `quothd.threads.polling` that stands between libzmq's I/O threads and the kernel."""

from libc.stdint cimport uintptr_t

import ctypes

from zmq.backend.cython import _zmq

cdef extern from "polling.h":
    bint quoth_redirect(uintptr_t inside)

cdef dict references = {}


def take(function):
    """Registers the reference of a function, and returns the compiled function of its name."""
    references[function.__name__] = function
    return globals()[function.__name__]


def guard_polling():
    """Lets the libzmq that pyzmq uses call the functions above."""
    polls = getattr(ctypes.CDLL(_zmq.__file__), "zmq_poll", None)
    if polls is None:
        return references["guard_polling"]()
    address = ctypes.cast(polls, ctypes.c_void_p).value
    return quoth_redirect(<uintptr_t>address) or references["guard_polling"]()
