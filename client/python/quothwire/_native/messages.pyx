"""The functions of `quoth.batch` that make messages, one at a time, as an iterator is asked for them.

A message holds its own value, key and headers, and nothing else of the batch that it comes from.
"""

from cpython.bytes cimport PyBytes_CheckExact
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from quothwire._native.values cimport as_word, has_row, replace_field, spare_row

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(list column, Py_ssize_t row)
    bint PyUnicode_CheckExact(object text)
    void PyObject_GC_Track(object row)
    bint PyObject_GC_IsTracked(object row)

cdef uint64_t POINTER_END = <uint64_t>1 << 56
cdef dict references = {}
cdef object Message = None
cdef object NOTHING = None
"""The headers of a record that has none."""


def take(function):
    """Registers the reference of a function, and returns the compiled function of its name."""
    global Message, NOTHING
    names = function.__globals__
    references[function.__name__] = function
    Message, NOTHING = names["Message"], names["_NOTHING"]
    return globals()[function.__name__]


cdef class MessageIterator:
    """The messages of one batch, or of several ones in turn. The lists may change meanwhile: each row is compared
    with their lengths.

    parts: an iterator over the batches that follow, or None. other: the messages of a batch that is not plain.
    older, newer: the last two messages, None at first. A loop holds the newer one while it asks for the next, so the
    older one may be a `spare_row`.
    """

    cdef object parts, other, topic, older, newer
    cdef list values, keys, headers
    cdef uint64_t first
    cdef Py_ssize_t row, end

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t row
        while self.row >= self.end or not has_row(self.values, self.keys, self.headers, self.row):
            if self.other is not None:
                for message in self.other:
                    return message
            self.begin_next()
        row = self.row
        self.row = row + 1
        value = <object>PyList_GET_ITEM(self.values, row)
        key = None if self.keys is None else <object>PyList_GET_ITEM(self.keys, row)
        headers = NOTHING if self.headers is None else <object>PyList_GET_ITEM(self.headers, row)
        topic, pointer = self.topic, self.first + <uint64_t>row
        message = spare_row(<PyObject *>self.older, Message, 5)
        self.older, self.newer = self.newer, message
        replace_field(message, 0, topic)
        replace_field(message, 1, pointer)
        replace_field(message, 2, value)
        replace_field(message, 3, key)
        replace_field(message, 4, headers)
        if not (is_plain(topic, value, key, headers) or PyObject_GC_IsTracked(message)):
            PyObject_GC_Track(message)
        return message

    def __length_hint__(self):
        return self.end - self.row

    cdef int begin_next(self) except -1:
        """Begins the next batch. Raises StopIteration if there is none."""
        cdef MessageIterator found
        parts, self.parts = self.parts, None
        before = self.values, self.keys, self.headers, self.other, self.older, self.newer
        self.row = self.end = 0
        self.values = self.keys = self.headers = self.other = self.older = self.newer = None
        del before  # what is freed here may run any code
        if parts is None:
            raise StopIteration
        messages = iter(next(parts))
        self.parts = parts
        if type(messages) is not MessageIterator or (<MessageIterator>messages).parts is not None:
            self.other = messages
            return 0
        found = <MessageIterator>messages
        self.topic, self.values, self.keys, self.headers = found.topic, found.values, found.keys, found.headers
        self.first, self.row, self.end = found.first, found.row, found.end
        found.row = found.end
        return 0


cdef inline bint is_plain(object topic, object value, object key, object headers) noexcept:
    """True if nothing in a message leads back to it, so that the collector need not look at it."""
    return (
        headers is NOTHING
        and PyBytes_CheckExact(value)
        and (key is None or PyBytes_CheckExact(key))
        and PyUnicode_CheckExact(topic)
    )


def messages_of(topic, first, values, keys, headers):
    cdef uint64_t pointer
    cdef MessageIterator found
    if not (
        as_word(first, &pointer)
        and pointer < POINTER_END
        and PyList_CheckExact(values)
        and (keys is None or PyList_CheckExact(keys))
        and (headers is None or PyList_CheckExact(headers))
    ):
        return references["messages_of"](topic, first, values, keys, headers)
    found = MessageIterator.__new__(MessageIterator)
    found.topic = topic
    found.values, found.keys, found.headers = values, keys or None, headers or None
    found.first, found.row, found.end = pointer, 0, PyList_GET_SIZE(values)
    return found


def chained(parts):
    cdef MessageIterator found = MessageIterator.__new__(MessageIterator)
    found.parts = iter(parts)
    return found


def flattened(parts):
    try:
        for part in parts:
            yield from part
    finally:
        parts.close()
