/* The types of msgpack that messages have: maps, lists, text, binary, integers, floats, flags, nil.
 *
 * No I/O, no allocation, no state. A writer stays within the room that the caller gave; a reader stays within
 * the bytes, whatever they claim. */

#ifndef QUOTH_MSGPACK_H
#define QUOTH_MSGPACK_H

#include "batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- writing ---- */

/* A place to write at. It writes the shortest form of everything, and nothing once the room was too small. */
typedef struct quoth_packer {
    uint8_t *at, *end;
    int is_full; /* 1 if something did not fit: what was written is not whole */
} quoth_packer;

void quoth_pack_map(quoth_packer *packer, uint32_t pairs);
void quoth_pack_list(quoth_packer *packer, uint32_t items);
void quoth_pack_text(quoth_packer *packer, quoth_span text);
void quoth_pack_binary(quoth_packer *packer, quoth_span binary);
void quoth_pack_unsigned(quoth_packer *packer, uint64_t number);
void quoth_pack_signed(quoth_packer *packer, int64_t number);
void quoth_pack_flag(quoth_packer *packer, int flag);
void quoth_pack_float(quoth_packer *packer, double number);
/* Bytes that are msgpack already. */
void quoth_pack_raw(quoth_packer *packer, quoth_span bytes);

/* ---- reading ---- */

typedef enum quoth_kind {
    QUOTH_NIL,
    QUOTH_FLAG,
    QUOTH_UNSIGNED, /* an integer from 0 on, in any form */
    QUOTH_NEGATIVE, /* an integer below 0: `number` holds it in two's complement */
    QUOTH_FLOAT,
    QUOTH_TEXT,
    QUOTH_BINARY,
    QUOTH_LIST, /* `number` items follow */
    QUOTH_MAP   /* `number` pairs follow */
} quoth_kind;

typedef struct quoth_value {
    quoth_kind kind;
    uint64_t number; /* also of a flag */
    double real;
    quoth_span bytes; /* of text and binary */
} quoth_value;

/* Reads one value, of a list or a map only the head, and moves behind it. Returns 0 for bytes that are cut,
 * extensions, a byte that msgpack does not use, and text that is not UTF-8. */
int quoth_unpack(quoth_span *from, quoth_value *value);

/* Moves behind one value with all that is in it. levels: how deep it may be, 1 for a plain value. Returns 0 as
 * quoth_unpack does, and for a list or a map of more than `elements_max`, or one whose key is neither text nor
 * binary. `whole` receives its bytes. */
int quoth_skip(quoth_span *from, unsigned levels, uint32_t elements_max, quoth_span *whole);

/* Takes the next pair off a map whose head was read. value: all its bytes. Returns 0 at the end, and for a name that is
 * no text. */
int quoth_pair_next(quoth_span *pairs, quoth_span *name, quoth_span *value);

#ifdef __cplusplus
}
#endif

#endif
