/* Fuzzes codec.c and msgpack.c: what is decoded can be encoded, and decoded again it is the same.
 *
 *     kind (0 request, 1 reply)   1
 *     header                      16
 *     bytes of the topic          1
 *     frames                      1
 *     arguments                   the rest */

#include "codec.h"

#include "fuzz.h"

enum { KIND_AT = 0, HEADER_AT = 1, TOPIC_AT = 17, FRAMES_AT = 18, ARGUMENTS_AT = 19 };
enum { LEVELS = 8, ELEMENTS_MAX = 1000, NAMES_ROOM = 1024 /* of fields that an input leaves out */ };

/* ---- msgpack ---- */

static int has_bytes(const quoth_value *value) { return value->kind == QUOTH_TEXT || value->kind == QUOTH_BINARY; }

/* 1 if two values of one kind are the same; only that member is set which the kind has. */
static int is_same(const quoth_value *one, const quoth_value *other) {
    if (has_bytes(one))
        return one->bytes.size == other->bytes.size
               && (!one->bytes.size || memcmp(one->bytes.bytes, other->bytes.bytes, one->bytes.size) == 0);
    if (one->kind == QUOTH_FLOAT) return memcmp(&one->real, &other->real, sizeof one->real) == 0;
    return one->number == other->number;
}

/* Writes a plain value again: that is the shortest form of the same. */
static void write_value(const quoth_value *value) {
    size_t room = (has_bytes(value) ? value->bytes.size : 0) + 16;
    uint8_t *written = take_memory(room);
    quoth_packer packer = {written, written + room, 0};
    quoth_value again;
    switch (value->kind) {
    case QUOTH_FLAG: quoth_pack_flag(&packer, (int)value->number); break;
    case QUOTH_UNSIGNED: quoth_pack_unsigned(&packer, value->number); break;
    case QUOTH_NEGATIVE: quoth_pack_signed(&packer, (int64_t)value->number); break;
    case QUOTH_FLOAT: quoth_pack_float(&packer, value->real); break;
    case QUOTH_TEXT: quoth_pack_text(&packer, value->bytes); break;
    case QUOTH_BINARY: quoth_pack_binary(&packer, value->bytes); break;
    case QUOTH_LIST: quoth_pack_list(&packer, (uint32_t)value->number); break;
    case QUOTH_MAP: quoth_pack_map(&packer, (uint32_t)value->number); break;
    case QUOTH_NIL: free(written); return;
    }
    quoth_span span = {written, (size_t)(packer.at - written)};
    PROMISE(!packer.is_full && quoth_unpack(&span, &again) && !span.size);
    PROMISE(again.kind == value->kind && is_same(&again, value));
    free(written);
}

static void read_values(quoth_span left) {
    const uint8_t *end = left.bytes + left.size;
    quoth_span rest = left, whole = {NULL, 0};
    quoth_value value;
    while (quoth_unpack(&left, &value)) {
        PROMISE(left.bytes + left.size == end);
        PROMISE(!has_bytes(&value) || value.bytes.bytes + value.bytes.size == left.bytes);
        write_value(&value);
    }
    while (rest.size && quoth_skip(&rest, LEVELS, ELEMENTS_MAX, &whole)) {
        PROMISE(rest.bytes + rest.size == end && whole.size && whole.bytes + whole.size == rest.bytes);
    }
}

/* ---- messages ---- */

static size_t encode(const quoth_shape *shape, const quoth_any_message *message, size_t input, uint8_t **encoded) {
    size_t room = 2 * input + NAMES_ROOM;
    *encoded = take_memory(room);
    size_t size = quoth_message_encode(shape, message, *encoded, room);
    PROMISE(size);
    uint8_t *exact = take_memory(size);
    PROMISE(quoth_message_encode(shape, message, exact, size) == size && memcmp(exact, *encoded, size) == 0);
    PROMISE(!quoth_message_encode(shape, message, exact, size - 1));
    free(exact);
    return size;
}

