/* Implements msgpack.h. */

#include "msgpack.h"

#include "bytes.h"

/* First bytes. Those of a type with a length have 1, 2, 4 bytes of it, or 2 and 4. */
enum { PAIR_LEVELS = 8 };
enum { FIXMAP = 0x80, FIXLIST = 0x90, FIXTEXT = 0xa0, NIL = 0xc0, NO = 0xc2, YES = 0xc3,
       BINARY8 = 0xc4, FLOAT32 = 0xca, FLOAT64 = 0xcb, UNSIGNED8 = 0xcc, SIGNED8 = 0xd0,
       TEXT8 = 0xd9, LIST16 = 0xdc, MAP16 = 0xde, NEGATIVE = 0xe0 };

/* ---- writing ---- */

static uint8_t *room(quoth_packer *packer, size_t size) {
    if (packer->is_full || size > (size_t)(packer->end - packer->at)) {
        packer->is_full = 1;
        return NULL;
    }
    uint8_t *at = packer->at;
    packer->at += size;
    return at;
}

/* size: bytes of the number behind the first byte. */
static void put(quoth_packer *packer, int first, uint64_t number, unsigned size) {
    uint8_t *at = room(packer, 1 + (size_t)size);
    if (!at) return;
    *at = (uint8_t)first;
    quoth_write_be(at + 1, number, size);
}

static void put_count(quoth_packer *packer, int fixed, int first, uint32_t count) {
    if (count < 16)
        put(packer, fixed | (int)count, 0, 0);
    else if (count < 0x10000)
        put(packer, first, count, 2);
    else
        put(packer, first + 1, count, 4);
}

void quoth_pack_map(quoth_packer *packer, uint32_t pairs) { put_count(packer, FIXMAP, MAP16, pairs); }

void quoth_pack_list(quoth_packer *packer, uint32_t items) { put_count(packer, FIXLIST, LIST16, items); }

void quoth_pack_raw(quoth_packer *packer, quoth_span bytes) {
    uint8_t *at = room(packer, bytes.size);
    if (at && bytes.size) memcpy(at, bytes.bytes, bytes.size);
}

/* first: the type with a length of 1 byte. The next two have 2 and 4. */
static void put_length(quoth_packer *packer, int first, size_t length) {
    if (length < 0x100)
        put(packer, first, length, 1);
    else if (length < 0x10000)
        put(packer, first + 1, length, 2);
    else
        put(packer, first + 2, length, 4);
}

void quoth_pack_text(quoth_packer *packer, quoth_span text) {
    if (text.size < 32)
        put(packer, FIXTEXT | (int)text.size, 0, 0);
    else
        put_length(packer, TEXT8, text.size);
    quoth_pack_raw(packer, text);
}

void quoth_pack_binary(quoth_packer *packer, quoth_span binary) {
    put_length(packer, BINARY8, binary.size);
    quoth_pack_raw(packer, binary);
}

void quoth_pack_unsigned(quoth_packer *packer, uint64_t number) {
    if (number < 0x80)
        put(packer, (int)number, 0, 0);
    else if (number < 0x100)
        put(packer, UNSIGNED8, number, 1);
    else if (number < 0x10000)
        put(packer, UNSIGNED8 + 1, number, 2);
    else if (number < 0x100000000)
        put(packer, UNSIGNED8 + 2, number, 4);
    else
        put(packer, UNSIGNED8 + 3, number, 8);
}

void quoth_pack_signed(quoth_packer *packer, int64_t number) {
    if (number >= 0)
        quoth_pack_unsigned(packer, (uint64_t)number);
    else if (number >= -0x20)
        put(packer, (uint8_t)number, 0, 0);
    else if (number >= INT8_MIN)
        put(packer, SIGNED8, (uint64_t)number, 1);
    else if (number >= INT16_MIN)
        put(packer, SIGNED8 + 1, (uint64_t)number, 2);
    else if (number >= INT32_MIN)
        put(packer, SIGNED8 + 2, (uint64_t)number, 4);
    else
        put(packer, SIGNED8 + 3, (uint64_t)number, 8);
}

void quoth_pack_flag(quoth_packer *packer, int flag) { put(packer, flag ? YES : NO, 0, 0); }

void quoth_pack_float(quoth_packer *packer, double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    put(packer, FLOAT64, bits, 8);
}

/* ---- reading ---- */

/* Reads a number of 1, 2, 4 or 8 bytes, and moves behind it. */
static int take_number(quoth_span *from, unsigned size, uint64_t *number) {
    if (from->size < size) return 0;
    *number = quoth_read_be(from->bytes, size);
    from->bytes += size;
    from->size -= size;
    return 1;
}

static int take_bytes(quoth_span *from, quoth_kind kind, quoth_value *value) {
    if (value->number > from->size) return 0;
    value->kind = kind;
    value->bytes = (quoth_span){from->bytes, (size_t)value->number};
    from->bytes += value->number;
    from->size -= (size_t)value->number;
    return kind != QUOTH_TEXT || quoth_is_utf8(value->bytes);
}

