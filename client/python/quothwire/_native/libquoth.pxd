"""Declares what Python uses of libquoth: `batch.h` in `client/c/src` documents it."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "batch.h" nogil:
    enum:
        QUOTH_BATCH_HEADER
        QUOTH_BATCH_BYTES_MAX
        QUOTH_BATCH_RECORDS_MAX
        QUOTH_BATCH_HEADERS_MAX
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
    size_t quoth_headers_size(const quoth_span *names, const quoth_span *values, uint32_t pairs)
    uint8_t *quoth_headers_write(uint8_t *to, const quoth_span *names, const quoth_span *values, uint32_t pairs)

cdef extern from "codec.h" nogil:
    enum:
        QUOTH_HEADER_BYTES
        QUOTH_ARGUMENTS_SMALL
        QUOTH_OP_PUBLISH
        QUOTH_OP_FETCH
        QUOTH_STATUS_REQUEST
        QUOTH_STATUS_OK

    ctypedef struct quoth_frame_header:
        uint8_t operation
        uint8_t status
        uint64_t correlation

    ctypedef enum quoth_header_problem:
        QUOTH_HEADER_OK

    ctypedef struct quoth_msg_publish:
        quoth_span durability

    ctypedef struct quoth_msg_published:
        uint64_t log
        uint64_t first
        uint64_t last
        uint64_t count
        quoth_span durability
        uint64_t duplicate

    ctypedef struct quoth_msg_fetch:
        uint64_t after
        int64_t ordinal
        uint64_t records_max
        uint64_t bytes_max
        uint64_t wait_ms
        uint64_t until
        quoth_span durability

    ctypedef struct quoth_msg_fetched:
        uint64_t log
        uint64_t next
        uint64_t newest
        uint64_t gone
        uint64_t end
        uint64_t damaged

    ctypedef struct quoth_shape:
        pass

    ctypedef enum quoth_decoding:
        QUOTH_DECODED
        QUOTH_DECODED_LATER
        QUOTH_NOT_PLAIN

    void quoth_header_write(void *to, unsigned operation, unsigned status, uint64_t correlation)
    quoth_header_problem quoth_header_read(
        const void *bytes, size_t size, bint is_request, quoth_frame_header *header
    )
    bint quoth_call_fits(unsigned operation, size_t frames, size_t topic_bytes)
    const quoth_shape *quoth_request_shape(unsigned operation)
    const quoth_shape *quoth_reply_shape(unsigned operation)
    size_t quoth_message_encode(const quoth_shape *shape, const void *message, void *to, size_t room)
    quoth_decoding quoth_message_decode(const quoth_shape *shape, quoth_span arguments, void *message)

cdef extern from "bytes.h" nogil:
    uint32_t quoth_read_le32(const void *at)
    void quoth_write_le32(void *to, uint32_t value)
