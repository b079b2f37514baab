"""The hot messages of `quothwire.protocol.binary_codec` on libquoth: those of publishes and fetches.

Each function does the same as the Python function of its name for these messages, and calls that function, its
reference, for all others and for everything that is wrong.
"""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.tuple cimport PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8

from quothwire._native.buffers cimport Bytes, close_bytes, open_bytes
from quothwire._native.libquoth cimport *
from quothwire._native.values cimport PyErr_Clear, as_signed, as_word, new_row, set_field

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size)
    bint PyUnicode_CheckExact(object text)
    bint PyLong_Check(object number)
    long PyLong_AsLong(object number)

cdef dict references = {}
cdef dict OPERATIONS = {}
cdef dict published_arguments = {}
"""Decoded arguments of publishes, which are the same few for all publishes of a client."""
cdef object Publish = None
cdef object Fetch = None
cdef object Published = None
cdef object Fetched = None
cdef object Call = None
cdef object Answer = None
cdef object PUBLISH = None
cdef object FETCH = None

cdef Py_ssize_t PUBLISHES_MAX = 16
cdef Py_ssize_t PUBLISH_BYTES_MAX = 64


def take(function):
    """Registers the reference of a function, and returns the compiled function of its name."""
    global Publish, Fetch, Published, Fetched, Call, Answer, PUBLISH, FETCH
    names = function.__globals__
    requests = names["REQUESTS"]
    PUBLISH, FETCH = names["Operation"].PUBLISH, names["Operation"].FETCH
    Publish, Fetch = requests[PUBLISH], requests[FETCH]
    Published, Fetched = Publish.reply, Fetch.reply
    Call, Answer = names["Call"], names["Answer"]
    OPERATIONS.update(names["_OPERATIONS"])
    references[function.__name__] = function
    return globals()[function.__name__]


# -- text and numbers --------------------------------------------------------------------------------------


cdef inline bint as_text(object text, quoth_span *span) noexcept:
    """True for text that is Unicode. The bytes belong to it."""
    cdef Py_ssize_t size = 0
    if not PyUnicode_CheckExact(text):
        return False
    span.bytes = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
    span.size = <size_t>size
    if span.bytes == NULL:
        PyErr_Clear()
        return False
    return True


cdef inline object text_of(quoth_span span):
    return PyUnicode_DecodeUTF8(<char *>span.bytes, <Py_ssize_t>span.size, NULL)


cdef inline bint as_number(object number, long *small) noexcept:
    """True for an operation's number, also as a member of `Operation`."""
    small[0] = PyLong_AsLong(number) if PyLong_Check(number) else -1
    if small[0] < 0:
        PyErr_Clear()
    return 0 <= small[0] <= 0xFF


# -- messages ----------------------------------------------------------------------------------------------


cdef object new_publish(const quoth_msg_publish *message):
    made = Publish.__new__(Publish)
    made.durability = text_of(message.durability)
    return made


cdef object new_published(const quoth_msg_published *message):
    made = Published.__new__(Published)
    made.log = message.log
    made.first = message.first
    made.last = message.last
    made.count = message.count
    made.durability = text_of(message.durability)
    made.duplicate = message.duplicate != 0
    return made


cdef object new_fetch(const quoth_msg_fetch *message):
    made = Fetch.__new__(Fetch)
    made.after = message.after
    made.ordinal = message.ordinal
    made.records_max = message.records_max
    made.bytes_max = message.bytes_max
    made.wait_ms = message.wait_ms
    made.until = message.until
    made.durability = text_of(message.durability)
    return made


cdef object new_fetched(const quoth_msg_fetched *message):
    made = Fetched.__new__(Fetched)
    made.log = message.log
    made.next = message.next
    made.newest = message.newest
    made.gone = message.gone
    made.end = message.end
    made.damaged = message.damaged
    return made


cdef bint read_published(object reply, quoth_msg_published *message):
    duplicate = reply.duplicate
    message.duplicate = duplicate is True
    return (
        as_word(reply.log, &message.log)
        and as_word(reply.first, &message.first)
        and as_word(reply.last, &message.last)
        and as_word(reply.count, &message.count)
        and as_text(reply.durability, &message.durability)
        and (duplicate is True or duplicate is False)
    )


