/* Fuzzes batch.c: what it accepts can be read whole, and written again it is the same.
 *
 * The first byte of an input says how the others are taken, as bits:
 *
 *     1   mend the length and both checksums, which no mutation gets right
 *     2   by a log, whose id is LOG; else as a batch that is not stored yet
 *     4   not as a batch but as the headers of one record */

#include "batch.h"

#include "bytes.h"
#include "fuzz.h"

enum { MENDED = 1, STORED = 2, RECORD_HEADERS = 4 };

#define LOG 0x0123456789abcdefull

/* ---- headers of a record ---- */

enum { PAIRS_MAX = 1000 };

/* Writes headers again that were found valid, and reads those. */
static void write_headers(const quoth_span *names, const quoth_span *values, uint32_t pairs) {
    size_t size = quoth_headers_size(names, values, pairs);
    uint8_t *written = take_memory(size);
    PROMISE(quoth_headers_write(written, names, values, pairs) == written + size);
    quoth_span left = {written, size}, name, value;
    uint32_t count = UINT32_MAX;
    for (uint32_t i = 0; i < pairs; i++) {
        PROMISE(quoth_headers_next(&left, &count, &name, &value) == 1);
        PROMISE(name.size == names[i].size && memcmp(name.bytes, names[i].bytes, name.size) == 0);
        PROMISE(value.size == values[i].size && memcmp(value.bytes, values[i].bytes, value.size) == 0);
    }
    PROMISE(quoth_headers_next(&left, &count, &name, &value) == 0);
    free(written);
}

static void read_headers(quoth_span headers) {
    static quoth_span names[PAIRS_MAX], values[PAIRS_MAX];
    const uint8_t *end = headers.bytes + headers.size;
    int is_valid = quoth_headers_are_valid(headers.bytes, headers.size), step;
    quoth_span left = headers, name, value;
    uint32_t pairs = UINT32_MAX, count = 0;
    while ((step = quoth_headers_next(&left, &pairs, &name, &value)) == 1) {
        PROMISE(name.bytes >= headers.bytes && value.bytes + value.size <= end);
        PROMISE(left.size <= headers.size && left.bytes + left.size == end);
        if (count < PAIRS_MAX) {
            names[count] = name;
            values[count] = value;
        }
        count++;
    }
    PROMISE(!is_valid || step == 0);
    if (is_valid && count <= PAIRS_MAX) write_headers(names, values, count);
}

/* ---- batches ---- */

/* Makes the header that the bytes have in its fields, whatever it says of itself. */
static quoth_batch_header claimed(const uint8_t *bytes, size_t size) {
    quoth_batch_header header = {bytes[5], quoth_read_le16(bytes + 6), (uint32_t)(size - QUOTH_BATCH_HEADER),
                                 quoth_read_le32(bytes + 12), quoth_read_le64(bytes + 16),
                                 quoth_read_le64(bytes + 24), quoth_read_le64(bytes + 32),
                                 quoth_read_le64(bytes + 40), 0};
    return header;
}

/* Corrects what no mutation gets right: the rest is still to be judged. */
static void mend(uint8_t *bytes, size_t size, uint64_t log) {
    quoth_batch_header header = claimed(bytes, size);
    uint64_t seed = (uint64_t)header.kind << 48 | (uint64_t)header.flags << 32 | header.records;
    header.body_check = quoth_xxh3(bytes + QUOTH_BATCH_HEADER, header.body_bytes, seed);
    PROMISE(quoth_batch_is_body(&header, bytes + QUOTH_BATCH_HEADER));
    quoth_batch_stamp(&header, log, bytes);
    PROMISE(quoth_batch_is_stamped(bytes, log));
}

/* Looks at every byte of every record. */
static void read_records(const quoth_batch *batch, const uint8_t *bytes, size_t size) {
    uint64_t sum = 0;
    for (int column = 0; column < QUOTH_COLUMNS; column++)
        for (uint32_t row = 0; row < batch->header.records; row++) {
            quoth_span found = quoth_batch_record(batch, column, row);
            PROMISE(!found.bytes || (found.bytes >= bytes && found.bytes + found.size <= bytes + size));
            for (size_t i = 0; i < found.size; i++) sum += found.bytes[i];
            if (column == QUOTH_HEADERS && found.bytes) read_headers(found);
        }
    PROMISE(sum <= (uint64_t)size * 255 * QUOTH_COLUMNS);
}

