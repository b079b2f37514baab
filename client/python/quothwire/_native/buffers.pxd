"""Gives C functions the bytes of an argument that is not trusted to be any."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

cdef extern from "Python.h":
    int PyObject_GetBuffer(object source, Py_buffer *view, int flags) noexcept
    void PyErr_Clear()

cdef struct Bytes:
    const uint8_t *bytes
    size_t size
    bint is_view
    Py_buffer view


cdef inline bint open_bytes(object source, Bytes *opened) noexcept:
    """Lends the bytes of an object until `close_bytes`. Returns 0, and holds nothing, if it has none."""
    if PyBytes_CheckExact(source):
        opened.is_view = False
        opened.bytes = <const uint8_t *>PyBytes_AS_STRING(source)
        opened.size = <size_t>PyBytes_GET_SIZE(source)
        return True
    if PyObject_GetBuffer(source, &opened.view, PyBUF_SIMPLE) < 0:
        PyErr_Clear()
        return False
    opened.is_view = True
    opened.bytes = <const uint8_t *>opened.view.buf
    opened.size = <size_t>opened.view.len
    return True


cdef inline void close_bytes(Bytes *opened) noexcept:
    if opened.is_view:
        PyBuffer_Release(&opened.view)
