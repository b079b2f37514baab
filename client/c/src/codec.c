/* Implements codec.h. */

#include "codec.h"

#include "bytes.h"

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
    case QUOTH_OP_PUBLISH_STAGED: most = 4; break;
    case QUOTH_OP_HELLO:
    case QUOTH_OP_PING:
    case QUOTH_OP_LIST:
    case QUOTH_OP_STATUS:
        if (topic_bytes) return 0;
    }
    return frames >= 2 && frames <= most;
}

/* ---- the shapes ---- */

#define POINTER_MAX QUOTH_BATCH_POINTER_MAX
#define ANY_MAX UINT64_MAX
#define SIGNED_MAX ((uint64_t)INT64_MAX)
#define VERSION_MAX (1ull << 62)

/* Rows of a shape. `type` is the name of the struct behind quoth_msg_. */
#define ROW(type, name, kind, presence, low, high, standard) \
    {#name, sizeof #name - 1, QUOTH_FIELD_##kind, QUOTH_FIELD_##presence, (uint16_t)offsetof(quoth_msg_##type, name), \
     low, high, standard}
#define NUMBER(type, name) ROW(type, name, UNSIGNED, REQUIRED, 0, ANY_MAX, 0)
#define POINTER(type, name) ROW(type, name, UNSIGNED, REQUIRED, 0, POINTER_MAX, 0)
#define RANGE(type, name, low, high, standard) ROW(type, name, UNSIGNED, OPTIONAL, low, high, standard)
#define OTHER(type, name, kind, presence) ROW(type, name, kind, presence, 0, 0, 0)

