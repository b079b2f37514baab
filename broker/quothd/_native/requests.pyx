"""The function of `quothd.requests.pending_request` that reads the frames of a request in the fast protocol.

It calls the function in Python, its reference, for all others and for everything that is wrong.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from libc.string cimport memcmp

cdef dict references = {}
cdef object BinaryResponder = None
cdef object PendingRequest = None
cdef object QuothError = None
cdef object decode_call = None
cdef object topic_of = None
cdef object without_topic = None
cdef bytes MAGIC = b""
cdef Py_ssize_t FRAME_BYTES = 0
cdef enum:
    BODY_AT = 2


def take(function):
    """Registers the reference of a function, and returns the compiled function of its name."""
    global BinaryResponder, PendingRequest, QuothError, decode_call, topic_of, without_topic, MAGIC, FRAME_BYTES
    names = function.__globals__
    BinaryResponder, PendingRequest = names["BinaryResponder"], names["PendingRequest"]
    QuothError, topic_of, without_topic = names["QuothError"], names["_topic_of"], names["WITHOUT_TOPIC"]
    decode_call, MAGIC = names["binary_codec"].decode_call, names["binary_codec"].MAGIC
    FRAME_BYTES = names["FRAME_BYTES"]
    references[function.__name__] = function
    return globals()[function.__name__]


def open_request(frames, connection):
    cdef Py_ssize_t count = PyList_GET_SIZE(frames) if PyList_CheckExact(frames) else 0
    cdef Py_ssize_t size, i
    if count <= BODY_AT:
        return references["open_request"](frames, connection)
    route, delimiter, head = frames[0], frames[1], frames[BODY_AT]
    if not (PyBytes_CheckExact(route) and is_empty(delimiter) and begins_with_magic(head)):
        return references["open_request"](frames, connection)
    try:
        call = decode_call(frames[BODY_AT:])
        operation = call[0]
        topic = "" if operation in without_topic else topic_of(call[2])
    except QuothError:
        return references["open_request"](frames, connection)
    size = FRAME_BYTES * (count - BODY_AT)
    for i in range(BODY_AT, count):
        size += len(frames[i])
    return PendingRequest(BinaryResponder([route, b""], call), operation, topic, size, connection)


cdef inline bint is_empty(object frame):
    return PyBytes_CheckExact(frame) and PyBytes_GET_SIZE(frame) == 0


cdef inline bint begins_with_magic(object frame):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(MAGIC)
    if not PyBytes_CheckExact(frame) or PyBytes_GET_SIZE(frame) < size:
        return False
    return memcmp(PyBytes_AS_STRING(frame), PyBytes_AS_STRING(MAGIC), <size_t>size) == 0
