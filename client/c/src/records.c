/* Implements records.h. */

#include "records.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"

enum { HEADERS_PREFIX = 5, PAIR_PREFIX = 10, RECORD_OVERHEAD = 13 };

/* Makes room for `size` more bytes behind `used`. */
static int grow(void **memory, size_t *room, size_t used, size_t size) {
    if (*room - used >= size) return 1;
    size_t wanted = *room ? *room : 1024;
    while (wanted - used < size) {
        if (wanted > SIZE_MAX / 2) return 0;
        wanted *= 2;
    }
    void *grown = realloc(*memory, wanted);
    if (!grown) return 0;
    *memory = grown;
    *room = wanted;
    return 1;
}

static int grow_column(quoth_column *column, uint32_t count, size_t size) {
    void *heap = column->heap, *ends = column->ends;
    int grown = grow(&heap, &column->room, column->used, size)
                && grow(&ends, &column->ends_room, sizeof(uint32_t) * (size_t)count, sizeof(uint32_t));
    column->heap = heap;
    column->ends = ends;
    return grown;
}

/* An upper bound of the bytes of a record's headers. */
static size_t headers_bytes(const quoth_record *record) {
    size_t size = record->headers_count ? HEADERS_PREFIX : record->encoded.size;
    for (size_t i = 0; i < record->headers_count; i++)
        size += PAIR_PREFIX + record->headers[i].name.size + record->headers[i].value.size;
    return size;
}

size_t quoth_record_bytes(const quoth_record *record) {
    return RECORD_OVERHEAD + record->value.size + record->key.size + headers_bytes(record);
}

size_t quoth_records_bytes(const quoth_records *records) {
    size_t size = QUOTH_BATCH_OVERHEAD + RECORD_OVERHEAD * (size_t)records->count;
    for (int column = 0; column < QUOTH_COLUMNS; column++) size += records->columns[column].used;
    return size;
}

static quoth_span span_of(quoth_bytes bytes) { return (quoth_span){bytes.data, bytes.size}; }

/* Encodes headers at the end of their heap, which has the room. */
static int write_headers(const quoth_record *record, uint8_t *to, size_t room, size_t *size, quoth_error *error) {
    quoth_packer packer = {to, to + room, 0};
    if (!record->headers_count) {
        *size = record->encoded.size;
        if (!quoth_headers_are_valid(record->encoded.data, *size))
            return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "headers that are no map of text to binary");
        memcpy(to, record->encoded.data, *size);
        return QUOTH_OK;
    }
    quoth_pack_map(&packer, (uint32_t)record->headers_count);
    for (size_t i = 0; i < record->headers_count; i++) {
        if (!quoth_is_utf8(span_of(record->headers[i].name)))
            return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "the name of a header is not UTF-8");
        quoth_pack_text(&packer, span_of(record->headers[i].name));
        quoth_pack_binary(&packer, span_of(record->headers[i].value));
    }
    *size = (size_t)(packer.at - to);
    if (*size > QUOTH_BATCH_HEADERS_MAX)
        return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "headers of %zu bytes, at most %u", *size,
                          QUOTH_BATCH_HEADERS_MAX);
    return QUOTH_OK;
}

static void append(quoth_column *column, uint32_t count, quoth_bytes content) {
    if (content.size) memcpy(column->heap + column->used, content.data, content.size);
    column->used += content.size;
    column->ends[count] = (uint32_t)column->used;
}

/* Gives the records so far an empty content in a column that begins now. */
static int begin_column(quoth_records *records, int column) {
    quoth_column *begun = &records->columns[column];
    void *has_key = records->has_key;
    size_t ends = sizeof(uint32_t) * (size_t)records->count;
    void *memory = begun->ends;
    if (!grow(&memory, &begun->ends_room, 0, ends + sizeof(uint32_t))) return 0;
    begun->ends = memory;
    if (column == QUOTH_KEYS) {
        if (!grow(&has_key, &records->has_key_room, 0, (size_t)records->count + 1)) return 0;
        records->has_key = has_key;
        memset(records->has_key, 0, records->count);
    }
    memset(begun->ends, 0, ends);
    begun->used = 0;
    return 1;
}

static int reserve(quoth_records *records, const quoth_record *record, unsigned flags, size_t encoded) {
    void *has_key = records->has_key;
    if (flags & ~records->flags & QUOTH_BATCH_KEYS && !begin_column(records, QUOTH_KEYS)) return 0;
    if (flags & ~records->flags & QUOTH_BATCH_HEADERS && !begin_column(records, QUOTH_HEADERS)) return 0;
    if (flags & QUOTH_BATCH_KEYS) {
        has_key = records->has_key;
        if (!grow(&has_key, &records->has_key_room, records->count, 1)) return 0;
        records->has_key = has_key;
        if (!grow_column(&records->columns[QUOTH_KEYS], records->count, record->key.size)) return 0;
    }
    if (flags & QUOTH_BATCH_HEADERS && !grow_column(&records->columns[QUOTH_HEADERS], records->count, encoded))
        return 0;
    return grow_column(&records->columns[QUOTH_VALUES], records->count, record->value.size);
}