/* Writes a batch again, from its records, that a broker would take: there is one form for them. */
static void write_batch(const quoth_batch *batch, const uint8_t *bytes, size_t size, uint64_t log) {
    const quoth_batch_header *header = &batch->header;
    const unsigned columns = QUOTH_BATCH_KEYS | QUOTH_BATCH_HEADERS;
    size_t heaps[QUOTH_COLUMNS], used;
    quoth_batch_layout layout;
    for (int column = 0; column < QUOTH_COLUMNS; column++) heaps[column] = batch->columns[column].heap.size;
    PROMISE(quoth_batch_plan(header->records, header->flags & columns, heaps, &layout) == QUOTH_BATCH_OK);
    PROMISE(layout.size == size);
    uint8_t *written = take_memory(size);
    memset(written, 0xa5, size);
    if (batch->validity) memset(written + layout.validity, 0, layout.heaps[QUOTH_VALUES] - layout.validity);
    for (int column = 0; column < QUOTH_COLUMNS; column++) {
        if (!layout.offsets[column]) continue;
        used = 0;
        quoth_write_le32(written + layout.offsets[column], 0);
        for (uint32_t row = 0; row < header->records; row++) {
            quoth_span found = quoth_batch_record(batch, column, row);
            if (found.size) memcpy(written + layout.heaps[column] + used, found.bytes, found.size);
            used += found.size;
            quoth_write_le32(written + layout.offsets[column] + 4 * (size_t)row + 4, (uint32_t)used);
            if (column == QUOTH_KEYS && found.bytes)
                written[layout.validity + row / 8] |= (uint8_t)(1u << row % 8);
        }
    }
    quoth_batch_seal(written, &layout, header->records, header->flags, header->producer, header->sequence);
    PROMISE(memcmp(written + QUOTH_BATCH_HEADER, bytes + QUOTH_BATCH_HEADER, size - QUOTH_BATCH_HEADER) == 0);
    quoth_batch_stamp(header, log, written);
    PROMISE(memcmp(written, bytes, size) == 0);
    free(written);
}

/* Stored batches of which some follow each other. */
static void walk(const uint8_t *bytes, size_t size, uint64_t log) {
    quoth_batch_place place = {0, 0, 0, 0}, before;
    if (size >= QUOTH_BATCH_HEADER) {
        place.ordinal = quoth_read_le64(bytes + 24);
        place.pointer = quoth_read_le64(bytes + 16) - 1;
    }
    before = place;
    quoth_batch_walk(bytes, size, log, QUOTH_BATCH_POINTER_MAX, UINT64_MAX, &place);
    PROMISE(place.end <= size && place.batches <= size / QUOTH_BATCH_HEADER);
    PROMISE(place.batches ? place.pointer > before.pointer && place.ordinal > before.ordinal
                          : memcmp(&place, &before, sizeof place) == 0);
}

static void judge(const uint8_t *bytes, size_t size, uint64_t log) {
    quoth_batch_header header;
    quoth_batch batch;
    uint32_t record = 0;
    quoth_batch_problem head = quoth_batch_read_header(bytes, size, log, &header);
    quoth_batch_problem problem = quoth_batch_parse(bytes, size, log, &batch);
    PROMISE(*quoth_batch_text(problem) && (!head || problem == head));
    if (problem) return;
    PROMISE(memcmp(&header, &batch.header, sizeof header) == 0 || header.base == batch.header.base);
    PROMISE(quoth_batch_is_stamped(bytes, log) && quoth_batch_is_body(&header, bytes + QUOTH_BATCH_HEADER));
    read_records(&batch, bytes, size);
    quoth_batch_check_published(&header);
    if (!quoth_batch_check_new(&batch, &record)) write_batch(&batch, bytes, size, log);
    PROMISE(record < header.records);
}

/* The layout by itself: the header may claim anything. */
static void judge_columns(const uint8_t *bytes, size_t size) {
    quoth_batch_header header = claimed(bytes, size);
    quoth_batch batch;
    if (size >= QUOTH_BATCH_HEADER && header.records <= QUOTH_BATCH_RECORDS_MAX && header.records
        && !quoth_batch_columns(bytes, size, &header, &batch))
        read_records(&batch, bytes, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (!size) return 0;
    unsigned how = bytes[0];
    uint64_t log = how & STORED ? LOG : 0;
    uint8_t *copy = copy_of(bytes + 1, --size);
    if (how & RECORD_HEADERS) {
        read_headers((quoth_span){copy, size});
    } else {
        if (how & MENDED && size >= QUOTH_BATCH_HEADER) mend(copy, size, log);
        judge(copy, size, log);
        if (size >= QUOTH_BATCH_HEADER) judge_columns(copy, size);
        walk(copy, size, log);
    }
    free(copy);
    return 0;
}
