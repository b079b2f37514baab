"""The functions of `quothd.connections.router` on the libzmq that pyzmq has loaded.

A message is received, or sent, with one call from Python. The functions in Python are the reference: they get
sockets of another kind, and replies with a large frame, which pyzmq sends without a copy.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItem
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLong, PyLong_CheckExact
from cpython.object cimport PyObject
from cython cimport boundscheck
from libc.errno cimport EAGAIN, EINTR
from libc.limits cimport INT_MAX
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy, strlen

import ctypes

import zmq
from zmq.backend.cython import _zmq

from quothwire._native.buffers cimport Bytes, close_bytes, open_bytes
from quothwire._native.values cimport as_word

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll(pollfd *fds, unsigned long count, int milliseconds)

cdef extern from *:
    """
    typedef struct quoth_zmq_msg { _Alignas(16) unsigned char opaque[64]; } quoth_zmq_msg;
    """
    ctypedef struct quoth_zmq_msg:
        unsigned char opaque[64]

ctypedef int (*OnMessage)(quoth_zmq_msg *) noexcept
ctypedef int (*OnSized)(quoth_zmq_msg *, size_t) noexcept
ctypedef int (*OnSocket)(quoth_zmq_msg *, void *, int) noexcept
ctypedef void *(*DataOf)(quoth_zmq_msg *) noexcept
ctypedef size_t (*SizeOf)(const quoth_zmq_msg *) noexcept
ctypedef int (*Moved)(quoth_zmq_msg *, quoth_zmq_msg *) noexcept
ctypedef int (*GetOption)(void *, int, void *, size_t *) noexcept
ctypedef int (*GetNumber)(const quoth_zmq_msg *, int) noexcept
ctypedef const char *(*GetText)(const quoth_zmq_msg *, const char *) noexcept
ctypedef int (*Errno)() noexcept

cdef OnMessage msg_init, msg_close, msg_more
cdef OnSized msg_init_size
cdef OnSocket msg_recv, msg_send
cdef DataOf msg_data
cdef SizeOf msg_size
cdef Moved msg_move
cdef GetOption getsockopt
cdef GetNumber msg_get
cdef GetText msg_gets
cdef Errno zmq_errno

cdef int SRCFD = 2
cdef int FD = 14
cdef int EVENTS = 15
cdef int DONTWAIT = 1
cdef int SNDMORE = 2
cdef enum:
    SOCKETS_MAX = 8
    ROUTE_BYTES = 5
cdef size_t COPY_BELOW_BYTES = 0
cdef Py_ssize_t MESSAGES_MAX = 0
cdef size_t MESSAGES_BYTES_MAX = 0
cdef dict references = {}


cdef void *symbol(object library, str name) except NULL:
    found = getattr(library, name, None)
    if found is None:
        raise ImportError(f"libzmq has no {name}")
    return <void *><uintptr_t>ctypes.cast(found, ctypes.c_void_p).value


cdef int load() except -1:
    """Finds the functions of the libzmq that pyzmq uses. `dlsym` in C would bind a wheel to glibc 2.34 or newer."""
    global msg_init, msg_close, msg_more, msg_init_size, msg_recv, msg_send, msg_data, msg_size, msg_move
    global getsockopt, msg_get, msg_gets, zmq_errno
    library = ctypes.CDLL(_zmq.__file__)
    msg_init = <OnMessage>symbol(library, "zmq_msg_init")
    msg_close = <OnMessage>symbol(library, "zmq_msg_close")
    msg_more = <OnMessage>symbol(library, "zmq_msg_more")
    msg_init_size = <OnSized>symbol(library, "zmq_msg_init_size")
    msg_recv = <OnSocket>symbol(library, "zmq_msg_recv")
    msg_send = <OnSocket>symbol(library, "zmq_msg_send")
    msg_data = <DataOf>symbol(library, "zmq_msg_data")
    msg_size = <SizeOf>symbol(library, "zmq_msg_size")
    msg_move = <Moved>symbol(library, "zmq_msg_move")
    getsockopt = <GetOption>symbol(library, "zmq_getsockopt")
    msg_get = <GetNumber>symbol(library, "zmq_msg_get")
    msg_gets = <GetText>symbol(library, "zmq_msg_gets")
    zmq_errno = <Errno>symbol(library, "zmq_errno")
    return 0


load()


def take(function):
    """Registers the reference of a function, and returns the compiled function of its name."""
    global COPY_BELOW_BYTES, MESSAGES_MAX, MESSAGES_BYTES_MAX
    names = function.__globals__
    COPY_BELOW_BYTES = names["COPY_BELOW_BYTES"]
    MESSAGES_MAX = names["MESSAGES_MAX"]
    MESSAGES_BYTES_MAX = names["MESSAGES_BYTES_MAX"]
    references[function.__name__] = function
    return globals()[function.__name__]


cdef inline bint is_open(object socket, uint64_t *address):
    """True for an open socket of pyzmq itself; `address` is that of libzmq's socket."""
    address[0] = 0
    return isinstance(socket, _zmq.Socket) and not socket.closed and as_word(socket.underlying, address)


