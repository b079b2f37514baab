/* The bytes of a batch: the unit that is published, stored, sent and checked.
 *
 *     header, 64 bytes                                        body, body_bytes
 *     0   magic "QUOB"            4                           value offsets    int32[records + 1]
 *     4   version (1)             1                           key offsets      int32[records + 1]   if KEYS
 *     5   kind: 1                 1                           header offsets   int32[records + 1]   if HEADERS
 *     6   flags                   2                           key validity     bitmap, 8-byte steps if KEYS
 *     8   body_bytes              4                           values           heap
 *     12  records                 4                           keys             heap                 if KEYS
 *     16  base pointer            8   stamped by the log      headers          heap                 if HEADERS
 *     24  base ordinal            8   stamped by the log      zeros up to a multiple of 8
 *     32  producer id             8   0: not idempotent
 *     40  sequence                8   0: not idempotent
 *     48  body checksum           8   xxh3-64 of the body, seeded with records, flags and kind
 *     56  header checksum         8   xxh3-64 of bytes 0..55, seeded with the log's id; 0 before stamping
 *
 * All integers are little-endian. Record i has the pointer base + i and the ordinal base ordinal + i. Offsets
 * begin at 0, never fall and end at the length of their heap.
 *
 * These functions do no I/O, allocate nothing, keep no state and may be called from any thread. They trust no
 * byte of a batch: each result lies within the buffer that the caller gave, whatever its headers claim.
 */

#ifndef QUOTH_BATCH_H
#define QUOTH_BATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUOTH_BATCH_HEADER 64u              /* bytes of a header */
#define QUOTH_BATCH_BYTES_MAX (16u << 20)   /* header and body */
#define QUOTH_BATCH_RECORDS_MAX 100000u
#define QUOTH_BATCH_POINTER_MAX ((1ull << 56) - 1)
#define QUOTH_BATCH_HEADERS_MAX 65535u      /* bytes of one record's headers */

enum { /* flags; all other bits are 0 */
    QUOTH_BATCH_KEYS = 1,
    QUOTH_BATCH_HEADERS = 2,
    QUOTH_BATCH_SPARSE = 4,
    QUOTH_BATCH_START = 8,
    QUOTH_BATCH_ORDINAL = 16,
    QUOTH_BATCH_TRANSACTION = 32,
    QUOTH_BATCH_END = 64
};

enum { QUOTH_VALUES, QUOTH_KEYS, QUOTH_HEADERS, QUOTH_COLUMNS }; /* the columns of a batch, in their order */

/* What is wrong with a batch. All are `bad_batch`, but for the two that are `too_large`. */
typedef enum quoth_batch_problem {
    QUOTH_BATCH_OK = 0,
    QUOTH_BATCH_SHORT,          /* fewer bytes than a header, or than the header says; or more */
    QUOTH_BATCH_MAGIC,          /* no batch */
    QUOTH_BATCH_VERSION,        /* another version of the format */
    QUOTH_BATCH_HEADER_CHECK,   /* the header's checksum does not match */
    QUOTH_BATCH_KIND,           /* an unknown kind, or flags that do not go together */
    QUOTH_BATCH_NO_TRANSACTION, /* TRANSACTION without a producer id or a sequence */
    QUOTH_BATCH_RECORDS,        /* too_large: more than QUOTH_BATCH_RECORDS_MAX records */
    QUOTH_BATCH_BYTES,          /* too_large: more than QUOTH_BATCH_BYTES_MAX bytes */
    QUOTH_BATCH_RANGE,          /* no records, or pointers above QUOTH_BATCH_POINTER_MAX */
    QUOTH_BATCH_UNPADDED,       /* a body that is no multiple of 8 bytes */
    QUOTH_BATCH_BODY_CHECK,     /* the body's checksum does not match */
    QUOTH_BATCH_OFFSETS,        /* offsets that do not rise from 0 */
    QUOTH_BATCH_SUM,            /* columns that do not add up to the body */
    QUOTH_BATCH_PADDING,        /* padding that is not zeros */
    QUOTH_BATCH_NUMBERING,      /* new: flags of a producer's numbering that do not go together */
    QUOTH_BATCH_PLACED,         /* new: a pointer or an ordinal, which the log gives */
    QUOTH_BATCH_IDENTITY,       /* new: a producer id without a sequence, or the other way round */
    QUOTH_BATCH_STAGED,         /* new: a batch of a transaction, which is staged and not published */
    QUOTH_BATCH_VALIDITY,       /* new: a validity bit behind the last record */
    QUOTH_BATCH_ABSENT_KEY,     /* new: bytes of a key that is absent */
    QUOTH_BATCH_BAD_HEADERS     /* new: a record's headers are no map of text to binary */
} quoth_batch_problem;

/* The text of a problem, static, in English without a full stop. */
const char *quoth_batch_text(quoth_batch_problem problem);

/* A header, without its magic and checksum. */
typedef struct quoth_batch_header {
    uint8_t kind;
    uint16_t flags;
    uint32_t body_bytes, records;
    uint64_t base, ordinal, producer, sequence, body_check;
} quoth_batch_header;

/* Bytes that lie in a batch, or in other memory of the caller. */
typedef struct quoth_span {
    const uint8_t *bytes;
    size_t size;
} quoth_span;

/* A column of a batch that was parsed. `offsets` has little-endian integers and any alignment. */
typedef struct quoth_batch_column {
    const uint8_t *offsets; /* int32[records + 1]; NULL: the batch has no such column */
    quoth_span heap;
} quoth_batch_column;

