/* Implements batch.h. A reader of this file needs the picture there. */

#include "xxh3.h"

#include "batch.h"
#include "bytes.h"

enum { MAGIC_AT = 0, VERSION_AT = 4, KIND_AT = 5, FLAGS_AT = 6, BODY_BYTES_AT = 8, RECORDS_AT = 12, BASE_AT = 16,
       ORDINAL_AT = 24, PRODUCER_AT = 32, SEQUENCE_AT = 40, BODY_CHECK_AT = 48, CHECK_AT = 56 };
enum { VERSION = 1, DATA = 1, ALIGNMENT = 8 };

#define COLUMNS_MASK ((unsigned)(QUOTH_BATCH_KEYS | QUOTH_BATCH_HEADERS))

static const char MAGIC[4] = {'Q', 'U', 'O', 'B'};

const char *quoth_batch_text(quoth_batch_problem problem) {
    switch (problem) {
    case QUOTH_BATCH_OK: return "a whole batch";
    case QUOTH_BATCH_SHORT: return "the bytes end before the batch does, or go on behind it";
    case QUOTH_BATCH_MAGIC: return "this is no batch: its first bytes are not QUOB";
    case QUOTH_BATCH_VERSION: return "another version of the batch format";
    case QUOTH_BATCH_HEADER_CHECK: return "the header's checksum does not match";
    case QUOTH_BATCH_KIND: return "a kind or flags that are not known here";
    case QUOTH_BATCH_NO_TRANSACTION: return "a batch of a transaction without a producer id or a sequence";
    case QUOTH_BATCH_RECORDS: return "more records in one batch than 100000";
    case QUOTH_BATCH_BYTES: return "a batch above 16 MiB";
    case QUOTH_BATCH_RANGE: return "no records, or pointers out of range";
    case QUOTH_BATCH_UNPADDED: return "a body that is no multiple of 8 bytes";
    case QUOTH_BATCH_BODY_CHECK: return "the body's checksum does not match";
    case QUOTH_BATCH_OFFSETS: return "offsets do not rise from 0";
    case QUOTH_BATCH_SUM: return "the columns do not add up to the body";
    case QUOTH_BATCH_PADDING: return "the padding is not zeros";
    case QUOTH_BATCH_NUMBERING: return "flags of a numbering that do not go together, or without a producer id";
    case QUOTH_BATCH_PLACED: return "a producer leaves pointer and ordinal to the log";
    case QUOTH_BATCH_IDENTITY: return "a producer id and a sequence go together";
    case QUOTH_BATCH_STAGED: return "the batches of a transaction are staged, then published together";
    case QUOTH_BATCH_VALIDITY: return "validity bits beyond the last record are not 0";
    case QUOTH_BATCH_ABSENT_KEY: return "a record has no key, and bytes of one";
    case QUOTH_BATCH_BAD_HEADERS: return "a record's headers are no map of text to binary";
    }
    return "an unknown problem";
}

uint64_t quoth_xxh3(const void *bytes, size_t size, uint64_t seed) { return xxh3(bytes, size, seed); }

/* ---- sizes ---- */

static unsigned columns_of(unsigned flags) {
    return 1u + !!(flags & QUOTH_BATCH_KEYS) + !!(flags & QUOTH_BATCH_HEADERS);
}

static int is_present(unsigned flags, int column) { return column == QUOTH_VALUES || flags & 1u << (column - 1); }

static size_t bitmap_bytes(uint32_t records, unsigned flags) {
    return flags & QUOTH_BATCH_KEYS ? ((size_t)records + 63) / 64 * 8 : 0;
}

static size_t column_bytes(uint32_t records) { return 4 * ((size_t)records + 1); }

/* Bytes of all fixed-size columns of a body, which is the offset of its heaps. */
static size_t fixed_bytes(uint32_t records, unsigned flags) {
    return column_bytes(records) * columns_of(flags) + bitmap_bytes(records, flags);
}

static size_t padding(size_t size) { return (ALIGNMENT - size % ALIGNMENT) % ALIGNMENT; }

/* ---- checksums ---- */

static uint64_t body_check(const quoth_batch_header *header, const void *body) {
    uint64_t seed = (uint64_t)header->kind << 48 | (uint64_t)header->flags << 32 | header->records;
    return quoth_xxh3(body, header->body_bytes, seed);
}

int quoth_batch_is_stamped(const void *header, uint64_t log) {
    const uint8_t *at = header;
    return quoth_read_le64(at + CHECK_AT) == quoth_xxh3(at, CHECK_AT, log);
}

int quoth_batch_is_body(const quoth_batch_header *header, const void *body) {
    return body_check(header, body) == header->body_check;
}

