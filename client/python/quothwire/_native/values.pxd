"""Converts between integers in C and those of Python, and makes named tuples field by field.

`new_row` makes a named tuple whose fields are not set yet. `new_untracked_row` makes one that the collector does not
know: set all its fields before any other code sees it. `replace_field` sets a field of one that nothing else refers
to, whether it was set or not.
"""

from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint64_t

cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(object row, Py_ssize_t field)
    PyObject *PyErr_Occurred()
    void Py_XDECREF(PyObject *released)
    Py_ssize_t Py_REFCNT(PyObject *counted)
    void PyErr_Clear()
    uint64_t PyLong_AsUnsignedLongLong(object number)
    int64_t PyLong_AsLongLong(object number)
    bint PyLong_CheckExact(object number)

cdef extern from *:
    """
    #define QUOTH_WORD_MAX UINT64_MAX

    static inline PyObject *quoth_row_ready(PyObject *row) {
    #if PY_VERSION_HEX >= 0x030E0000
        if (row) ((PyTupleObject *)row)->ob_hash = -1; /* not computed yet */
    #endif
        return row;
    }

    static inline PyObject *quoth_new_row(PyObject *kind, Py_ssize_t fields) {
        return quoth_row_ready(PyType_GenericAlloc((PyTypeObject *)kind, fields));
    }

    static inline PyObject *quoth_new_untracked_row(PyObject *kind, Py_ssize_t fields) {
        PyTupleObject *row = PyObject_GC_NewVar(PyTupleObject, (PyTypeObject *)kind, fields);
        if (row) memset(row->ob_item, 0, (size_t)fields * sizeof(PyObject *));
        return quoth_row_ready((PyObject *)row);
    }
    """
    const uint64_t WORD_MAX "QUOTH_WORD_MAX"
    object new_row "quoth_new_row"(object kind, Py_ssize_t fields)
    object new_untracked_row "quoth_new_untracked_row"(object kind, Py_ssize_t fields)
    void row_ready "quoth_row_ready"(object row)


cdef inline bint as_word(object number, uint64_t *word) noexcept:
    """True for an integer of 64 bits without a sign."""
    word[0] = 0
    if not PyLong_CheckExact(number):
        return False
    word[0] = PyLong_AsUnsignedLongLong(number)
    if word[0] == WORD_MAX and PyErr_Occurred() != NULL:
        PyErr_Clear()
        return False
    return True


cdef inline bint as_signed(object number, int64_t *signed) noexcept:
    """True for an integer of 64 bits with a sign."""
    signed[0] = 0
    if not PyLong_CheckExact(number):
        return False
    signed[0] = PyLong_AsLongLong(number)
    if signed[0] == -1 and PyErr_Occurred() != NULL:
        PyErr_Clear()
        return False
    return True


cdef inline bint field_as_word(object row, Py_ssize_t field, uint64_t *word) noexcept:
    """The same of a field of a tuple, which has such a field."""
    return as_word(<object>PyTuple_GET_ITEM(row, field), word)


cdef inline void set_field(object row, Py_ssize_t field, object value) noexcept:
    """Sets a field of a named tuple, once."""
    Py_INCREF(value)
    PyTuple_SET_ITEM(row, field, value)


cdef inline object spare_row(PyObject *older, object kind, Py_ssize_t fields):
    """Returns a row that only its owner refers to, to be filled again as `zip` does, else a new one.

    older: borrowed from its owner; None at first. A new row takes twice the time, and may run any code.
    """
    if Py_REFCNT(older) != 1:
        return new_untracked_row(kind, fields)
    row = <object>older
    row_ready(row)
    return row


cdef inline void replace_field(object row, Py_ssize_t field, object value) noexcept:
    """Sets a field of a named tuple that nothing else refers to, whether it is set or not."""
    cdef PyObject *before = PyTuple_GET_ITEM(row, field)
    Py_INCREF(value)
    PyTuple_SET_ITEM(row, field, value)
    Py_XDECREF(before)


cdef inline bint has_row(list values, list keys, list headers, Py_ssize_t row) noexcept:
    """True if each column, of those that are not None, has this row; a column may have changed meanwhile."""
    return (
        row < PyList_GET_SIZE(values)
        and (keys is None or row < PyList_GET_SIZE(keys))
        and (headers is None or row < PyList_GET_SIZE(headers))
    )