cdef bint read_fetch(object request, quoth_msg_fetch *message):
    return (
        as_word(request.after, &message.after)
        and as_signed(request.ordinal, &message.ordinal)
        and as_word(request.records_max, &message.records_max)
        and as_word(request.bytes_max, &message.bytes_max)
        and as_word(request.wait_ms, &message.wait_ms)
        and as_word(request.until, &message.until)
        and as_text(request.durability, &message.durability)
    )


cdef bint read_fetched(object reply, quoth_msg_fetched *message):
    return (
        as_word(reply.log, &message.log)
        and as_word(reply.next, &message.next)
        and as_word(reply.newest, &message.newest)
        and as_word(reply.gone, &message.gone)
        and as_word(reply.end, &message.end)
        and as_word(reply.damaged, &message.damaged)
    )


cdef object header_of(long operation, unsigned status, uint64_t correlation):
    cdef uint8_t header[16]
    quoth_header_write(header, <unsigned>operation, status, correlation)
    return PyBytes_FromStringAndSize(<char *>header, QUOTH_HEADER_BYTES)


# -- requests ----------------------------------------------------------------------------------------------


def encode_request(request, correlation, topic="", payload=None):
    cdef uint8_t packed[QUOTH_ARGUMENTS_SMALL]
    cdef quoth_msg_publish publish
    cdef quoth_msg_fetch fetch
    cdef quoth_span name
    cdef uint64_t number
    cdef size_t size = 0
    cdef unsigned operation = 0
    if as_word(correlation, &number) and as_text(topic, &name):
        if type(request) is Publish and as_text(request.durability, &publish.durability):
            operation = QUOTH_OP_PUBLISH
            size = quoth_message_encode(quoth_request_shape(operation), &publish, packed, sizeof(packed))
        elif type(request) is Fetch and read_fetch(request, &fetch):
            operation = QUOTH_OP_FETCH
            size = quoth_message_encode(quoth_request_shape(operation), &fetch, packed, sizeof(packed))
    if not size:
        return references["encode_request"](request, correlation, topic, payload)
    frames = [
        header_of(operation, QUOTH_STATUS_REQUEST, number),
        PyBytes_FromStringAndSize(<char *>name.bytes, <Py_ssize_t>name.size),
        PyBytes_FromStringAndSize(<char *>packed, <Py_ssize_t>size),
    ]
    if payload is not None:
        frames.append(payload)
    return frames


def decode_call(frames):
    cdef quoth_frame_header header
    cdef Bytes first
    cdef Py_ssize_t count = PyList_GET_SIZE(frames) if PyList_CheckExact(frames) else 0
    cdef bint is_header
    if count < 2:
        return references["decode_call"](frames)
    head, topic = frames[0], frames[1]  # from the list first: buffers and allocations may run code that changes it
    arguments = frames[2] if count > 2 else b"\x80"
    payload = frames[3] if count > 3 else b""
    if not open_bytes(head, &first):
        return references["decode_call"](frames)
    is_header = not quoth_header_read(first.bytes, first.size, True, &header)
    close_bytes(&first)
    is_header = is_header and PyBytes_CheckExact(topic) and PyBytes_CheckExact(arguments)
    if not is_header or not quoth_call_fits(header.operation, <size_t>count, <size_t>len(topic)):
        return references["decode_call"](frames)
    call = new_row(Call, 5)
    set_field(call, 0, OPERATIONS[header.operation])
    set_field(call, 1, header.correlation)
    set_field(call, 2, topic)
    set_field(call, 3, arguments)
    set_field(call, 4, payload)
    return call


