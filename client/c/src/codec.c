/* Implements codec.h. */

#include "codec.h"

#include "bytes.h"

enum { KIND_AT = 0, FIRST_AT = 8, LAST_AT = 16, TOKEN_AT = 24, MILLISECONDS_AT = 32 }; /* in a row of a settlement */
enum { MAGIC_0 = 0xd1, MAGIC_1 = 0x51, VERSION_AT = 2, OPERATION_AT = 3, STATUS_AT = 4, ZEROS_AT = 5,
       CORRELATION_AT = 8 };

#define REQUEST_ELEMENTS_MAX 64u
#define REPLY_ELEMENTS_MAX 10000u
#define REQUEST_LEVELS 4u
#define REPLY_LEVELS 8u

/* ---- the header ---- */

void quoth_header_write(void *to, unsigned operation, unsigned status, uint64_t correlation) {
    uint8_t *at = to;
    memset(at, 0, QUOTH_HEADER_BYTES);
    at[0] = MAGIC_0;
    at[1] = MAGIC_1;
    at[VERSION_AT] = QUOTH_PROTOCOL_VERSION;
    at[OPERATION_AT] = (uint8_t)operation;
    at[STATUS_AT] = (uint8_t)status;
    quoth_write_le64(at + CORRELATION_AT, correlation);
}

quoth_header_problem quoth_header_read(const void *bytes, size_t size, int is_request, quoth_frame_header *header) {
    const uint8_t *at = bytes;
    memset(header, 0, sizeof *header);
    if (size != QUOTH_HEADER_BYTES) return QUOTH_HEADER_BAD;
    header->operation = at[OPERATION_AT];
    header->status = at[STATUS_AT];
    header->correlation = quoth_read_le64(at + CORRELATION_AT);
    if (at[0] != MAGIC_0 || at[1] != MAGIC_1) return QUOTH_HEADER_BAD;
    if (at[VERSION_AT] != QUOTH_PROTOCOL_VERSION) return QUOTH_HEADER_VERSION;
    int is_status = is_request ? header->status == QUOTH_STATUS_REQUEST
                               : header->status == QUOTH_STATUS_OK || header->status == QUOTH_STATUS_ERROR;
    if (!is_status || at[ZEROS_AT] || at[ZEROS_AT + 1] || at[ZEROS_AT + 2]) return QUOTH_HEADER_BAD;
    return header->operation && header->operation < QUOTH_OPERATIONS ? QUOTH_HEADER_OK : QUOTH_HEADER_OPERATION;
}

int quoth_call_fits(unsigned operation, size_t frames, size_t topic_bytes) {
    size_t most = 3;
    switch (operation) {
    case QUOTH_OP_PUBLISH:
    case QUOTH_OP_STAGE:
    case QUOTH_OP_PUBLISH_STAGED:
    case QUOTH_OP_GROUP_SETTLE: most = 4; break;
    case QUOTH_OP_HELLO:
    case QUOTH_OP_PING:
    case QUOTH_OP_LIST:
    case QUOTH_OP_STATUS:
    case QUOTH_OP_METRICS:
        if (topic_bytes) return 0;
    }
    return frames >= 2 && frames <= most;
}

/* ---- encoding ---- */

void quoth_message_clear(const quoth_shape *shape, void *message) {
    if (shape->size) memset(message, 0, shape->size);
    for (unsigned row = 0; row < shape->count; row++) {
        const quoth_field *field = &shape->fields[row];
        if (field->standard) memcpy((char *)message + field->offset, &field->standard, sizeof field->standard);
    }
}

static void pack_field(quoth_packer *packer, const quoth_field *field, const void *at) {
    static const uint8_t EMPTY_LIST = 0x90, EMPTY_MAP = 0x80;
    uint64_t number;
    double real;
    quoth_span span;
    switch (field->type) {
    case QUOTH_FIELD_UNSIGNED:
    case QUOTH_FIELD_SIGNED:
    case QUOTH_FIELD_FLAG:
        memcpy(&number, at, sizeof number);
        if (field->type == QUOTH_FIELD_UNSIGNED)
            quoth_pack_unsigned(packer, number);
        else if (field->type == QUOTH_FIELD_SIGNED)
            quoth_pack_signed(packer, (int64_t)number);
        else
            quoth_pack_flag(packer, number != 0);
        return;
    case QUOTH_FIELD_FLOAT:
        memcpy(&real, at, sizeof real);
        quoth_pack_float(packer, real);
        return;
    }
    memcpy(&span, at, sizeof span);
    if (field->type == QUOTH_FIELD_TEXT)
        quoth_pack_text(packer, span);
    else if (span.size)
        quoth_pack_raw(packer, span);
    else
        quoth_pack_raw(packer, (quoth_span){field->type == QUOTH_FIELD_MAP ? &EMPTY_MAP : &EMPTY_LIST, 1});
}