/* A batch that was parsed. It points into the caller's buffer and owns nothing. */
typedef struct quoth_batch {
    quoth_batch_header header;
    quoth_batch_column columns[QUOTH_COLUMNS];
    const uint8_t *validity; /* a bit a record, 1 where it has a key; NULL without keys */
} quoth_batch;

/* ---- reading ---- */

/* Reads and checks the header in front of these bytes, not the body. log: the id of the log that stored the
 * batch, 0 for one that no log has stored. */
quoth_batch_problem quoth_batch_read_header(const void *bytes, size_t size, uint64_t log, quoth_batch_header *header);

/* 1 if these 64 bytes have the checksum of this log; the rest of the header is not checked. */
int quoth_batch_is_stamped(const void *header, uint64_t log);

/* 1 if a body of `header->body_bytes` bytes matches the header's checksum; its offsets are not checked. */
int quoth_batch_is_body(const quoth_batch_header *header, const void *body);

/* Checks one whole batch of exactly these bytes: header, checksums and every offset. About 1 ns a record. */
quoth_batch_problem quoth_batch_parse(const void *bytes, size_t size, uint64_t log, quoth_batch *batch);

/* Finds the columns of a batch with this header, and checks all but the checksums. */
quoth_batch_problem quoth_batch_columns(const void *bytes, size_t size, const quoth_batch_header *header,
                                        quoth_batch *batch);

/* The value, key or headers of a record below `header.records`. An absent column is an empty span, with
 * NULL bytes; so is an absent key. */
quoth_span quoth_batch_record(const quoth_batch *batch, int column, uint32_t record);

/* How far batches follow each other: see quoth_batch_walk. */
typedef struct quoth_batch_place {
    size_t end;                /* bytes up to here */
    uint64_t pointer, ordinal; /* of the last record, and of the one that follows */
    uint32_t batches;          /* how many lie in front of it */
} quoth_batch_place;

/* Finds how far stored batches follow a pointer and an ordinal without a gap, by their headers alone.
 *
 * Begins at `place->end`, with its pointer and ordinal, and moves it. Ends before a header that does not match
 * its checksum, before a batch that is cut, before one with a record above `pointer_max`, and before one whose
 * next ordinal would be above `ordinal_max`. An `ordinal_max` of UINT64_MAX is no limit. About 20 ns a batch. */
void quoth_batch_walk(const void *bytes, size_t size, uint64_t log, uint64_t pointer_max, uint64_t ordinal_max,
                      quoth_batch_place *place);

/* ---- checks of a new batch, beyond its layout ---- */

/* Checks what a broker requires of a batch that is published or staged: numbering, keys and headers. record:
 * which one is wrong, where it is one; may be NULL. */
quoth_batch_problem quoth_batch_check_new(const quoth_batch *batch, uint32_t *record);

/* Checks that a published batch has no place in a log yet, a whole identity or none, and no transaction. */
quoth_batch_problem quoth_batch_check_published(const quoth_batch_header *header);

/* 1 if these bytes are one msgpack map of text (UTF-8) to binary, of at most QUOTH_BATCH_HEADERS_MAX bytes, or
 * no bytes. */
int quoth_headers_are_valid(const void *bytes, size_t size);

/* Steps through a record's headers. `headers` shrinks by each pair. Returns 1 with a pair, 0 at the end, and
 * -1 if the headers are no such map. Begin with `pairs` = UINT32_MAX. A name that occurs twice has its last
 * value. */
int quoth_headers_next(quoth_span *headers, uint32_t *pairs, quoth_span *name, quoth_span *value);

/* ---- writing ---- */

/* The places of a batch's sections, in bytes from the beginning of the batch. */
typedef struct quoth_batch_layout {
    size_t offsets[QUOTH_COLUMNS], heaps[QUOTH_COLUMNS];
    size_t validity;
    size_t used; /* bytes without padding */
    size_t size; /* bytes of the whole batch */
} quoth_batch_layout;

/* Finds the places for records whose columns have heaps of these bytes. flags: KEYS and HEADERS for columns
 * that there are. Problems: QUOTH_BATCH_RANGE for no records, QUOTH_BATCH_RECORDS, QUOTH_BATCH_BYTES. */
quoth_batch_problem quoth_batch_plan(uint32_t records, unsigned flags, const size_t heaps[QUOTH_COLUMNS],
                                     quoth_batch_layout *layout);

/* Completes a batch whose sections the caller has filled in: writes zeros behind them, both checksums and the
 * header. bytes: `layout->size` of them. */
void quoth_batch_seal(void *bytes, const quoth_batch_layout *layout, uint32_t records, unsigned flags,
                      uint64_t producer, uint64_t sequence);

/* Writes the 64 bytes of a header as the log of this id stores it; 0 for a batch that is not stored yet. */
void quoth_batch_stamp(const quoth_batch_header *header, uint64_t log, void *bytes);

/* Bytes of headers in msgpack: `quoth_headers_size` adds up one map with these pairs, `quoth_headers_write`
 * writes it and returns the place behind it. A map of no pairs has no bytes. */
size_t quoth_headers_size(const quoth_span *names, const quoth_span *values, uint32_t pairs);
uint8_t *quoth_headers_write(uint8_t *to, const quoth_span *names, const quoth_span *values, uint32_t pairs);

/* 1 if the bytes are UTF-8: the shortest form of each character, no surrogates, nothing above U+10FFFF. */
int quoth_is_utf8(quoth_span text);

/* xxh3-64 of bytes with a seed. */
uint64_t quoth_xxh3(const void *bytes, size_t size, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