static int take_float(quoth_span *from, unsigned size, quoth_value *value) {
    if (!take_number(from, size, &value->number)) return 0;
    value->kind = QUOTH_FLOAT;
    if (size == 8) {
        memcpy(&value->real, &value->number, sizeof value->real);
    } else {
        float narrow;
        uint32_t bits = (uint32_t)value->number;
        memcpy(&narrow, &bits, sizeof narrow);
        value->real = (double)narrow;
    }
    return 1;
}

static int take_signed(quoth_span *from, unsigned size, quoth_value *value) {
    if (!take_number(from, size, &value->number)) return 0;
    uint64_t sign = 1ull << (8 * size - 1);
    value->kind = value->number & sign ? QUOTH_NEGATIVE : QUOTH_UNSIGNED;
    value->number = (value->number ^ sign) - sign;
    return 1;
}

/* Reads what is behind a first byte from NIL to below NEGATIVE. */
static int take_long(quoth_span *from, unsigned first, quoth_value *value) {
    switch (first) {
    case NIL: value->kind = QUOTH_NIL; return 1;
    case NO:
    case YES:
        value->kind = QUOTH_FLAG;
        value->number = first == YES;
        return 1;
    case BINARY8:
    case BINARY8 + 1:
    case BINARY8 + 2:
        return take_number(from, 1u << (first - BINARY8), &value->number) && take_bytes(from, QUOTH_BINARY, value);
    case FLOAT32: return take_float(from, 4, value);
    case FLOAT64: return take_float(from, 8, value);
    case UNSIGNED8:
    case UNSIGNED8 + 1:
    case UNSIGNED8 + 2:
    case UNSIGNED8 + 3:
        value->kind = QUOTH_UNSIGNED;
        return take_number(from, 1u << (first - UNSIGNED8), &value->number);
    case SIGNED8:
    case SIGNED8 + 1:
    case SIGNED8 + 2:
    case SIGNED8 + 3: return take_signed(from, 1u << (first - SIGNED8), value);
    case TEXT8:
    case TEXT8 + 1:
    case TEXT8 + 2:
        return take_number(from, 1u << (first - TEXT8), &value->number) && take_bytes(from, QUOTH_TEXT, value);
    case LIST16:
    case LIST16 + 1:
        value->kind = QUOTH_LIST;
        return take_number(from, first == LIST16 ? 2 : 4, &value->number);
    case MAP16:
    case MAP16 + 1:
        value->kind = QUOTH_MAP;
        return take_number(from, first == MAP16 ? 2 : 4, &value->number);
    }
    return 0; /* an extension, or the byte that msgpack does not use */
}

int quoth_unpack(quoth_span *from, quoth_value *value) {
    if (!from->size) return 0;
    unsigned first = *from->bytes++;
    from->size--;
    if (first < FIXMAP || first >= NEGATIVE) {
        value->kind = first < FIXMAP ? QUOTH_UNSIGNED : QUOTH_NEGATIVE;
        value->number = first < FIXMAP ? first : (uint64_t)(int64_t)(int8_t)first;
        return 1;
    }
    if (first >= NIL) return take_long(from, first, value);
    value->number = first & (first < FIXTEXT ? 0x0f : 0x1f);
    if (first >= FIXTEXT) return take_bytes(from, QUOTH_TEXT, value);
    value->kind = first < FIXLIST ? QUOTH_MAP : QUOTH_LIST;
    return 1;
}

static int skip_value(quoth_span *from, unsigned levels, uint32_t elements_max) {
    quoth_value value, key;
    if (!levels || !quoth_unpack(from, &value)) return 0;
    if (value.kind != QUOTH_LIST && value.kind != QUOTH_MAP) return 1;
    if (value.number > elements_max) return 0;
    for (uint64_t i = 0; i < value.number; i++) {
        if (value.kind == QUOTH_MAP
            && (!quoth_unpack(from, &key) || (key.kind != QUOTH_TEXT && key.kind != QUOTH_BINARY)))
            return 0;
        if (!skip_value(from, levels - 1, elements_max)) return 0;
    }
    return 1;
}

int quoth_skip(quoth_span *from, unsigned levels, uint32_t elements_max, quoth_span *whole) {
    const uint8_t *begin = from->bytes;
    if (!skip_value(from, levels, elements_max)) return 0;
    *whole = (quoth_span){begin, (size_t)(from->bytes - begin)};
    return 1;
}

int quoth_pair_next(quoth_span *pairs, quoth_span *name, quoth_span *value) {
    quoth_value key;
    if (!quoth_unpack(pairs, &key) || key.kind != QUOTH_TEXT) return 0;
    *name = key.bytes;
    return quoth_skip(pairs, PAIR_LEVELS, UINT32_MAX, value);
}