static int is_left_out(const quoth_field *field, const void *at) {
    quoth_span span;
    if (field->presence != QUOTH_FIELD_LATER) return 0;
    if (field->type != QUOTH_FIELD_TEXT) return memcmp(at, &field->standard, sizeof field->standard) == 0;
    memcpy(&span, at, sizeof span);
    return span.size == 0;
}

size_t quoth_message_encode(const quoth_shape *shape, const void *message, void *to, size_t room) {
    quoth_packer packer = {to, (uint8_t *)to + room, 0};
    uint32_t pairs = shape->count;
    for (unsigned row = 0; row < shape->count; row++)
        pairs -= (uint32_t)is_left_out(&shape->fields[row], (const char *)message + shape->fields[row].offset);
    quoth_pack_map(&packer, pairs);
    for (unsigned row = 0; row < shape->count; row++) {
        const quoth_field *field = &shape->fields[row];
        const char *at = (const char *)message + field->offset;
        if (is_left_out(field, at)) continue;
        quoth_pack_text(&packer, (quoth_span){(const uint8_t *)field->name, field->name_bytes});
        pack_field(&packer, field, at);
    }
    return packer.is_full ? 0 : (size_t)(packer.at - (uint8_t *)to);
}

/* ---- decoding ---- */

static int is_integer(const quoth_value *value) {
    return value->kind == QUOTH_UNSIGNED || value->kind == QUOTH_NEGATIVE;
}

int quoth_row_next(quoth_span *rows, unsigned count, uint64_t *numbers) {
    quoth_value value;
    if (!quoth_unpack(rows, &value) || value.kind != QUOTH_LIST || value.number != count) return 0;
    for (unsigned i = 0; i < count; i++) {
        if (!quoth_unpack(rows, &value) || value.kind != QUOTH_UNSIGNED) return 0;
        numbers[i] = value.number;
    }
    return 1;
}

/* Moves behind a map with text keys. */
static int skip_map_of_text(quoth_span *from, unsigned levels, uint32_t elements_max) {
    quoth_value value;
    quoth_span ignored;
    if (!quoth_unpack(from, &value) || value.kind != QUOTH_MAP) return 0;
    for (uint64_t left = value.number; left; left--) {
        quoth_value key;
        if (!quoth_unpack(from, &key) || key.kind != QUOTH_TEXT || !quoth_skip(from, levels, elements_max, &ignored))
            return 0;
    }
    return 1;
}

static int skip_item(unsigned type, quoth_span *items, unsigned levels, uint32_t elements_max) {
    quoth_value value;
    uint64_t numbers[QUOTH_ROW_NUMBERS_MAX];
    switch (type) {
    case QUOTH_FIELD_PAIRS: return quoth_row_next(items, 2, numbers);
    case QUOTH_FIELD_BOUNDS: return quoth_row_next(items, 4, numbers);
    case QUOTH_FIELD_RANGES: return quoth_row_next(items, 5, numbers);
    case QUOTH_FIELD_MAPS: return skip_map_of_text(items, levels, elements_max);
    }
    return quoth_unpack(items, &value) && (type == QUOTH_FIELD_TEXTS ? value.kind == QUOTH_TEXT : is_integer(&value));
}

static int items_fit(unsigned type, quoth_span items, unsigned levels, uint32_t elements_max) {
    quoth_value value;
    if (!quoth_unpack(&items, &value) || value.kind != QUOTH_LIST) return 0;
    for (uint64_t left = value.number; left; left--)
        if (!skip_item(type, &items, levels, elements_max)) return 0;
    return 1;
}

static int unpack_integer(const quoth_field *field, const quoth_value *value, void *at) {
    if (value->kind == QUOTH_NEGATIVE) {
        if (field->type != QUOTH_FIELD_SIGNED || (int64_t)value->number < field->low) return 0;
    } else if (value->kind != QUOTH_UNSIGNED || value->number > field->high
               || (field->low > 0 && value->number < (uint64_t)field->low)) {
        return 0;
    }
    memcpy(at, &value->number, sizeof value->number);
    return 1;
}

/* Reads a value of a field and moves behind it; 0 if the field does not take it. */
static int unpack_field(const quoth_shape *shape, const quoth_field *field, quoth_span *from, void *at) {
    quoth_value value;
    quoth_span whole;
    unsigned levels = (shape->is_request ? REQUEST_LEVELS : REPLY_LEVELS) - 1;
    uint32_t elements = shape->is_request ? REQUEST_ELEMENTS_MAX : REPLY_ELEMENTS_MAX;
    if (field->type >= QUOTH_FIELD_TEXTS) {
        if (!quoth_skip(from, levels, elements, &whole)) return 0;
        memcpy(at, &whole, sizeof whole);
        return field->type == QUOTH_FIELD_MAP ? skip_map_of_text(&whole, levels - 1, elements)
                                              : items_fit(field->type, whole, levels - 2, elements);
    }
    if (!quoth_unpack(from, &value)) return 0;
    switch (field->type) {
    case QUOTH_FIELD_TEXT: memcpy(at, &value.bytes, sizeof value.bytes); return value.kind == QUOTH_TEXT;
    case QUOTH_FIELD_FLAG: memcpy(at, &value.number, sizeof value.number); return value.kind == QUOTH_FLAG;
    case QUOTH_FIELD_FLOAT:
        if (value.kind == QUOTH_NEGATIVE) value.real = (double)(int64_t)value.number;
        if (value.kind == QUOTH_UNSIGNED) value.real = (double)value.number;
        memcpy(at, &value.real, sizeof value.real);
        return is_integer(&value) || value.kind == QUOTH_FLOAT;
    }
    return unpack_integer(field, &value, at);
}