/* ---- the header ---- */

static int flags_fit(unsigned flags) {
    switch (flags & ~COLUMNS_MASK) {
    case 0:
    case QUOTH_BATCH_START:
    case QUOTH_BATCH_SPARSE:
    case QUOTH_BATCH_SPARSE | QUOTH_BATCH_START:
    case QUOTH_BATCH_ORDINAL:
    case QUOTH_BATCH_ORDINAL | QUOTH_BATCH_START:
    case QUOTH_BATCH_TRANSACTION:
    case QUOTH_BATCH_TRANSACTION | QUOTH_BATCH_END: return 1;
    }
    return 0;
}

quoth_batch_problem quoth_batch_read_header(const void *bytes, size_t size, uint64_t log, quoth_batch_header *header) {
    const uint8_t *at = bytes;
    if (size < QUOTH_BATCH_HEADER) return QUOTH_BATCH_SHORT;
    if (memcmp(at + MAGIC_AT, MAGIC, sizeof MAGIC) != 0) return QUOTH_BATCH_MAGIC;
    if (at[VERSION_AT] != VERSION) return QUOTH_BATCH_VERSION;
    if (!quoth_batch_is_stamped(at, log)) return QUOTH_BATCH_HEADER_CHECK;
    header->kind = at[KIND_AT];
    header->flags = quoth_read_le16(at + FLAGS_AT);
    header->body_bytes = quoth_read_le32(at + BODY_BYTES_AT);
    header->records = quoth_read_le32(at + RECORDS_AT);
    header->base = quoth_read_le64(at + BASE_AT);
    header->ordinal = quoth_read_le64(at + ORDINAL_AT);
    header->producer = quoth_read_le64(at + PRODUCER_AT);
    header->sequence = quoth_read_le64(at + SEQUENCE_AT);
    header->body_check = quoth_read_le64(at + BODY_CHECK_AT);
    if (header->kind != DATA || !flags_fit(header->flags)) return QUOTH_BATCH_KIND;
    if (header->flags & QUOTH_BATCH_TRANSACTION && !(header->producer && header->sequence))
        return QUOTH_BATCH_NO_TRANSACTION;
    if (header->records > QUOTH_BATCH_RECORDS_MAX) return QUOTH_BATCH_RECORDS;
    if (header->body_bytes > QUOTH_BATCH_BYTES_MAX - QUOTH_BATCH_HEADER) return QUOTH_BATCH_BYTES;
    if (!header->records || header->base > QUOTH_BATCH_POINTER_MAX - (header->records - 1)) return QUOTH_BATCH_RANGE;
    if (header->body_bytes % ALIGNMENT) return QUOTH_BATCH_UNPADDED;
    return QUOTH_BATCH_OK;
}

void quoth_batch_stamp(const quoth_batch_header *header, uint64_t log, void *bytes) {
    uint8_t *at = bytes;
    memcpy(at + MAGIC_AT, MAGIC, sizeof MAGIC);
    at[VERSION_AT] = VERSION;
    at[KIND_AT] = header->kind;
    quoth_write_le16(at + FLAGS_AT, header->flags);
    quoth_write_le32(at + BODY_BYTES_AT, header->body_bytes);
    quoth_write_le32(at + RECORDS_AT, header->records);
    quoth_write_le64(at + BASE_AT, header->base);
    quoth_write_le64(at + ORDINAL_AT, header->ordinal);
    quoth_write_le64(at + PRODUCER_AT, header->producer);
    quoth_write_le64(at + SEQUENCE_AT, header->sequence);
    quoth_write_le64(at + BODY_CHECK_AT, header->body_check);
    quoth_write_le64(at + CHECK_AT, quoth_xxh3(at, CHECK_AT, log));
}

/* ---- the body ---- */

/* 1 if the offsets begin at 0 and never fall. The last one lies in the body, so none is negative. */
static int offsets_rise(const uint8_t *offsets, uint32_t records) {
    uint32_t falls = quoth_read_le32(offsets);
    for (uint32_t i = 0; i < records; i++)
        falls |= quoth_read_le32(offsets + 4 * (size_t)i) > quoth_read_le32(offsets + 4 * (size_t)i + 4);
    return !falls;
}

