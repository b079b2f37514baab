/* A batch that is being filled: columns that grow, from which its bytes are written. And records of one that was
 * parsed. */

#ifndef QUOTH_RECORDS_H
#define QUOTH_RECORDS_H

#include "errors.h"

typedef struct quoth_column {
    uint8_t *heap;
    uint32_t *ends; /* of each record, in the heap */
    size_t used, room, ends_room;
} quoth_column;

typedef struct quoth_records {
    uint32_t count;
    unsigned flags; /* QUOTH_BATCH_KEYS and QUOTH_BATCH_HEADERS, once a record has some */
    quoth_column columns[QUOTH_COLUMNS];
    uint8_t *has_key; /* a byte a record, if there are keys */
    size_t has_key_room;
} quoth_records;

/* An upper bound of the bytes that a record takes in a batch, and of those beside all records. */
size_t quoth_record_bytes(const quoth_record *record);
#define QUOTH_BATCH_OVERHEAD 128u

/* The bytes of the batch so far, at most. */
size_t quoth_records_bytes(const quoth_records *records);

/* Appends a record, all of it or nothing. QUOTH_BAD_REQUEST or QUOTH_TOO_LARGE for wrong headers. */
int quoth_records_add(quoth_records *records, const quoth_record *record, quoth_error *error);

/* Writes a batch into memory of its own, which the caller frees. QUOTH_TOO_LARGE above `bytes_max`. */
int quoth_records_write(const quoth_records *records, unsigned flags, uint64_t producer, uint64_t sequence,
                        size_t bytes_max, uint8_t **bytes, size_t *size, quoth_error *error);

/* Removes all records and keeps the memory; frees it. */
void quoth_records_clear(quoth_records *records);
void quoth_records_free(quoth_records *records);

/* ---- a batch that was parsed ---- */

/* Without a call where the batch has no such column. */
static inline quoth_bytes quoth_content_of(const quoth_batch *batch, int column, uint32_t record) {
    if (!batch->columns[column].offsets) return (quoth_bytes){NULL, 0};
    quoth_span found = quoth_batch_record(batch, column, record);
    return (quoth_bytes){found.bytes, found.size};
}

/* A record of a batch as it is handed out. */
static inline void quoth_message_of(const quoth_batch *batch, uint32_t record, quoth_message *message) {
    message->pointer = batch->header.base + record;
    message->value = quoth_content_of(batch, QUOTH_VALUES, record);
    message->key = quoth_content_of(batch, QUOTH_KEYS, record);
    message->headers = quoth_content_of(batch, QUOTH_HEADERS, record);
}

#endif