/* Finds the field of a name; `expected` comes first, since messages have the order of their shape. */
static int field_of(const quoth_shape *shape, quoth_span name, int expected) {
    for (int i = 0; i < shape->count; i++) {
        int row = (expected + i) % shape->count;
        const quoth_field *field = &shape->fields[row];
        if (field->name_bytes == name.size && memcmp(field->name, name.bytes, name.size) == 0) return row;
    }
    return -1;
}

quoth_decoding quoth_message_decode(const quoth_shape *shape, quoth_span arguments, void *message) {
    quoth_decoding decoding = QUOTH_DECODED;
    quoth_value head, name;
    quoth_span ignored;
    unsigned found = 0; /* a bit a field */
    int row = -1;
    if (arguments.size > (shape->is_request ? QUOTH_REQUEST_BYTES_MAX : QUOTH_REPLY_BYTES_MAX)
        || !quoth_unpack(&arguments, &head) || head.kind != QUOTH_MAP
        || head.number > (shape->is_request ? REQUEST_ELEMENTS_MAX : REPLY_ELEMENTS_MAX))
        return QUOTH_NOT_PLAIN;
    quoth_message_clear(shape, message);
    for (uint64_t left = head.number; left; left--) {
        if (!quoth_unpack(&arguments, &name) || name.kind != QUOTH_TEXT) return QUOTH_NOT_PLAIN;
        int at = field_of(shape, name.bytes, row + 1);
        if (at < 0) {
            if (!quoth_skip(&arguments, REPLY_LEVELS - 1, REPLY_ELEMENTS_MAX, &ignored)) return QUOTH_NOT_PLAIN;
            decoding = QUOTH_DECODED_LATER;
            continue;
        }
        row = at;
        const quoth_field *field = &shape->fields[row];
        if (found & 1u << row || !unpack_field(shape, field, &arguments, (char *)message + field->offset))
            return QUOTH_NOT_PLAIN;
        found |= 1u << row;
    }
    for (row = 0; row < shape->count; row++)
        if (!(found & 1u << row) && shape->fields[row].presence == QUOTH_FIELD_REQUIRED) return QUOTH_NOT_PLAIN;
    return arguments.size ? QUOTH_NOT_PLAIN : decoding;
}

/* ---- settlements ---- */

void quoth_settlement_write(void *to, const quoth_settlement *row) {
    uint8_t *at = to;
    memset(at, 0, FIRST_AT);
    at[KIND_AT] = row->kind;
    quoth_write_le64(at + FIRST_AT, row->first);
    quoth_write_le64(at + LAST_AT, row->last);
    quoth_write_le64(at + TOKEN_AT, row->token);
    quoth_write_le64(at + MILLISECONDS_AT, row->milliseconds);
}

int quoth_settlement_read(const void *from, quoth_settlement *row) {
    static const uint8_t ZEROS[FIRST_AT - 1];
    const uint8_t *at = from;
    row->kind = at[KIND_AT];
    row->first = quoth_read_le64(at + FIRST_AT);
    row->last = quoth_read_le64(at + LAST_AT);
    row->token = quoth_read_le64(at + TOKEN_AT);
    row->milliseconds = quoth_read_le64(at + MILLISECONDS_AT);
    return memcmp(at + 1, ZEROS, sizeof ZEROS) == 0;
}

quoth_settlement_problem quoth_settlement_check(const quoth_settlement *row) {
    if (row->kind < QUOTH_SETTLE_ACK || row->kind > QUOTH_SETTLE_RELEASE) return QUOTH_SETTLEMENT_BAD;
    if (row->last > QUOTH_BATCH_POINTER_MAX) return QUOTH_SETTLEMENT_POINTER;
    if (!row->first || row->first > row->last) return QUOTH_SETTLEMENT_BAD;
    if (row->milliseconds > QUOTH_SETTLE_MS_MAX) return QUOTH_SETTLEMENT_LARGE;
    return row->kind != QUOTH_SETTLE_ACK && !row->token ? QUOTH_SETTLEMENT_BAD : QUOTH_SETTLEMENT_OK;
}