quoth_batch_problem quoth_batch_columns(const void *bytes, size_t size, const quoth_batch_header *header,
                                        quoth_batch *batch) {
    uint32_t records = header->records;
    unsigned flags = header->flags;
    if (size != QUOTH_BATCH_HEADER + (size_t)header->body_bytes) return QUOTH_BATCH_SHORT;
    const uint8_t *body = (const uint8_t *)bytes + QUOTH_BATCH_HEADER, *offsets = body;
    size_t heap = fixed_bytes(records, flags), width = column_bytes(records);
    if (heap > header->body_bytes) return QUOTH_BATCH_SUM;
    batch->header = *header;
    for (int column = 0; column < QUOTH_COLUMNS; column++) {
        quoth_batch_column *found = &batch->columns[column];
        if (!is_present(flags, column)) {
            *found = (quoth_batch_column){NULL, {NULL, 0}};
            continue;
        }
        uint32_t end = quoth_read_le32(offsets + width - 4);
        if (!offsets_rise(offsets, records)) return QUOTH_BATCH_OFFSETS;
        if (end > header->body_bytes - heap) return QUOTH_BATCH_SUM;
        *found = (quoth_batch_column){offsets, {body + heap, end}};
        offsets += width;
        heap += end;
    }
    batch->validity = flags & QUOTH_BATCH_KEYS ? offsets : NULL;
    if (heap + padding(heap) != header->body_bytes) return QUOTH_BATCH_SUM;
    for (size_t i = heap; i < header->body_bytes; i++)
        if (body[i]) return QUOTH_BATCH_PADDING;
    return QUOTH_BATCH_OK;
}

quoth_batch_problem quoth_batch_parse(const void *bytes, size_t size, uint64_t log, quoth_batch *batch) {
    quoth_batch_header header;
    quoth_batch_problem problem = quoth_batch_read_header(bytes, size, log, &header);
    if (problem) return problem;
    if (size != QUOTH_BATCH_HEADER + (size_t)header.body_bytes) return QUOTH_BATCH_SHORT;
    if (!quoth_batch_is_body(&header, (const uint8_t *)bytes + QUOTH_BATCH_HEADER)) return QUOTH_BATCH_BODY_CHECK;
    return quoth_batch_columns(bytes, size, &header, batch);
}

static int has_key(const quoth_batch *batch, uint32_t record) {
    return batch->validity[record >> 3] >> (record & 7) & 1;
}

quoth_span quoth_batch_record(const quoth_batch *batch, int column, uint32_t record) {
    const quoth_batch_column *found = &batch->columns[column];
    if (!found->offsets || (column == QUOTH_KEYS && !has_key(batch, record))) return (quoth_span){NULL, 0};
    const uint8_t *offset = found->offsets + 4 * (size_t)record;
    uint32_t begin = quoth_read_le32(offset);
    return (quoth_span){found->heap.bytes + begin, quoth_read_le32(offset + 4) - begin};
}

void quoth_batch_walk(const void *bytes, size_t size, uint64_t log, uint64_t pointer_max, uint64_t ordinal_max,
                      quoth_batch_place *place) {
    const uint8_t *begin = bytes;
    while (place->end <= size && size - place->end >= QUOTH_BATCH_HEADER) {
        const uint8_t *at = begin + place->end;
        uint32_t body_bytes = quoth_read_le32(at + BODY_BYTES_AT), records = quoth_read_le32(at + RECORDS_AT);
        uint64_t base = quoth_read_le64(at + BASE_AT), ordinal = quoth_read_le64(at + ORDINAL_AT);
        if (!records || base <= place->pointer || base > pointer_max || records - 1 > pointer_max - base) return;
        if (ordinal != place->ordinal || ordinal > ordinal_max || records > ordinal_max - ordinal) return;
        if (memcmp(at + MAGIC_AT, MAGIC, sizeof MAGIC) != 0) return;
        if (body_bytes > size - place->end - QUOTH_BATCH_HEADER || !quoth_batch_is_stamped(at, log)) return;
        place->end += QUOTH_BATCH_HEADER + (size_t)body_bytes;
        place->pointer = base + records - 1;
        place->ordinal = ordinal + records;
        place->batches++;
    }
}

/* ---- headers of records: msgpack maps of text to binary ---- */

/* The size of what a msgpack type with a length of 1, 2 or 4 bytes announces. Moves `headers` behind the length;
 * 0 if the first byte is none of the three types that begin at `first`, or the length is cut. */
static int read_length(quoth_span *headers, uint8_t first, uint32_t *length) {
    unsigned kind = (unsigned)(headers->bytes[0] - first);
    if (kind > 2 || headers->size < 1 + (1u << kind)) return 0;
    *length = (uint32_t)quoth_read_be(headers->bytes + 1, 1u << kind);
    headers->bytes += 1 + (1u << kind);
    headers->size -= 1 + (1u << kind);
    return 1;
}