#define SHAPE(shape, type, is_request) \
    {shape##_fields, sizeof shape##_fields / sizeof shape##_fields[0], sizeof(quoth_msg_##type), is_request}

static const quoth_field error_fields[] = {
    OTHER(error, code, TEXT, REQUIRED), OTHER(error, text, TEXT, REQUIRED), OTHER(error, hint, TEXT, REQUIRED)};
static const quoth_field hello_fields[] = {OTHER(hello, client, TEXT, OPTIONAL)};
static const quoth_field welcome_fields[] = {
    OTHER(welcome, server, TEXT, REQUIRED),
    OTHER(welcome, versions, NUMBERS, REQUIRED),
    OTHER(welcome, operations, TEXTS, REQUIRED),
    OTHER(welcome, limits, MAP, REQUIRED),
    OTHER(welcome, announcements, TEXT, REQUIRED),
    ROW(welcome, announcements_port, UNSIGNED, LATER, 0, 65535, 0)};
static const quoth_field pong_fields[] = {POINTER(pong, time)};
static const quoth_field publish_fields[] = {OTHER(publish, durability, TEXT, OPTIONAL)};
static const quoth_field published_fields[] = {
    NUMBER(published, log),
    POINTER(published, first),
    POINTER(published, last),
    NUMBER(published, count),
    OTHER(published, durability, TEXT, REQUIRED),
    OTHER(published, duplicate, FLAG, REQUIRED)};
static const quoth_field fetch_fields[] = {
    RANGE(fetch, after, 0, POINTER_MAX, 0),
    ROW(fetch, ordinal, SIGNED, OPTIONAL, -1, SIGNED_MAX, -1),
    RANGE(fetch, records_max, 1, 1ull << 32, 1ll << 32),
    RANGE(fetch, bytes_max, 1, 1ull << 32, 1 << 20),
    RANGE(fetch, wait_ms, 0, 600000, 0),
    ROW(fetch, until, UNSIGNED, LATER, 0, POINTER_MAX, 0)};
static const quoth_field fetched_fields[] = {
    NUMBER(fetched, log),  POINTER(fetched, next), POINTER(fetched, newest),
    NUMBER(fetched, gone), NUMBER(fetched, end),   RANGE(fetched, damaged, 0, ANY_MAX, 0)};
static const quoth_field list_fields[] = {OTHER(list, after, TEXT, OPTIONAL), RANGE(list, limit, 1, 1000, 1000)};
static const quoth_field topics_fields[] = {OTHER(topics, names, TEXTS, REQUIRED)};
static const quoth_field topic_fields[] = {
    OTHER(topic, name, TEXT, REQUIRED),   NUMBER(topic, log),
    POINTER(topic, first),                POINTER(topic, last),
    NUMBER(topic, count),                 NUMBER(topic, first_ordinal),
    NUMBER(topic, bytes),                 NUMBER(topic, segments),
    OTHER(topic, states, TEXT, REQUIRED), OTHER(topic, settings, MAP, REQUIRED),
    OTHER(topic, problem, TEXT, OPTIONAL), OTHER(topic, counters, MAP, OPTIONAL)};
static const quoth_field settings_fields[] = {OTHER(settings, settings, MAP, OPTIONAL)};
static const quoth_field delete_fields[] = {RANGE(delete, log, 0, ANY_MAX, 0)};
static const quoth_field trim_fields[] = {POINTER(trim, before)};
static const quoth_field trimmed_fields[] = {
    NUMBER(trimmed, records), NUMBER(trimmed, bytes), POINTER(trimmed, first)};
static const quoth_field status_fields[] = {OTHER(list, after, TEXT, OPTIONAL), RANGE(list, limit, 0, 1000, 1000)};
static const quoth_field broker_status_fields[] = {
    OTHER(broker_status, server, TEXT, REQUIRED),
    NUMBER(broker_status, pid),
    OTHER(broker_status, directory, TEXT, REQUIRED),
    OTHER(broker_status, uptime, FLOAT, REQUIRED),
    NUMBER(broker_status, topics),
    NUMBER(broker_status, active),
    NUMBER(broker_status, waits),
    OTHER(broker_status, counters, MAP, REQUIRED),
    OTHER(broker_status, states, MAP, REQUIRED)};
static const quoth_field advance_fields[] = {
    RANGE(advance, after, 0, POINTER_MAX, 0),
    RANGE(advance, records_max, 1, SIGNED_MAX, INT64_MAX),
    RANGE(advance, bytes_max, 1, SIGNED_MAX, INT64_MAX)};
static const quoth_field advanced_fields[] = {
    NUMBER(advanced, log),   POINTER(advanced, after), POINTER(advanced, until),  NUMBER(advanced, records),
    NUMBER(advanced, bytes), NUMBER(advanced, gone),   POINTER(advanced, newest), NUMBER(advanced, end)};
static const quoth_field split_fields[] = {
    RANGE(split, after, 0, POINTER_MAX, 0), RANGE(split, until, 0, POINTER_MAX, (int64_t)POINTER_MAX),
    RANGE(split, parts, 1, 10000, 1)};
static const quoth_field parts_fields[] = {
    NUMBER(parts, log), OTHER(parts, bounds, BOUNDS, REQUIRED), NUMBER(parts, gone), POINTER(parts, newest),
    NUMBER(parts, end)};
static const quoth_field count_fields[] = {
    RANGE(count, after, 0, POINTER_MAX, 0), RANGE(count, until, 0, POINTER_MAX, (int64_t)POINTER_MAX)};
static const quoth_field counted_fields[] = {
    NUMBER(counted, log),    NUMBER(counted, records), NUMBER(counted, bytes),   NUMBER(counted, gone),
    POINTER(counted, first), POINTER(counted, last),   POINTER(counted, newest), NUMBER(counted, end)};
static const quoth_field stage_fields[] = {
    OTHER(stage, application, TEXT, REQUIRED), ROW(stage, version, UNSIGNED, REQUIRED, 0, VERSION_MAX, 0),
    ROW(stage, part, UNSIGNED, REQUIRED, 0, QUOTH_PART_MAX, 0), NUMBER(stage, attempt),
    RANGE(stage, number, 0, QUOTH_TRANSACTION_BATCHES_MAX - 1, 0)};
static const quoth_field staged_fields[] = {
    NUMBER(staged, batches), NUMBER(staged, records), NUMBER(staged, bytes)};
static const quoth_field publish_staged_fields[] = {
    OTHER(publish_staged, application, TEXT, REQUIRED),
    ROW(publish_staged, version, UNSIGNED, REQUIRED, 0, VERSION_MAX, 0),
    ROW(publish_staged, parts, UNSIGNED, REQUIRED, 0, QUOTH_TRANSACTION_BATCHES_MAX, 0),
    ROW(publish_staged, newest, SIGNED, LATER, -2, VERSION_MAX, -2)};
static const quoth_field name_fields[] = {
    OTHER(name, application, TEXT, REQUIRED), ROW(name, version, UNSIGNED, REQUIRED, 0, VERSION_MAX, 0)};
static const quoth_field transaction_fields[] = {
    NUMBER(transaction, log),     OTHER(transaction, state, TEXT, REQUIRED), POINTER(transaction, first),
    POINTER(transaction, last),   NUMBER(transaction, count),                NUMBER(transaction, parts),
    NUMBER(transaction, batches), NUMBER(transaction, records),              NUMBER(transaction, bytes),
    ROW(transaction, newest_version, SIGNED, REQUIRED, -1, VERSION_MAX, 0)};

const quoth_shape quoth_error_shape = SHAPE(error, error, 0);
static const quoth_shape hello = SHAPE(hello, hello, 1), publish = SHAPE(publish, publish, 1),
                         fetch = SHAPE(fetch, fetch, 1), list = SHAPE(list, list, 1),
                         settings = SHAPE(settings, settings, 1), delete_topic = SHAPE(delete, delete, 1),
                         trim = SHAPE(trim, trim, 1), status = SHAPE(status, list, 1),
                         advance = SHAPE(advance, advance, 1), split = SHAPE(split, split, 1),
                         count = SHAPE(count, count, 1), stage = SHAPE(stage, stage, 1),
                         publish_staged = SHAPE(publish_staged, publish_staged, 1),
                         transaction_name = SHAPE(name, name, 1),
                         nothing = {NULL, 0, 0, 1};
static const quoth_shape welcome = SHAPE(welcome, welcome, 0), pong = SHAPE(pong, pong, 0),
                         published = SHAPE(published, published, 0), fetched = SHAPE(fetched, fetched, 0),
                         topics = SHAPE(topics, topics, 0), topic = SHAPE(topic, topic, 0),
                         trimmed = SHAPE(trimmed, trimmed, 0),
                         broker_status = SHAPE(broker_status, broker_status, 0),
                         advanced = SHAPE(advanced, advanced, 0), parts = SHAPE(parts, parts, 0),
                         counted = SHAPE(counted, counted, 0), staged = SHAPE(staged, staged, 0),
                         transaction = SHAPE(transaction, transaction, 0);

static const struct {
    const quoth_shape *request, *reply;
} SHAPES[QUOTH_OPERATIONS] = {
    [QUOTH_OP_HELLO] = {&hello, &welcome},         [QUOTH_OP_PING] = {&nothing, &pong},
    [QUOTH_OP_PUBLISH] = {&publish, &published},   [QUOTH_OP_FETCH] = {&fetch, &fetched},
    [QUOTH_OP_LIST] = {&list, &topics},            [QUOTH_OP_DESCRIBE] = {&nothing, &topic},
    [QUOTH_OP_CREATE] = {&settings, &topic},       [QUOTH_OP_UPDATE] = {&settings, &topic},
    [QUOTH_OP_DELETE] = {&delete_topic, &trimmed}, [QUOTH_OP_TRIM] = {&trim, &trimmed},
    [QUOTH_OP_ROLL] = {&nothing, &topic},          [QUOTH_OP_STATUS] = {&status, &broker_status},
    [QUOTH_OP_ADVANCE] = {&advance, &advanced},    [QUOTH_OP_SPLIT] = {&split, &parts},
    [QUOTH_OP_COUNT] = {&count, &counted},         [QUOTH_OP_STAGE] = {&stage, &staged},
    [QUOTH_OP_PUBLISH_STAGED] = {&publish_staged, &published},
    [QUOTH_OP_ABORT] = {&transaction_name, &transaction},
    [QUOTH_OP_TRANSACTION] = {&transaction_name, &transaction}};

const quoth_shape *quoth_request_shape(unsigned operation) { return SHAPES[operation].request; }

const quoth_shape *quoth_reply_shape(unsigned operation) { return SHAPES[operation].reply; }

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
    return field->presence == QUOTH_FIELD_LATER && memcmp(at, &field->standard, sizeof field->standard) == 0;
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

int quoth_bounds_next(quoth_span *bounds, uint64_t numbers[4]) {
    quoth_value value;
    if (!quoth_unpack(bounds, &value) || value.kind != QUOTH_LIST || value.number != 4) return 0;
    for (int i = 0; i < 4; i++) {
        if (!quoth_unpack(bounds, &value) || value.kind != QUOTH_UNSIGNED) return 0;
        numbers[i] = value.number;
    }
    return 1;
}

static int items_fit(unsigned type, quoth_span items) {
    quoth_value value;
    uint64_t numbers[4];
    if (!quoth_unpack(&items, &value) || value.kind != QUOTH_LIST) return 0;
    for (uint64_t left = value.number; left; left--) {
        if (type == QUOTH_FIELD_BOUNDS) {
            if (!quoth_bounds_next(&items, numbers)) return 0;
        } else if (!quoth_unpack(&items, &value)
                   || !(type == QUOTH_FIELD_TEXTS ? value.kind == QUOTH_TEXT : is_integer(&value))) {
            return 0;
        }
    }
    return 1;
}

static int is_map_of_text(quoth_span map, unsigned levels, uint32_t elements_max) {
    quoth_value value;
    quoth_span ignored;
    if (!quoth_unpack(&map, &value) || value.kind != QUOTH_MAP) return 0;
    for (uint64_t left = value.number; left; left--) {
        quoth_value key;
        if (!quoth_unpack(&map, &key) || key.kind != QUOTH_TEXT || !quoth_skip(&map, levels, elements_max, &ignored))
            return 0;
    }
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
        return field->type == QUOTH_FIELD_MAP ? is_map_of_text(whole, levels - 1, elements)
                                              : items_fit(field->type, whole);
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
