"""Declares what Python uses of libquoth: `batch.h` in `client/c/src` documents it."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "batch.h" nogil:
    enum:
        QUOTH_BATCH_HEADER
        QUOTH_BATCH_BYTES_MAX
        QUOTH_BATCH_RECORDS_MAX
        QUOTH_BATCH_KEYS
        QUOTH_BATCH_HEADERS
        QUOTH_VALUES
        QUOTH_KEYS
        QUOTH_HEADERS
        QUOTH_COLUMNS

    ctypedef enum quoth_batch_problem:
        QUOTH_BATCH_OK

    ctypedef struct quoth_batch_header:
        uint8_t kind
        uint16_t flags
        uint32_t body_bytes
        uint32_t records
        uint64_t base
        uint64_t ordinal
        uint64_t producer
        uint64_t sequence
        uint64_t body_check

    ctypedef struct quoth_span:
        const uint8_t *bytes
        size_t size

    ctypedef struct quoth_batch_column:
        const uint8_t *offsets
        quoth_span heap

    ctypedef struct quoth_batch:
        quoth_batch_header header
        quoth_batch_column columns[3]
        const uint8_t *validity

    ctypedef struct quoth_batch_place:
        size_t end
        uint64_t pointer
        uint64_t ordinal
        uint32_t batches

    ctypedef struct quoth_batch_layout:
        size_t offsets[3]
        size_t heaps[3]
        size_t validity
        size_t used
        size_t size

    quoth_batch_problem quoth_batch_read_header(
        const void *bytes, size_t size, uint64_t log, quoth_batch_header *header
    )
    bint quoth_batch_is_body(const quoth_batch_header *header, const void *body)
    quoth_batch_problem quoth_batch_parse(const void *bytes, size_t size, uint64_t log, quoth_batch *batch)
    quoth_batch_problem quoth_batch_columns(
        const void *bytes, size_t size, const quoth_batch_header *header, quoth_batch *batch
    )
    void quoth_batch_walk(
        const void *bytes, size_t size, uint64_t log, uint64_t pointer_max, uint64_t ordinal_max,
        quoth_batch_place *place
    )
    quoth_batch_problem quoth_batch_check_new(const quoth_batch *batch, uint32_t *record)
    quoth_batch_problem quoth_batch_check_published(const quoth_batch_header *header)
    quoth_batch_problem quoth_batch_plan(
        uint32_t records, unsigned flags, const size_t *heaps, quoth_batch_layout *layout
    )
    void quoth_batch_seal(
        void *bytes, const quoth_batch_layout *layout, uint32_t records, unsigned flags, uint64_t producer,
        uint64_t sequence
    )
    void quoth_batch_stamp(const quoth_batch_header *header, uint64_t log, void *bytes)

cdef extern from "bytes.h" nogil:
    uint32_t quoth_read_le32(const void *at)
    void quoth_write_le32(void *to, uint32_t value)