static int take(quoth_span *headers, uint32_t length, quoth_span *taken) {
    if (length > headers->size) return 0;
    *taken = (quoth_span){headers->bytes, length};
    headers->bytes += length;
    headers->size -= length;
    return 1;
}

static int take_count(quoth_span *headers, uint32_t *pairs) {
    uint8_t first = headers->bytes[0];
    if ((first & 0xf0) == 0x80) {
        *pairs = first & 0x0f;
        headers->bytes++;
        headers->size--;
        return 1;
    }
    return first >= 0xde && read_length(headers, 0xdd, pairs);
}

static int take_text(quoth_span *headers, quoth_span *text) {
    if (!headers->size) return 0;
    uint32_t length = headers->bytes[0] & 0x1f;
    if ((headers->bytes[0] & 0xe0) == 0xa0) {
        headers->bytes++;
        headers->size--;
    } else if (!read_length(headers, 0xd9, &length)) {
        return 0;
    }
    return take(headers, length, text);
}

static int take_binary(quoth_span *headers, quoth_span *binary) {
    uint32_t length;
    return headers->size && read_length(headers, 0xc4, &length) && take(headers, length, binary);
}

int quoth_is_utf8(quoth_span text) {
    const uint8_t *at = text.bytes, *end = at + text.size;
    while (at < end) {
        uint8_t first = *at++;
        if (first < 0x80) continue;
        unsigned more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || (size_t)(end - at) < more) return 0;
        uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        if (*at < low || *at > high) return 0;
        for (at++; --more; at++)
            if ((*at & 0xc0) != 0x80) return 0;
    }
    return 1;
}

int quoth_headers_next(quoth_span *headers, uint32_t *pairs, quoth_span *name, quoth_span *value) {
    if (*pairs == UINT32_MAX) {
        if (headers->size > QUOTH_BATCH_HEADERS_MAX) return -1;
        *pairs = 0;
        if (headers->size && !take_count(headers, pairs)) return -1;
    }
    if (!*pairs) return headers->size ? -1 : 0;
    if (!take_text(headers, name) || !quoth_is_utf8(*name) || !take_binary(headers, value)) return -1;
    --*pairs;
    return 1;
}

int quoth_headers_are_valid(const void *bytes, size_t size) {
    quoth_span headers = {bytes, size}, name, value;
    uint32_t pairs = UINT32_MAX;
    int found;
    while ((found = quoth_headers_next(&headers, &pairs, &name, &value)) > 0) continue;
    return found == 0;
}

static unsigned length_bytes(size_t length) { return length < 0x100 ? 1 : length < 0x10000 ? 2 : 4; }

/* Bytes in front of something of this length. fixed: lengths below it need no byte of their own. */
static size_t prefix_bytes(size_t length, size_t fixed) { return length < fixed ? 1 : 1 + length_bytes(length); }

/* first: the type with a length of 1 byte. The next two have 2 and 4. */
static uint8_t *write_prefix(uint8_t *to, uint8_t first, size_t length) {
    unsigned size = length_bytes(length);
    *to = (uint8_t)(first + (size >> 1));
    quoth_write_be(to + 1, length, size);
    return to + 1 + size;
}

static size_t count_bytes(uint32_t pairs) { return pairs < 16 ? 1 : pairs < 0x10000 ? 3 : 5; }

size_t quoth_headers_size(const quoth_span *names, const quoth_span *values, uint32_t pairs) {
    if (!pairs) return 0;
    size_t size = count_bytes(pairs);
    for (uint32_t i = 0; i < pairs; i++)
        size += prefix_bytes(names[i].size, 32) + names[i].size + prefix_bytes(values[i].size, 0) + values[i].size;
    return size;
}

uint8_t *quoth_headers_write(uint8_t *to, const quoth_span *names, const quoth_span *values, uint32_t pairs) {
    if (!pairs) return to;
    if (pairs < 16) {
        *to++ = (uint8_t)(0x80 | pairs);
    } else {
        unsigned size = pairs < 0x10000 ? 2 : 4;
        *to = size == 2 ? 0xde : 0xdf;
        quoth_write_be(to + 1, pairs, size);
        to += 1 + size;
    }
    for (uint32_t i = 0; i < pairs; i++) {
        if (names[i].size < 32)
            *to++ = (uint8_t)(0xa0 | names[i].size);
        else
            to = write_prefix(to, 0xd9, names[i].size);
        if (names[i].size) memcpy(to, names[i].bytes, names[i].size);
        to = write_prefix(to + names[i].size, 0xc4, values[i].size);
        if (values[i].size) memcpy(to, values[i].bytes, values[i].size);
        to += values[i].size;
    }
    return to;
}

