/* Reads and writes little-endian and big-endian integers at any address, on machines of either order. */

#ifndef QUOTH_BYTES_H
#define QUOTH_BYTES_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define QUOTH_LE16(value) __builtin_bswap16(value)
#define QUOTH_LE32(value) __builtin_bswap32(value)
#define QUOTH_LE64(value) __builtin_bswap64(value)
#else
#define QUOTH_LE16(value) (value)
#define QUOTH_LE32(value) (value)
#define QUOTH_LE64(value) (value)
#endif

static inline uint16_t quoth_read_le16(const void *from) {
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return QUOTH_LE16(value);
}

static inline uint32_t quoth_read_le32(const void *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return QUOTH_LE32(value);
}

static inline uint64_t quoth_read_le64(const void *from) {
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return QUOTH_LE64(value);
}

static inline void quoth_write_le16(void *to, uint16_t value) {
    value = QUOTH_LE16(value);
    memcpy(to, &value, sizeof value);
}

static inline void quoth_write_le32(void *to, uint32_t value) {
    value = QUOTH_LE32(value);
    memcpy(to, &value, sizeof value);
}

static inline void quoth_write_le64(void *to, uint64_t value) {
    value = QUOTH_LE64(value);
    memcpy(to, &value, sizeof value);
}

/* The `size` bytes, 1 to 8 of them, as a big-endian integer. */
static inline uint64_t quoth_read_be(const void *from, unsigned size) {
    const uint8_t *at = from;
    uint64_t value = 0;
    while (size--) value = value << 8 | *at++;
    return value;
}

static inline void quoth_write_be(void *to, uint64_t value, unsigned size) {
    uint8_t *at = to;
    while (size--) {
        at[size] = (uint8_t)value;
        value >>= 8;
    }
}

#endif