static void read_rows(quoth_span rows, unsigned count) {
    uint64_t numbers[QUOTH_ROW_NUMBERS_MAX];
    quoth_value head;
    if (!quoth_unpack(&rows, &head)) return;
    const uint8_t *end = rows.bytes + rows.size;
    for (uint64_t i = 0; i < head.number; i++) PROMISE(quoth_row_next(&rows, count, numbers));
    PROMISE(rows.bytes == end);
}

/* What a row says is written again with the same bytes. */
static void read_settlements(quoth_span rows) {
    uint8_t written[QUOTH_SETTLEMENT_BYTES];
    quoth_settlement row;
    for (; rows.size >= sizeof written; rows.bytes += sizeof written, rows.size -= sizeof written) {
        int is_row = quoth_settlement_read(rows.bytes, &row);
        quoth_settlement_write(written, &row);
        PROMISE(is_row == (memcmp(written, rows.bytes, sizeof written) == 0));
        if (!quoth_settlement_check(&row)) PROMISE(row.first && row.first <= row.last);
    }
}

static void judge(const quoth_shape *shape, quoth_span arguments) {
    quoth_any_message message, again;
    uint8_t *first, *second;
    if (quoth_message_decode(shape, arguments, &message) == QUOTH_NOT_PLAIN) return;
    size_t size = encode(shape, &message, arguments.size, &first);
    quoth_decoding decoding = quoth_message_decode(shape, (quoth_span){first, size}, &again);
    PROMISE(decoding == QUOTH_DECODED);
    PROMISE(encode(shape, &again, arguments.size, &second) == size && memcmp(first, second, size) == 0);
    if (shape == quoth_reply_shape(QUOTH_OP_SPLIT)) read_rows(message.parts.bounds, 4);
    if (shape == quoth_reply_shape(QUOTH_OP_GROUP_FETCH)) read_rows(message.group_fetched.leases, 4);
    if (shape == quoth_reply_shape(QUOTH_OP_GROUP_SETTLE)) read_rows(message.group_settled.lost, 2);
    if (shape == quoth_reply_shape(QUOTH_OP_LIST_PENDING)) read_rows(message.pending.ranges, 5);
    free(first);
    free(second);
}

/* Of every operation: most inputs have a header that names none. */
static void judge_all(quoth_span arguments, int is_request) {
    for (unsigned operation = 1; operation < QUOTH_OPERATIONS; operation++)
        judge(is_request ? quoth_request_shape(operation) : quoth_reply_shape(operation), arguments);
    if (!is_request) judge(&quoth_error_shape, arguments);
}

static void read_header(const uint8_t *bytes, size_t size, int is_request, unsigned topic_bytes, unsigned frames) {
    quoth_frame_header header;
    uint8_t written[QUOTH_HEADER_BYTES];
    if (quoth_header_read(bytes, size, is_request, &header)) return;
    PROMISE(header.operation && header.operation < QUOTH_OPERATIONS);
    quoth_header_write(written, header.operation, header.status, header.correlation);
    PROMISE(memcmp(written, bytes, sizeof written) == 0);
    if (is_request) quoth_call_fits(header.operation, frames, topic_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < ARGUMENTS_AT) return 0;
    int is_request = !(bytes[KIND_AT] & 1);
    uint8_t *header = copy_of(bytes + HEADER_AT, QUOTH_HEADER_BYTES);
    uint8_t *arguments = copy_of(bytes + ARGUMENTS_AT, size - ARGUMENTS_AT);
    quoth_span span = {arguments, size - ARGUMENTS_AT};
    read_header(header, QUOTH_HEADER_BYTES, is_request, bytes[TOPIC_AT], bytes[FRAMES_AT]);
    read_header(header, bytes[FRAMES_AT] % QUOTH_HEADER_BYTES, is_request, bytes[TOPIC_AT], bytes[FRAMES_AT]);
    judge_all(span, is_request);
    read_values(span);
    read_settlements(span);
    free(header);
    free(arguments);
    return 0;
}