int quoth_records_add(quoth_records *records, const quoth_record *record, quoth_error *error) {
    if (record->headers_count > QUOTH_BATCH_HEADERS_MAX / 2 || (record->headers_count && !record->headers)
        || (record->value.size && !record->value.data) || (record->key.size && !record->key.data)
        || (record->encoded.size && !record->encoded.data))
        return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "a record whose bytes are NULL, or of too many headers");
    size_t encoded = headers_bytes(record), size;
    if (quoth_records_bytes(records) + quoth_record_bytes(record) > 2 * (size_t)QUOTH_BATCH_BYTES_MAX
        || records->count >= QUOTH_BATCH_RECORDS_MAX) /* the exact limit is checked when the batch is written */
        return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "a batch above %u bytes or %u records", QUOTH_BATCH_BYTES_MAX,
                          QUOTH_BATCH_RECORDS_MAX);
    unsigned flags = records->flags | (record->key.data ? (unsigned)QUOTH_BATCH_KEYS : 0u)
                     | (encoded ? (unsigned)QUOTH_BATCH_HEADERS : 0u);
    if (!reserve(records, record, flags, encoded)) return quoth_fail_memory(error);
    if (flags & QUOTH_BATCH_HEADERS) {
        quoth_column *headers = &records->columns[QUOTH_HEADERS];
        size = 0;
        int code = encoded ? write_headers(record, headers->heap + headers->used, encoded, &size, error) : QUOTH_OK;
        if (code) return code;
        headers->used += size;
        headers->ends[records->count] = (uint32_t)headers->used;
    }
    if (flags & QUOTH_BATCH_KEYS) {
        records->has_key[records->count] = record->key.data != NULL;
        append(&records->columns[QUOTH_KEYS], records->count, record->key);
    }
    append(&records->columns[QUOTH_VALUES], records->count, record->value);
    records->flags = flags;
    records->count++;
    return QUOTH_OK;
}

static void write_column(const quoth_column *column, uint32_t count, uint8_t *offsets, uint8_t *heap) {
    quoth_write_le32(offsets, 0);
    for (uint32_t i = 0; i < count; i++) quoth_write_le32(offsets + 4 + 4 * (size_t)i, column->ends[i]);
    if (column->used) memcpy(heap, column->heap, column->used);
}

int quoth_records_write(const quoth_records *records, unsigned flags, uint64_t producer, uint64_t sequence,
                        size_t bytes_max, uint8_t **bytes, size_t *size, quoth_error *error) {
    quoth_batch_layout layout;
    size_t heaps[QUOTH_COLUMNS];
    for (int column = 0; column < QUOTH_COLUMNS; column++) heaps[column] = records->columns[column].used;
    quoth_batch_problem problem = quoth_batch_plan(records->count, records->flags, heaps, &layout);
    if (problem == QUOTH_BATCH_RANGE) return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "a batch without a record");
    if (problem) return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "%s", quoth_batch_text(problem));
    if (layout.size > bytes_max)
        return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "a batch of %zu bytes, at most %zu", layout.size, bytes_max);
    uint8_t *to = malloc(layout.size);
    if (!to) return quoth_fail_memory(error);
    for (int column = 0; column < QUOTH_COLUMNS; column++)
        if (layout.offsets[column])
            write_column(&records->columns[column], records->count, to + layout.offsets[column],
                         to + layout.heaps[column]);
    if (records->flags & QUOTH_BATCH_KEYS) {
        memset(to + layout.validity, 0, layout.heaps[QUOTH_VALUES] - layout.validity);
        for (uint32_t i = 0; i < records->count; i++)
            to[layout.validity + i / 8] |= (uint8_t)(records->has_key[i] << i % 8);
    }
    quoth_batch_seal(to, &layout, records->count, records->flags | flags, producer, sequence);
    *bytes = to;
    *size = layout.size;
    return QUOTH_OK;
}

void quoth_records_clear(quoth_records *records) {
    records->count = 0;
    records->flags = 0;
    for (int column = 0; column < QUOTH_COLUMNS; column++) records->columns[column].used = 0;
}

void quoth_records_free(quoth_records *records) {
    for (int column = 0; column < QUOTH_COLUMNS; column++) {
        free(records->columns[column].heap);
        free(records->columns[column].ends);
    }
    free(records->has_key);
    memset(records, 0, sizeof *records);
}
