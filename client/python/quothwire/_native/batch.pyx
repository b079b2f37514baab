"""The functions of `quothwire.batch` and `quothwire.ingest` on libquoth.

Each does the same as the Python function of its name for what is plain: arguments of the usual types, and a
batch that is whole. For everything else it calls that function, its reference, which also words the errors.
Buffers may change while Python code runs, so no offset is used that was not compared just before.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.string cimport memcpy, memset

from quothwire._native.buffers cimport Bytes, close_bytes, open_bytes
from quothwire._native.libquoth cimport *
from quothwire._native.values cimport WORD_MAX, as_word, field_as_word, new_row, set_field

cdef extern from "Python.h":
    PyObject *PySequence_Fast_GET_ITEM(object fast, Py_ssize_t row)
    Py_ssize_t PySequence_Fast_GET_SIZE(object fast)

cdef dict references = {}
cdef object Header = None
cdef object DecodedBatch = None
cdef uint64_t POINTER_MAX = (<uint64_t>1 << 56) - 1


def take(function):
    """Registers the reference of a function, and returns the compiled function of its name."""
    global Header, DecodedBatch
    names = function.__globals__
    references[function.__name__] = function
    Header, DecodedBatch = names["Header"], names.get("DecodedBatch", DecodedBatch)
    return globals()[function.__name__]


# -- headers as named tuples ------------------------------------------------------------------------------


cdef object header_of(const quoth_batch_header *header):
    row = new_row(Header, 9)
    set_field(row, 0, header.kind)
    set_field(row, 1, header.flags)
    set_field(row, 2, header.body_bytes)
    set_field(row, 3, header.records)
    set_field(row, 4, header.base)
    set_field(row, 5, header.ordinal)
    set_field(row, 6, header.producer)
    set_field(row, 7, header.sequence)
    set_field(row, 8, header.body_check)
    return row


cdef bint read_row(object row, quoth_batch_header *header) noexcept:
    """True if a `Header` has fields that a header of a batch has room for."""
    cdef uint64_t kind, flags, body_bytes, records
    if type(row) is not Header or PyTuple_GET_SIZE(row) != 9:
        return False
    if not (
        field_as_word(row, 0, &kind)
        and field_as_word(row, 1, &flags)
        and field_as_word(row, 2, &body_bytes)
        and field_as_word(row, 3, &records)
        and field_as_word(row, 4, &header.base)
        and field_as_word(row, 5, &header.ordinal)
        and field_as_word(row, 6, &header.producer)
        and field_as_word(row, 7, &header.sequence)
        and field_as_word(row, 8, &header.body_check)
    ):
        return False
    if kind > 0xFF or flags > 0xFFFF or body_bytes > 0xFFFFFFFF or records > 0xFFFFFFFF:
        return False
    header.kind, header.flags = <uint8_t>kind, <uint16_t>flags
    header.body_bytes, header.records = <uint32_t>body_bytes, <uint32_t>records
    return True


# -- headers -----------------------------------------------------------------------------------------------


def parse_header(buffer, log_id, offset=0):
    cdef Bytes opened
    cdef quoth_batch_header header
    cdef uint64_t log
    cdef uint64_t begin
    cdef bint is_read = False
    if as_word(log_id, &log) and as_word(offset, &begin) and open_bytes(buffer, &opened):
        if begin <= opened.size:
            is_read = not quoth_batch_read_header(opened.bytes + begin, opened.size - begin, log, &header)
        close_bytes(&opened)
    return header_of(&header) if is_read else references["parse_header"](buffer, log_id, offset)


def stamp(header, log_id):
    cdef quoth_batch_header read
    cdef uint64_t log
    cdef uint8_t stamped[64]
    if not (as_word(log_id, &log) and read_row(header, &read)):
        return references["stamp"](header, log_id)
    quoth_batch_stamp(&read, log, stamped)
    return PyBytes_FromStringAndSize(<char *>stamped, 64)


def split(batches, log_id):
    cdef Bytes opened
    cdef quoth_batch_header header
    cdef uint64_t log
    cdef size_t position = 0, size
    cdef list found = []
    if not (as_word(log_id, &log) and open_bytes(batches, &opened)):
        return references["split"](batches, log_id)
    try:
        view = memoryview(batches)
        while position < opened.size:
            if quoth_batch_read_header(opened.bytes + position, opened.size - position, log, &header):
                break
            size = QUOTH_BATCH_HEADER + <size_t>header.body_bytes
            if size > opened.size - position:
                break
            found.append(view[position : position + size])
            position += size
        if position == opened.size:
            return found
    finally:
        close_bytes(&opened)
    return references["split"](batches, log_id)


def whole(batches, log_id, pointer, ordinal, pointer_max=POINTER_MAX, ordinal_max=WORD_MAX):
    cdef Bytes opened
    cdef quoth_batch_place place
    cdef uint64_t log, pointer_end, ordinal_end
    if not (
        as_word(log_id, &log)
        and as_word(pointer, &place.pointer)
        and as_word(ordinal, &place.ordinal)
        and as_word(pointer_max, &pointer_end)
        and as_word(ordinal_max, &ordinal_end)
        and open_bytes(batches, &opened)
    ):
        return references["whole"](batches, log_id, pointer, ordinal, pointer_max, ordinal_max)
    place.end = 0
    place.batches = 0
    quoth_batch_walk(opened.bytes, opened.size, log, pointer_end, ordinal_end, &place)
    close_bytes(&opened)
    return place.end, place.pointer, place.ordinal


# -- whole batches -----------------------------------------------------------------------------------------


def check(batch, log_id=0):
    cdef Bytes opened
    cdef quoth_batch parsed
    cdef uint64_t log
    cdef bint is_whole = False
    if as_word(log_id, &log) and open_bytes(batch, &opened):
        is_whole = not quoth_batch_parse(opened.bytes, opened.size, log, &parsed)
        close_bytes(&opened)
    return header_of(&parsed.header) if is_whole else references["check"](batch, log_id)


def check_new(batch, header):
    cdef Bytes opened
    cdef quoth_batch_header read
    cdef quoth_batch parsed
    cdef bint is_new = False
    if read_row(header, &read) and open_bytes(batch, &opened):
        is_new = not quoth_batch_columns(opened.bytes, opened.size, &read, &parsed)
        is_new = is_new and not quoth_batch_check_new(&parsed, NULL)
        close_bytes(&opened)
    if not is_new:
        references["check_new"](batch, header)


def is_body_of(header, body):
    cdef Bytes opened
    cdef quoth_batch_header read
    cdef bint is_body = False
    if not (read_row(header, &read) and open_bytes(body, &opened)):
        return references["is_body_of"](header, body)
    if opened.size == read.body_bytes:
        is_body = quoth_batch_is_body(&read, opened.bytes)
    close_bytes(&opened)
    return is_body


# -- decoding ----------------------------------------------------------------------------------------------


def decode(batch, log_id=0):
    cdef Bytes opened
    cdef quoth_batch parsed
    cdef uint64_t log
    decoded = None
    if as_word(log_id, &log) and open_bytes(batch, &opened):
        try:
            if not quoth_batch_parse(opened.bytes, opened.size, log, &parsed):
                decoded = decoded_of(&parsed)
        finally:
            close_bytes(&opened)
    return references["decode"](batch, log_id) if decoded is None else decoded


cdef object decoded_of(const quoth_batch *parsed):
    """Returns the `DecodedBatch`, or None if the batch has changed meanwhile."""
    cdef uint32_t records = parsed.header.records
    values = column_of(&parsed.columns[QUOTH_VALUES], records, NULL)
    keys = headers = None
    if parsed.columns[QUOTH_KEYS].offsets != NULL:
        keys = column_of(&parsed.columns[QUOTH_KEYS], records, parsed.validity)
    if parsed.columns[QUOTH_HEADERS].offsets != NULL:
        headers = column_of(&parsed.columns[QUOTH_HEADERS], records, NULL)
    if values is None or (keys is None) != (parsed.columns[QUOTH_KEYS].offsets == NULL):
        return None
    if (headers is None) != (parsed.columns[QUOTH_HEADERS].offsets == NULL):
        return None
    row = new_row(DecodedBatch, 4)
    set_field(row, 0, header_of(&parsed.header))
    set_field(row, 1, values)
    set_field(row, 2, keys)
    set_field(row, 3, headers)
    return row


cdef list column_of(const quoth_batch_column *column, uint32_t records, const uint8_t *validity):
    """Returns the contents of a column, None for those whose bit of `validity` is 0."""
    cdef uint32_t i, begin = 0, end
    cdef list found = PyList_New(records)
    for i in range(records):
        end = quoth_read_le32(column.offsets + 4 * (<size_t>i + 1))
        if end < begin or end > column.heap.size:
            return None
        if validity != NULL and not validity[i >> 3] >> (i & 7) & 1:
            content = None
        else:
            content = PyBytes_FromStringAndSize(<const char *>column.heap.bytes + begin, end - begin)
        Py_INCREF(content)
        PyList_SET_ITEM(found, i, content)
        begin = end
    return found


# -- encoding ----------------------------------------------------------------------------------------------


def encode(values, keys=None, headers=None, *, producer=0, sequence=0, flags=0):
    cdef tuple columns = (values, keys, headers)
    cdef size_t heaps[3]
    cdef quoth_batch_layout layout
    cdef uint64_t producer_id, number, bits
    cdef Py_ssize_t records = rows_of(values)
    encoded = None
    if records > 0 and as_word(producer, &producer_id) and as_word(sequence, &number) and as_word(flags, &bits):
        bits |= (keys is not None) * QUOTH_BATCH_KEYS | (headers is not None) * QUOTH_BATCH_HEADERS
        if not flags & 3 and bits <= 0xFFFF and measure(columns, records, heaps):
            if not quoth_batch_plan(<uint32_t>records, <unsigned>bits, heaps, &layout):
                encoded = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>layout.size)
                if fill(columns, <uint32_t>records, &layout, heaps, <uint8_t *>PyBytes_AS_STRING(encoded)):
                    quoth_batch_seal(
                        PyBytes_AS_STRING(encoded), &layout, <uint32_t>records, <unsigned>bits, producer_id, number
                    )
                else:
                    encoded = None
    if encoded is None:
        return references["encode"](values, keys, headers, producer=producer, sequence=sequence, flags=flags)
    return encoded


cdef inline Py_ssize_t rows_of(object column) noexcept:
    """Returns the length of a list or a tuple that a batch has room for, else -1."""
    cdef Py_ssize_t rows
    if not (PyList_CheckExact(column) or PyTuple_CheckExact(column)):
        return -1
    rows = PySequence_Fast_GET_SIZE(column)
    return rows if rows <= QUOTH_BATCH_RECORDS_MAX else -1


cdef bint measure(tuple columns, Py_ssize_t records, size_t *heaps) noexcept:
    """Adds up the bytes of each column. False if a column is not plain."""
    cdef PyObject *content
    cdef Py_ssize_t i
    cdef int column
    for column in range(QUOTH_COLUMNS):
        heaps[column] = 0
        if column != QUOTH_VALUES and columns[column] is None:
            continue
        if rows_of(columns[column]) != records:
            return False
        for i in range(records):
            content = PySequence_Fast_GET_ITEM(columns[column], i)
            if PyBytes_CheckExact(<object>content):
                heaps[column] += <size_t>PyBytes_GET_SIZE(<object>content)
            elif column != QUOTH_KEYS or <object>content is not None:
                return False
    return True


cdef bint fill(
    tuple columns, uint32_t records, const quoth_batch_layout *layout, const size_t *heaps, uint8_t *batch
) noexcept:
    """Writes the sections of a batch. False if a column is not what was measured."""
    cdef PyObject *content
    cdef size_t used, size
    cdef uint32_t i
    cdef int column
    cdef uint8_t *offset
    if columns[QUOTH_KEYS] is not None:
        memset(batch + layout.validity, 0, (<size_t>records + 63) // 64 * 8)
    for column in range(QUOTH_COLUMNS):
        if column != QUOTH_VALUES and columns[column] is None:
            continue
        if rows_of(columns[column]) != <Py_ssize_t>records:
            return False
        offset = batch + layout.offsets[column]
        used = 0
        for i in range(records):
            quoth_write_le32(offset + 4 * <size_t>i, <uint32_t>used)
            content = PySequence_Fast_GET_ITEM(columns[column], i)
            if not PyBytes_CheckExact(<object>content):
                continue
            size = <size_t>PyBytes_GET_SIZE(<object>content)
            if size > heaps[column] - used:
                return False
            memcpy(batch + layout.heaps[column] + used, PyBytes_AS_STRING(<object>content), size)
            used += size
            if column == QUOTH_KEYS:
                batch[layout.validity + (i >> 3)] |= <uint8_t>(1 << (i & 7))
        if used != heaps[column]:
            return False
        quoth_write_le32(offset + 4 * <size_t>records, <uint32_t>used)
    return True
