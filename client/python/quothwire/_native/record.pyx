"""Records on libquoth: `records_of`, `records_in` and `RecordBuffer` of `quothwire.record`, `encode_headers`.

Each does the same as what has its name in Python for what is plain: exact types, numbers that fit. For everything
else it calls that, its reference, which also words the errors. Python code may run in between, so what it could
change is compared when it is used.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.string cimport memcpy, memset

from quothwire._native.libquoth cimport *
from quothwire._native.values cimport PyErr_Clear, PyTuple_GET_ITEM, as_signed, as_word, field_as_word, has_row, new_untracked_row, replace_field, set_field, spare_row

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size)
    bint PyUnicode_CheckExact(object text)
    void PyObject_GC_Track(object row)
    bint PyObject_GC_IsTracked(object row)

cdef dict references = {}
cdef object Header = None
cdef object DecodedBatch = None
cdef object Record = None
cdef object Headers = None
cdef object NO_HEADERS = None
cdef object decode = None
cdef object encode = None
cdef object exact_bytes = None
cdef object too_large = None
cdef object bounded = None

cdef enum:
    PAIRS_MAX = 32  # more headers than that are left to Python
    POINTER_BITS = 56
    CAPACITY_MIN = 64
    HEAP_MIN = 1024
    RECORD_BYTES = 13


def take(reference):
    """Registers a reference, and returns the compiled function or class of its name."""
    global Header, DecodedBatch, Record, Headers, NO_HEADERS, decode, encode, exact_bytes, too_large, bounded
    references[reference.__name__] = reference
    if reference.__name__ == "records_of":
        names = reference.__globals__
        Header, DecodedBatch = names["batch"].Header, names["batch"].DecodedBatch
        Record, Headers, NO_HEADERS = names["Record"], names["Headers"], names["_NO_HEADERS"]
    elif reference.__name__ == "RecordBuffer":
        names = reference.append.__globals__
        decode, encode = names["batch"].decode, names["batch"].encode
        exact_bytes, too_large, bounded = names["_exact_bytes"], names["_too_large"], names["_bounded"]
    return globals()[reference.__name__]


# -- records of a batch --------------------------------------------------------------------------------------


def records_of(found, after=0):
    cdef uint64_t base, records, skip
    made = None
    if plain_batch(found, after, &base, &records, &skip):
        _, values, keys, headers = <tuple>found
        made = rows_of(base, skip, records, values, keys, headers)
    return references["records_of"](found, after) if made is None else made


def records_in(found, after=0):
    cdef uint64_t base, records, skip
    cdef RecordIterator rows
    if not plain_batch(found, after, &base, &records, &skip):
        return references["records_in"](found, after)
    rows = RecordIterator.__new__(RecordIterator)
    _, rows.values, rows.keys, rows.headers = <tuple>found
    rows.base, rows.row, rows.end = base, <Py_ssize_t>skip, <Py_ssize_t>records
    return rows


cdef bint plain_batch(object found, object after, uint64_t *base, uint64_t *records, uint64_t *skip) except -1:
    """True for a decoded batch with columns of its length; `skip`: so many records are not above `after`."""
    cdef int64_t above
    if not (type(found) is DecodedBatch and PyTuple_GET_SIZE(found) == 4 and as_signed(after, &above)):
        return False
    header, values, keys, headers = <tuple>found
    if not (type(header) is Header and PyTuple_GET_SIZE(header) == 9):
        return False
    if not (field_as_word(header, 3, records) and field_as_word(header, 4, base)) or base[0] >> POINTER_BITS:
        return False
    if records[0] > QUOTH_BATCH_RECORDS_MAX or not has_rows(values, records[0]):
        return False
    if not (keys is None or has_rows(keys, records[0])) or not (headers is None or has_rows(headers, records[0])):
        return False
    skip[0] = 0
    if above >= 0 and <uint64_t>above >= base[0]:
        skip[0] = min(<uint64_t>above - base[0] + 1, records[0])
    return True


cdef inline bint has_rows(object column, uint64_t records) noexcept:
    return PyList_CheckExact(column) and <uint64_t>PyList_GET_SIZE(column) == records


cdef list rows_of(uint64_t base, uint64_t skip, uint64_t records, object values, object keys, object headers):
    """Makes the records behind the first `skip` ones, None if a list has changed meanwhile."""
    cdef Py_ssize_t row
    cdef list made = PyList_New(<Py_ssize_t>(records - skip))
    encoded = NO_HEADERS
    for row in range(<Py_ssize_t>skip, <Py_ssize_t>records):
        if headers is not None:
            if not has_rows(headers, records):
                return None
            stored = <object>PyList_GET_ITEM(headers, row)  # held: code that is called may change the list
            encoded = headers_of(stored)
        pointer = base + <uint64_t>row
        if not (has_rows(values, records) and (keys is None or has_rows(keys, records))):
            return None
        value = <object>PyList_GET_ITEM(values, row)
        key = None if keys is None else <object>PyList_GET_ITEM(keys, row)
        record = new_untracked_row(Record, 4)
        set_field(record, 0, pointer)
        set_field(record, 1, value)
        set_field(record, 2, key)
        set_field(record, 3, encoded)
        if not is_plain(value, key):
            PyObject_GC_Track(record)
        Py_INCREF(record)
        PyList_SET_ITEM(made, row - <Py_ssize_t>skip, record)
    return made


cdef inline bint is_plain(object value, object key) noexcept:
    """True if nothing in a record leads back to it, so that the collector need not look at it."""
    return PyBytes_CheckExact(value) and (key is None or PyBytes_CheckExact(key))


cdef class RecordIterator:
    """The records of one batch. The lists may change meanwhile: each row is compared with their lengths.

    older, newer: the last two records, None at first. A loop holds the newer one while it asks for the next, so the
    older one may be a `spare_row`.
    """

    cdef object older, newer
    cdef list values, keys, headers
    cdef uint64_t base
    cdef Py_ssize_t row, end

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t row = self.row
        if row >= self.end or not has_row(self.values, self.keys, self.headers, row):
            self.release()
            raise StopIteration
        self.row = row + 1
        pointer = self.base + <uint64_t>row
        value = <object>PyList_GET_ITEM(self.values, row)
        key = None if self.keys is None else <object>PyList_GET_ITEM(self.keys, row)
        encoded = NO_HEADERS
        if self.headers is not None:
            stored = <object>PyList_GET_ITEM(self.headers, row)
            encoded = headers_of(stored)  # it may run any code, as the next line may
        record = spare_row(<PyObject *>self.older, Record, 4)
        self.older, self.newer = self.newer, record
        replace_field(record, 0, pointer)
        replace_field(record, 1, value)
        replace_field(record, 2, key)
        replace_field(record, 3, encoded)
        if not (is_plain(value, key) or PyObject_GC_IsTracked(record)):
            PyObject_GC_Track(record)
        return record

    def __length_hint__(self):
        return self.end - self.row

    cdef void release(self) noexcept:
        """Ends it, and drops its lists."""
        self.row = self.end = 0
        self.values = self.keys = self.headers = self.older = self.newer = None


cdef object headers_of(object encoded):
    if PyBytes_CheckExact(encoded) and not PyBytes_GET_SIZE(encoded):
        return NO_HEADERS
    return Headers(encoded) if encoded else NO_HEADERS


# -- headers -------------------------------------------------------------------------------------------------


def encode_headers(headers):
    encoded = plain_headers(headers)
    return references["encode_headers"](headers) if encoded is None else encoded


cdef object plain_headers(object headers):
    """Encodes a dict of a few names, None for anything else. No Python code runs in between."""
    cdef quoth_span names[PAIRS_MAX]
    cdef quoth_span values[PAIRS_MAX]
    cdef PyObject *name
    cdef PyObject *value
    cdef Py_ssize_t at = 0, size = 0
    cdef uint32_t pairs = 0
    cdef size_t total
    if not PyDict_CheckExact(headers) or PyDict_Size(headers) > PAIRS_MAX:
        return None
    while PyDict_Next(headers, &at, &name, &value):
        if not (PyUnicode_CheckExact(<object>name) and PyBytes_CheckExact(<object>value)):
            return None
        names[pairs].bytes = <const uint8_t *>PyUnicode_AsUTF8AndSize(<object>name, &size)
        if names[pairs].bytes == NULL:
            PyErr_Clear()
            return None
        if size > QUOTH_BATCH_HEADERS_MAX or PyBytes_GET_SIZE(<object>value) > QUOTH_BATCH_HEADERS_MAX:
            return None
        names[pairs].size = <size_t>size
        values[pairs].bytes = <const uint8_t *>PyBytes_AS_STRING(<object>value)
        values[pairs].size = <size_t>PyBytes_GET_SIZE(<object>value)
        pairs += 1
    total = quoth_headers_size(names, values, pairs)
    if total > QUOTH_BATCH_HEADERS_MAX:
        return None
    encoded = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>total)
    quoth_headers_write(<uint8_t *>PyBytes_AS_STRING(encoded), names, values, pairs)
    return encoded


# -- the buffer ----------------------------------------------------------------------------------------------


cdef struct Column:
    uint8_t *ends  # where each record's content ends in the heap, little-endian, `capacity` of them
    uint8_t *heap
    size_t used
    size_t room
    bint is_used


cdef class RecordBuffer:
    """See `quothwire.record.RecordBuffer`. One call is atomic to other threads."""

    cdef Column columns[3]
    cdef uint8_t *validity
    cdef uint32_t records
    cdef size_t capacity
    cdef size_t content
    cdef size_t bytes_limit
    cdef size_t record_limit
    cdef uint32_t records_limit
    cdef bint is_sealed

    is_atomic = True

    def __init__(self, bytes_max, record_bytes_max, records_max=QUOTH_BATCH_RECORDS_MAX):
        self.bytes_limit = <size_t>bounded(bytes_max)
        self.records_max = records_max
        self.record_limit = <size_t>bounded(record_bytes_max)

    def __dealloc__(self):
        cdef int column
        for column in range(QUOTH_COLUMNS):
            PyMem_Free(self.columns[column].ends)
            PyMem_Free(self.columns[column].heap)
        PyMem_Free(self.validity)

    def __len__(self):
        return self.records

    def __reduce__(self):
        raise TypeError("a RecordBuffer cannot be copied")

    @property
    def size(self):
        return self.content + RECORD_BYTES * <size_t>self.records

    @property
    def bytes_max(self):
        return self.bytes_limit

    @bytes_max.setter
    def bytes_max(self, limit):
        self.bytes_limit = <size_t>bounded(limit)

    @property
    def records_max(self):
        return self.records_limit

    @records_max.setter
    def records_max(self, limit):
        self.records_limit = <uint32_t>bounded(limit, QUOTH_BATCH_RECORDS_MAX, "records")

    def append(self, value, key=None, headers=None):
        cdef size_t size
        if not PyBytes_CheckExact(value):
            value = exact_bytes(value, "a value is bytes")
        if key is not None and not PyBytes_CheckExact(key):
            key = exact_bytes(key, "a key is bytes or None")
        encoded = None if headers is None else encode_headers(headers)
        if not (PyBytes_CheckExact(value) and (key is None or PyBytes_CheckExact(key))):
            raise TypeError("a value and a key are bytes")
        size = RECORD_BYTES + <size_t>PyBytes_GET_SIZE(value)  # from here on no Python code runs
        if key is not None:
            size += <size_t>PyBytes_GET_SIZE(key)
        if encoded is not None:
            if not PyBytes_CheckExact(encoded):
                raise TypeError("encoded headers are bytes")
            size += <size_t>PyBytes_GET_SIZE(encoded)
        if size > self.record_limit:
            raise too_large(size, self.record_limit)
        if self.is_sealed or self.records >= self.records_limit:
            return 0
        if self.records and self.content + RECORD_BYTES * <size_t>self.records + size > self.bytes_limit:
            return 0
        self.make_room(value, key, encoded)
        self.put(QUOTH_VALUES, value)
        self.put(QUOTH_KEYS, key)
        self.put(QUOTH_HEADERS, encoded)
        self.records += 1
        self.content += size - RECORD_BYTES
        return self.records

    def seal(self):
        self.is_sealed = True

    def unseal(self):
        self.is_sealed = False

    def encoded(self, producer=0, sequence=0, flags=0):
        cdef quoth_batch_layout layout
        cdef size_t heaps[3]
        cdef uint64_t identity, number, bits
        cdef int column
        for column in range(QUOTH_COLUMNS):
            heaps[column] = self.columns[column].used
        if as_word(producer, &identity) and as_word(sequence, &number) and as_word(flags, &bits):
            if self.records and bits <= 0xFFFF and not bits & (QUOTH_BATCH_KEYS | QUOTH_BATCH_HEADERS):
                bits |= QUOTH_BATCH_KEYS * self.columns[QUOTH_KEYS].is_used
                bits |= QUOTH_BATCH_HEADERS * self.columns[QUOTH_HEADERS].is_used
                if not quoth_batch_plan(self.records, <unsigned>bits, heaps, &layout):
                    return self.sealed(&layout, <unsigned>bits, identity, number)
        values, keys, headers = self.contents()
        return encode(values, keys, headers, producer=producer, sequence=sequence, flags=flags)

    def contents(self):
        if not self.records:
            return [], None, None
        return tuple(decode(self.encoded())[1:])

    # -- inside ----------------------------------------------------------------------------------------------

    cdef object sealed(self, const quoth_batch_layout *layout, unsigned bits, uint64_t producer, uint64_t sequence):
        cdef object made = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>layout.size)
        cdef uint8_t *batch = <uint8_t *>PyBytes_AS_STRING(made)
        cdef int column
        for column in range(QUOTH_COLUMNS):
            if not self.columns[column].is_used:
                continue
            quoth_write_le32(batch + layout.offsets[column], 0)
            memcpy(batch + layout.offsets[column] + 4, self.columns[column].ends, 4 * <size_t>self.records)
            if self.columns[column].used:
                memcpy(batch + layout.heaps[column], self.columns[column].heap, self.columns[column].used)
        if self.columns[QUOTH_KEYS].is_used:
            memcpy(batch + layout.validity, self.validity, (<size_t>self.records + 63) // 64 * 8)
        quoth_batch_seal(batch, layout, self.records, bits, producer, sequence)
        return made

    cdef int make_room(self, object value, object key, object encoded) except -1:
        """Makes room for one more record. Changes nothing that counts if there is no memory."""
        if self.records == self.capacity:
            self.grow()
        self.reserve(QUOTH_VALUES, value)
        if key is not None:
            self.reserve(QUOTH_KEYS, key)
        if encoded is not None and PyBytes_GET_SIZE(encoded):
            self.reserve(QUOTH_HEADERS, encoded)
        return 0

    cdef int grow(self) except -1:
        """Doubles the room for offsets in the columns that are used, and for bits."""
        cdef size_t capacity = max(2 * self.capacity, <size_t>CAPACITY_MIN)
        cdef int column
        for column in range(QUOTH_COLUMNS):
            if self.columns[column].is_used:
                self.columns[column].ends = <uint8_t *>resized(self.columns[column].ends, 4 * capacity)
        if self.columns[QUOTH_KEYS].is_used:
            self.validity = <uint8_t *>resized(self.validity, capacity // 8)
            memset(self.validity + self.capacity // 8, 0, (capacity - self.capacity) // 8)
        self.capacity = capacity
        return 0

    cdef int reserve(self, int number, object content) except -1:
        """Makes room in a heap. A column that was not used has empty contents for all records so far."""
        cdef Column *column = &self.columns[number]
        cdef size_t needed = column.used + <size_t>PyBytes_GET_SIZE(content)
        cdef size_t room
        if not column.is_used:
            column.ends = <uint8_t *>resized(column.ends, 4 * self.capacity)
            memset(column.ends, 0, 4 * self.capacity)
            if number == QUOTH_KEYS:
                self.validity = <uint8_t *>resized(self.validity, self.capacity // 8)
                memset(self.validity, 0, self.capacity // 8)
        if needed > column.room:
            room = max(needed, 2 * column.room, <size_t>HEAP_MIN)
            column.heap = <uint8_t *>resized(column.heap, room)
            column.room = room
        return 0

    cdef void put(self, int number, object content) noexcept:
        """Adds the content of the next record to a column, for which there is room."""
        cdef Column *column = &self.columns[number]
        cdef size_t size = 0 if content is None else <size_t>PyBytes_GET_SIZE(content)
        if content is not None and (size or number != QUOTH_HEADERS):
            column.is_used = True
            if number == QUOTH_KEYS:
                self.validity[self.records >> 3] |= <uint8_t>(1 << (self.records & 7))
        if not column.is_used:
            return
        if size:
            memcpy(column.heap + column.used, PyBytes_AS_STRING(content), size)
            column.used += size
        quoth_write_le32(column.ends + 4 * <size_t>self.records, <uint32_t>column.used)


cdef void *resized(void *memory, size_t size) except NULL:
    cdef void *found = PyMem_Realloc(memory, size)
    if found == NULL:
        raise MemoryError()
    return found