cdef int fail(int problem) except -1:
    """Raises what pyzmq raises for an error of libzmq; returns 0 after an interrupt that is to be ignored."""
    if problem == EINTR:
        PyErr_CheckSignals()
        return 0
    if problem == EAGAIN:
        raise zmq.Again(problem)
    if problem == zmq.ETERM:
        raise zmq.ContextTerminated(problem)
    raise zmq.ZMQError(problem)


# -- waiting -----------------------------------------------------------------------------------------------


def wait_for_input(sockets, fd, milliseconds):
    cdef uint64_t addresses[SOCKETS_MAX]
    cdef uint64_t number, longest
    cdef Py_ssize_t count, i
    if not (PyList_CheckExact(sockets) and as_word(fd, &number) and as_word(milliseconds, &longest)):
        return references["wait_for_input"](sockets, fd, milliseconds)
    count = PyList_GET_SIZE(sockets)
    if count > SOCKETS_MAX or number > INT_MAX or longest > INT_MAX:
        return references["wait_for_input"](sockets, fd, milliseconds)
    for i in range(count):
        if not (i < PyList_GET_SIZE(sockets) and is_open(sockets[i], &addresses[i])):
            return references["wait_for_input"](sockets, fd, milliseconds)
    return inputs(addresses, <int>count, <int>number, <int>longest)


cdef list inputs(uint64_t *addresses, int count, int fd, int milliseconds):
    """Waits for descriptors. Any call on a socket may take the signal of its descriptor, so its events come first."""
    cdef pollfd fds[SOCKETS_MAX + 1]
    cdef bint ready[SOCKETS_MAX]
    cdef int i
    for i in range(count):
        fds[i].fd, fds[i].events, fds[i].revents = option(addresses[i], FD), POLLIN, 0
        ready[i] = option(addresses[i], EVENTS) & POLLIN
        if ready[i]:
            milliseconds = 0
    fds[count].fd, fds[count].events, fds[count].revents = fd, POLLIN, 0
    if milliseconds == 0:  # other threads would keep the interpreter for half a millisecond
        i = poll(fds, <unsigned long>(count + 1), 0)
    else:
        with nogil:
            i = poll(fds, <unsigned long>(count + 1), milliseconds)
    if i < 0:
        PyErr_CheckSignals()
        return [False] * (count + 1)
    for i in range(count):
        if fds[i].revents and not ready[i]:
            ready[i] = option(addresses[i], EVENTS) & POLLIN
    return [bool(ready[i]) for i in range(count)] + [fds[count].revents != 0]


cdef int option(uint64_t socket, int number) except? -1:
    cdef int value = 0
    cdef size_t size = sizeof(int)
    while getsockopt(<void *><uintptr_t>socket, number, &value, &size) < 0:
        fail(zmq_errno())
    return value


# -- receiving ---------------------------------------------------------------------------------------------


cdef class LargeFrame:
    """A frame that stays in libzmq's memory, as a buffer that cannot be written to."""

    cdef quoth_zmq_msg message

    def __cinit__(self):
        msg_init(&self.message)

    def __dealloc__(self):
        msg_close(&self.message)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(
            view, self, msg_data(&self.message), <Py_ssize_t>msg_size(&self.message), True, flags
        )


def receive_messages(socket, users):
    cdef uint64_t address
    cdef list messages = [], frames
    cdef dict senders = {}
    cdef size_t size = 0
    if not (is_open(socket, &address) and PyDict_CheckExact(users)):
        return references["receive_messages"](socket, users)
    while len(messages) < MESSAGES_MAX and size < MESSAGES_BYTES_MAX:
        frames = received(<void *><uintptr_t>address, &size, users, senders, len(messages))
        if frames is None:
            return messages, senders, True
        messages.append(frames)
    return messages, senders, False


cdef list received(void *socket, size_t *total, dict users, dict senders, object row):
    """Returns the frames of the next message, None if there is none.

    total: grows by their bytes. senders: gets the sender under the row if `users` does not have it.
    """
    cdef quoth_zmq_msg message
    cdef list frames = []
    cdef bint more = True
    cdef size_t size
    cdef int problem
    msg_init(&message)
    try:
        while more:
            while msg_recv(&message, socket, DONTWAIT) < 0:
                problem = zmq_errno()
                if problem == EAGAIN and not frames:
                    return None
                fail(problem)
            size = msg_size(&message)
            total[0] += size
            more = msg_more(&message) != 0
            if not frames:
                frames.append(PyBytes_FromStringAndSize(<char *>msg_data(&message), <Py_ssize_t>size))
                if not is_known(&message, users, frames[0]):
                    senders[row] = sender(&message)
            elif size < COPY_BELOW_BYTES:
                frames.append(PyBytes_FromStringAndSize(<char *>msg_data(&message), <Py_ssize_t>size))
            else:
                frames.append(moved(&message))
    finally:
        msg_close(&message)
    return frames


