/* Records that follow from a number: tests in C and in Python make them and check them by the same rules. */

#ifndef RECORDS_BY_NUMBER_H
#define RECORDS_BY_NUMBER_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "quoth.h"

enum { LARGE_BYTES = 65000 };

typedef struct numbered {
    char value[LARGE_BYTES + 32], key[32], first[32];
    quoth_header headers[2];
    quoth_record record;
} numbered;

/* The value has the number and up to 199 letters, or LARGE_BYTES; one of eleven is empty. Two of three records have a
 * key, some of them an empty one; every fifth has two headers. */
static inline const quoth_record *make_numbered(numbered *one, uint64_t i) {
    int size = snprintf(one->value, sizeof one->value, "value %" PRIu64 " ", i);
    size_t letters = i % 997 == 500 ? LARGE_BYTES : (size_t)(i * 7 % 200);
    memset(one->value + size, 'x', letters);
    memset(&one->record, 0, sizeof one->record);
    one->record.value = (quoth_bytes){one->value, i % 11 == 7 ? 0 : (size_t)size + letters};
    if (i % 3) one->record.key = (quoth_bytes){one->key, (size_t)snprintf(one->key, 32, "key %" PRIu64, i % 10)};
    if (i % 13 == 6) one->record.key.size = 0;
    if (i % 5 == 0) {
        one->headers[0] = (quoth_header){{"number", 6}, {one->first, (size_t)snprintf(one->first, 32, "%" PRIu64, i)}};
        one->headers[1] = (quoth_header){{"\xc3\xa9", 2}, {"", 0}};
        one->record.headers = one->headers;
        one->record.headers_count = 2;
    }
    return &one->record;
}

static inline int is_equal(quoth_bytes one, quoth_bytes other) {
    return one.size == other.size && !one.data == !other.data
           && (!one.size || memcmp(one.data, other.data, one.size) == 0);
}

static inline int is_numbered(const quoth_message *message, uint64_t i) {
    numbered one;
    const quoth_record *record = make_numbered(&one, i);
    quoth_bytes headers = message->headers;
    quoth_header header;
    uint32_t left = UINT32_MAX;
    if (!is_equal(message->value, record->value) || !is_equal(message->key, record->key)) return 0;
    for (size_t row = 0; row < record->headers_count; row++)
        if (quoth_next_header(&headers, &left, &header) != 1 || !is_equal(header.name, record->headers[row].name)
            || !is_equal(header.value, record->headers[row].value))
            return 0;
    return quoth_next_header(&headers, &left, &header) == 0;
}

#endif