def decode_arguments(call):
    cdef quoth_msg_fetch fetch
    cdef quoth_msg_publish publish
    if type(call) is Call and PyTuple_GET_SIZE(call) == 5 and PyBytes_CheckExact(call[3]):
        if call[0] is PUBLISH:
            found = published_arguments.get(call[3])
            if found is not None:
                return found
            if decode_small(quoth_request_shape(QUOTH_OP_PUBLISH), call[3], &publish) == QUOTH_DECODED:
                return remembered(call[3], new_publish(&publish))
        elif call[0] is FETCH:
            if decode_small(quoth_request_shape(QUOTH_OP_FETCH), call[3], &fetch) == QUOTH_DECODED:
                return new_fetch(&fetch)
    return references["decode_arguments"](call)


cdef object remembered(object arguments, object publish):
    if len(arguments) <= PUBLISH_BYTES_MAX:
        if len(published_arguments) >= PUBLISHES_MAX:
            published_arguments.clear()
        published_arguments[arguments] = publish
    return publish


cdef quoth_decoding decode_small(const quoth_shape *shape, object arguments, void *message) noexcept:
    """Decodes arguments into a message of this shape."""
    cdef Bytes opened
    cdef quoth_span span
    cdef quoth_decoding decoded
    if not open_bytes(arguments, &opened):
        return QUOTH_NOT_PLAIN
    span.bytes, span.size = opened.bytes, opened.size
    decoded = quoth_message_decode(shape, span, message)
    close_bytes(&opened)
    return decoded


# -- replies -----------------------------------------------------------------------------------------------


def encode_reply(operation, correlation, reply, payload):
    cdef uint8_t packed[QUOTH_ARGUMENTS_SMALL]
    cdef quoth_msg_published published
    cdef quoth_msg_fetched fetched
    cdef uint64_t number
    cdef long code
    cdef size_t size = 0
    if as_word(correlation, &number) and as_number(operation, &code):
        if type(reply) is Published and read_published(reply, &published):
            size = quoth_message_encode(
                quoth_reply_shape(QUOTH_OP_PUBLISH), &published, packed, sizeof(packed)
            )
        elif type(reply) is Fetched and read_fetched(reply, &fetched):
            size = quoth_message_encode(quoth_reply_shape(QUOTH_OP_FETCH), &fetched, packed, sizeof(packed))
    if not size:
        return references["encode_reply"](operation, correlation, reply, payload)
    frames = [
        header_of(code, QUOTH_STATUS_OK, number), PyBytes_FromStringAndSize(<char *>packed, <Py_ssize_t>size)
    ]
    if payload is not None:
        frames.append(payload)
    return frames


def decode_answer(frames):
    cdef quoth_frame_header header
    cdef Bytes opened
    cdef Py_ssize_t count = PyList_GET_SIZE(frames) if PyList_CheckExact(frames) else 0
    reply = None
    if not 2 <= count <= 3:
        return references["decode_answer"](frames)
    head, arguments = frames[0], frames[1]  # from the list first, as above
    payload = frames[2] if count > 2 else b""
    if open_bytes(head, &opened):
        if not quoth_header_read(opened.bytes, opened.size, False, &header) and header.status == QUOTH_STATUS_OK:
            reply = decode_reply(header.operation, arguments)
        close_bytes(&opened)
    if reply is None:
        return references["decode_answer"](frames)
    answer = new_row(Answer, 3)
    set_field(answer, 0, header.correlation)
    set_field(answer, 1, reply)
    set_field(answer, 2, payload)
    return answer


cdef object decode_reply(unsigned operation, object arguments):
    """Returns the reply to a publish or a fetch, None for any other, and for one that is not plain."""
    cdef quoth_msg_published published
    cdef quoth_msg_fetched fetched
    cdef Bytes opened
    cdef quoth_span span
    made = None
    if operation not in (QUOTH_OP_PUBLISH, QUOTH_OP_FETCH) or not open_bytes(arguments, &opened):
        return None
    span.bytes, span.size = opened.bytes, opened.size
    try:
        if operation == QUOTH_OP_FETCH:
            if quoth_message_decode(quoth_reply_shape(operation), span, &fetched) != QUOTH_NOT_PLAIN:
                made = new_fetched(&fetched)
        elif quoth_message_decode(quoth_reply_shape(operation), span, &published) != QUOTH_NOT_PLAIN:
            made = new_published(&published)
    finally:
        close_bytes(&opened)
    return made