/* ---- checks of a new batch ---- */

static int numbering_fits(const quoth_batch_header *header) {
    unsigned counted = header->flags & (QUOTH_BATCH_SPARSE | QUOTH_BATCH_ORDINAL);
    if (header->flags & QUOTH_BATCH_START && !counted) return 0;
    return !counted || header->producer;
}

quoth_batch_problem quoth_batch_check_published(const quoth_batch_header *header) {
    if (header->base || header->ordinal) return QUOTH_BATCH_PLACED;
    if (!header->producer != !header->sequence) return QUOTH_BATCH_IDENTITY;
    if (header->flags & QUOTH_BATCH_TRANSACTION) return QUOTH_BATCH_STAGED;
    return QUOTH_BATCH_OK;
}

static quoth_batch_problem check_keys(const quoth_batch *batch, uint32_t *record) {
    uint32_t records = batch->header.records;
    for (uint32_t i = records; i < (uint32_t)bitmap_bytes(records, QUOTH_BATCH_KEYS) * 8; i++)
        if (has_key(batch, i)) return QUOTH_BATCH_VALIDITY;
    const uint8_t *offsets = batch->columns[QUOTH_KEYS].offsets;
    for (uint32_t i = 0; i < records; i++)
        if (!has_key(batch, i) &&
            quoth_read_le32(offsets + 4 * (size_t)i) != quoth_read_le32(offsets + 4 * (size_t)i + 4)) {
            *record = i;
            return QUOTH_BATCH_ABSENT_KEY;
        }
    return QUOTH_BATCH_OK;
}

static quoth_batch_problem check_headers(const quoth_batch *batch, uint32_t *record) {
    for (uint32_t i = 0; i < batch->header.records; i++) {
        quoth_span headers = quoth_batch_record(batch, QUOTH_HEADERS, i);
        if (!quoth_headers_are_valid(headers.bytes, headers.size)) {
            *record = i;
            return QUOTH_BATCH_BAD_HEADERS;
        }
    }
    return QUOTH_BATCH_OK;
}

quoth_batch_problem quoth_batch_check_new(const quoth_batch *batch, uint32_t *record) {
    uint32_t ignored;
    if (!record) record = &ignored;
    *record = 0;
    if (!numbering_fits(&batch->header)) return QUOTH_BATCH_NUMBERING;
    if (batch->columns[QUOTH_KEYS].offsets) {
        quoth_batch_problem problem = check_keys(batch, record);
        if (problem) return problem;
    }
    return batch->columns[QUOTH_HEADERS].offsets ? check_headers(batch, record) : QUOTH_BATCH_OK;
}

/* ---- writing ---- */

quoth_batch_problem quoth_batch_plan(uint32_t records, unsigned flags, const size_t heaps[QUOTH_COLUMNS],
                                     quoth_batch_layout *layout) {
    if (!records) return QUOTH_BATCH_RANGE;
    if (records > QUOTH_BATCH_RECORDS_MAX) return QUOTH_BATCH_RECORDS;
    size_t offsets = QUOTH_BATCH_HEADER, heap = QUOTH_BATCH_HEADER + fixed_bytes(records, flags);
    for (int column = 0; column < QUOTH_COLUMNS; column++) {
        int present = is_present(flags, column);
        size_t size = present ? heaps[column] : 0;
        if (heap > QUOTH_BATCH_BYTES_MAX || size > QUOTH_BATCH_BYTES_MAX - heap) return QUOTH_BATCH_BYTES;
        layout->offsets[column] = present ? offsets : 0;
        layout->heaps[column] = heap;
        if (present) offsets += column_bytes(records);
        heap += size;
    }
    layout->validity = flags & QUOTH_BATCH_KEYS ? offsets : 0;
    layout->used = heap;
    layout->size = heap + padding(heap);
    return layout->size > QUOTH_BATCH_BYTES_MAX ? QUOTH_BATCH_BYTES : QUOTH_BATCH_OK;
}

void quoth_batch_seal(void *bytes, const quoth_batch_layout *layout, uint32_t records, unsigned flags,
                      uint64_t producer, uint64_t sequence) {
    uint8_t *at = bytes;
    memset(at + layout->used, 0, layout->size - layout->used);
    quoth_batch_header header = {.kind = DATA, .flags = (uint16_t)flags, .records = records, .producer = producer,
                                 .sequence = sequence};
    header.body_bytes = (uint32_t)(layout->size - QUOTH_BATCH_HEADER);
    header.body_check = body_check(&header, at + QUOTH_BATCH_HEADER);
    quoth_batch_stamp(&header, 0, at);
}