cdef bint is_known(quoth_zmq_msg *message, dict users, object route):
    """True if the route belongs to the client whose key, or connection, the message comes with."""
    cdef PyObject *user = PyDict_GetItem(users, route)
    cdef const char *key
    if user is NULL:
        return False
    if PyLong_CheckExact(<object>user):
        return PyLong_AsLong(<object>user) == msg_get(message, SRCFD)
    if not PyBytes_CheckExact(<object>user):
        return False
    key = msg_gets(message, b"User-Id")
    return (
        key is not NULL
        and strlen(key) == <size_t>PyBytes_GET_SIZE(<object>user)
        and memcmp(key, PyBytes_AS_STRING(<object>user), strlen(key)) == 0
    )


cdef tuple sender(quoth_zmq_msg *message):
    """Returns the descriptor and the key of the client that has sent a message."""
    cdef const char *key = msg_gets(message, b"User-Id")
    return msg_get(message, SRCFD), b"" if key is NULL else <bytes>key


cdef object moved(quoth_zmq_msg *message):
    cdef LargeFrame frame = LargeFrame()
    msg_move(&frame.message, message)
    return memoryview(frame)


# -- sending -----------------------------------------------------------------------------------------------


@boundscheck(True)  # the buffer of a frame may run code that changes the list
def send_message(socket, frames):
    cdef uint64_t address
    cdef Py_ssize_t count, i
    if not (PyList_CheckExact(frames) and PyList_GET_SIZE(frames) and is_open(socket, &address)):
        return references["send_message"](socket, frames)
    count = PyList_GET_SIZE(frames)
    for i in range(count - 1):
        if not is_small(frames[i]):
            return references["send_message"](socket, frames)
    last = frames[count - 1]
    has_small_end = is_small(last)
    if count == 1 and not has_small_end:
        return references["send_message"](socket, frames)
    for i in range(count - 1):
        if not send(<void *><uintptr_t>address, frames[i], DONTWAIT | SNDMORE):
            return False
    if has_small_end:
        return send(<void *><uintptr_t>address, last, DONTWAIT)
    try:
        _zmq.Socket.send(socket, last, DONTWAIT, False)
    except zmq.Again:
        return False
    return True


def find_taken_route(socket, begin, count):
    cdef uint64_t address, first, number, most
    if not (is_open(socket, &address) and as_word(begin, &first) and as_word(count, &most)):
        return references["find_taken_route"](socket, begin, count)
    for number in range(first, first + most):
        if is_taken(<void *><uintptr_t>address, <uint32_t>number):
            return number
    return -1


cdef bint is_taken(void *socket, uint32_t number) except? -1:
    cdef quoth_zmq_msg message
    cdef unsigned char *route
    cdef int problem = 0
    msg_init_size(&message, ROUTE_BYTES)
    route = <unsigned char *>msg_data(&message)
    route[0], route[1], route[2] = 0, number >> 24, number >> 16 & 0xFF
    route[3], route[4] = number >> 8 & 0xFF, number & 0xFF
    if msg_send(&message, socket, DONTWAIT | SNDMORE) < 0:
        problem = zmq_errno()
        msg_close(&message)
        return problem == EAGAIN
    send(socket, b"", DONTWAIT)
    return True


cdef bint is_small(object frame):
    """True for bytes, or a view of some, that are copied."""
    cdef Bytes opened
    cdef size_t size
    if not open_bytes(frame, &opened):
        return False
    size = opened.size
    close_bytes(&opened)
    return size < COPY_BELOW_BYTES


cdef bint send(void *socket, object frame, int flags) except -1:
    """Sends a copy of a frame; False if there is no room."""
    cdef quoth_zmq_msg message
    cdef Bytes opened
    cdef int problem
    if not open_bytes(frame, &opened):
        raise BufferError("a frame that was released meanwhile")
    try:
        if msg_init_size(&message, opened.size) < 0:
            raise MemoryError
        if opened.size:
            memcpy(msg_data(&message), opened.bytes, opened.size)
    finally:
        close_bytes(&opened)
    try:
        while msg_send(&message, socket, flags) < 0:
            problem = zmq_errno()
            if problem == EAGAIN:
                return False
            fail(problem)
    finally:
        msg_close(&message)  # does nothing after it was sent
    return True
