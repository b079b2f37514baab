/* The fast protocol's frames behind the empty one: header, topic, arguments, payload. See client/PROTOCOL.md.
 *
 * A message is a struct here and a msgpack map on the wire. A table of its fields (a shape) says how they are
 * named, ordered, bounded and left out, so that one function encodes all of them and one decodes them. Texts,
 * lists and maps of a decoded message point into the arguments; those of a message to encode stay the caller's.
 *
 * No I/O, no allocation, no state. About 10 ns a field. */

#ifndef QUOTH_CODEC_H
#define QUOTH_CODEC_H

#include "msgpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QUOTH_HEADER_BYTES 16u
#define QUOTH_PROTOCOL_VERSION 1u
#define QUOTH_REQUEST_BYTES_MAX 8192u       /* arguments of a request */
#define QUOTH_REPLY_BYTES_MAX (1u << 20)    /* arguments of a reply */
#define QUOTH_ARGUMENTS_SMALL 256u          /* room for those of a publish, a fetch, and their replies */
#define QUOTH_NAME_BYTES_MAX 200u           /* of a topic, or of an application */
#define QUOTH_PART_BYTES 32u                /* of a part in the payload of publish_staged */
#define QUOTH_TRANSACTION_BATCHES_MAX 16384u
#define QUOTH_PART_MAX 999999u
#define QUOTH_GROUP_BYTES_MAX 100u          /* of a group's name */
#define QUOTH_SETTLEMENT_BYTES 40u          /* of a row in the payload of group_settle */
#define QUOTH_SETTLEMENTS_MAX 4096u
#define QUOTH_SETTLE_MS_MAX 43200000u

enum { /* operations */
    QUOTH_OP_HELLO = 1,
    QUOTH_OP_PING,
    QUOTH_OP_PUBLISH,
    QUOTH_OP_FETCH,
    QUOTH_OP_LIST,
    QUOTH_OP_DESCRIBE,
    QUOTH_OP_CREATE,
    QUOTH_OP_UPDATE,
    QUOTH_OP_DELETE,
    QUOTH_OP_TRIM,
    QUOTH_OP_ROLL,
    QUOTH_OP_STATUS,
    QUOTH_OP_ADVANCE,
    QUOTH_OP_SPLIT,
    QUOTH_OP_COUNT,
    QUOTH_OP_STAGE,
    QUOTH_OP_PUBLISH_STAGED,
    QUOTH_OP_ABORT,
    QUOTH_OP_TRANSACTION,
    QUOTH_OP_OPEN_GROUP,
    QUOTH_OP_GROUP_FETCH,
    QUOTH_OP_GROUP_SETTLE,
    QUOTH_OP_DESCRIBE_GROUP,
    QUOTH_OP_LIST_GROUPS,
    QUOTH_OP_UPDATE_GROUP,
    QUOTH_OP_SEEK_GROUP,
    QUOTH_OP_DELETE_GROUP,
    QUOTH_OP_LIST_PENDING,
    QUOTH_OP_COMMIT_CURSOR,
    QUOTH_OP_METRICS,
    QUOTH_OPERATIONS
};

enum { QUOTH_STATUS_REQUEST, QUOTH_STATUS_OK, QUOTH_STATUS_ERROR };

/* ---- the header ---- */

typedef struct quoth_frame_header {
    uint8_t operation, status;
    uint64_t correlation;
} quoth_frame_header;

typedef enum quoth_header_problem {
    QUOTH_HEADER_OK,
    QUOTH_HEADER_BAD,       /* bad_request: no header of this protocol; the correlation may be valid */
    QUOTH_HEADER_VERSION,   /* unsupported_version: the correlation is valid */
    QUOTH_HEADER_OPERATION  /* unknown_operation: so are status and correlation */
} quoth_header_problem;

/* Writes the 16 bytes of a header. */
void quoth_header_write(void *to, unsigned operation, unsigned status, uint64_t correlation);

/* Reads a header, of a request if `is_request`, else of a reply. */
quoth_header_problem quoth_header_read(const void *bytes, size_t size, int is_request, quoth_frame_header *header);

/* 1 if a request of this operation may have so many frames from the header on, and this topic's length. */
int quoth_call_fits(unsigned operation, size_t frames, size_t topic_bytes);

/* ---- the messages ----
 *
 * One struct a message, with the names and the order of client/PROTOCOL.md. All integers have 64 bits. */

typedef struct quoth_msg_error { quoth_span code, text, hint; } quoth_msg_error;

typedef struct quoth_msg_hello { quoth_span client; } quoth_msg_hello;
typedef struct quoth_msg_welcome {
    quoth_span server, versions, operations, limits, announcements;
    uint64_t announcements_port;
} quoth_msg_welcome;

typedef struct quoth_msg_pong { uint64_t time; } quoth_msg_pong;

typedef struct quoth_msg_publish { quoth_span durability; } quoth_msg_publish;
typedef struct quoth_msg_published {
    uint64_t log, first, last, count;
    quoth_span durability;
    uint64_t duplicate; /* a flag */
} quoth_msg_published;

typedef struct quoth_msg_fetch {
    uint64_t after;
    int64_t ordinal; /* -1: not known */
    uint64_t records_max, bytes_max, wait_ms, until;
    quoth_span durability;
} quoth_msg_fetch;
typedef struct quoth_msg_fetched { uint64_t log, next, newest, gone, end, damaged; } quoth_msg_fetched;

typedef struct quoth_msg_list { /* also of groups, and of status */
    quoth_span after;
    uint64_t limit;
} quoth_msg_list;
typedef struct quoth_msg_topics { quoth_span names; } quoth_msg_topics;

typedef struct quoth_msg_topic {
    quoth_span name;
    uint64_t log, first, last, count, first_ordinal, bytes, segments;
    quoth_span states, settings, problem, counters;
} quoth_msg_topic;

typedef struct quoth_msg_settings { quoth_span settings; } quoth_msg_settings; /* of create and update */
typedef struct quoth_msg_delete { uint64_t log; } quoth_msg_delete;
typedef struct quoth_msg_trim { uint64_t before; } quoth_msg_trim;
typedef struct quoth_msg_trimmed { uint64_t records, bytes, first; } quoth_msg_trimmed;

typedef struct quoth_msg_broker_status {
    quoth_span server;
    uint64_t pid;
    quoth_span directory;
    double uptime;
    uint64_t topics, active, waits;
    quoth_span counters, states;
} quoth_msg_broker_status;

typedef struct quoth_msg_advance { uint64_t after, records_max, bytes_max; } quoth_msg_advance;
typedef struct quoth_msg_advanced {
    uint64_t log, after, until, records, bytes, gone, newest, end;
} quoth_msg_advanced;

typedef struct quoth_msg_split { uint64_t after, until, parts; } quoth_msg_split;
typedef struct quoth_msg_parts {
    uint64_t log;
    quoth_span bounds; /* a list of lists of 4 integers */
    uint64_t gone, newest, end;
} quoth_msg_parts;

typedef struct quoth_msg_count { uint64_t after, until; } quoth_msg_count;
typedef struct quoth_msg_counted {
    uint64_t log, records, bytes, gone, first, last, newest, end;
} quoth_msg_counted;

typedef struct quoth_msg_stage {
    quoth_span application;
    uint64_t version, part, attempt, number;
} quoth_msg_stage;
typedef struct quoth_msg_staged { uint64_t batches, records, bytes; } quoth_msg_staged;

typedef struct quoth_msg_publish_staged {
    quoth_span application;
    uint64_t version, parts;
    int64_t newest; /* -1: none, -2: any */
} quoth_msg_publish_staged;

typedef struct quoth_msg_name { /* of a transaction: arguments of abort and transaction */
    quoth_span application;
    uint64_t version;
} quoth_msg_name;
typedef struct quoth_msg_transaction {
    uint64_t log;
    quoth_span state;
    uint64_t first, last, count, parts, batches, records, bytes;
    int64_t newest_version;
} quoth_msg_transaction;

typedef struct quoth_msg_open_group {
    quoth_span group;
    int64_t start; /* -1: the end */
    quoth_span settings;
} quoth_msg_open_group;
typedef struct quoth_msg_group_info {
    uint64_t log;
    quoth_span group, settings;
    uint64_t generation, paused /* a flag */, after, cursor, lag, oldest, newest;
    uint64_t in_flight, pending, redelivered, dead, gone;
    quoth_span members; /* a list of maps */
    double idle;
    quoth_span problem;
} quoth_msg_group_info;

typedef struct quoth_msg_group_fetch {
    quoth_span group, member;
    uint64_t records_max, bytes_max, wait_ms, lease_ms;
} quoth_msg_group_fetch;
typedef struct quoth_msg_group_fetched {
    uint64_t log, generation;
    quoth_span leases; /* a list of [token, attempts, first, last] */
    uint64_t lease_ms, gone, damaged, newest, end;
} quoth_msg_group_fetched;

typedef struct quoth_msg_group_settle {
    quoth_span group;
    uint64_t rows, generation;
    quoth_span reason;
} quoth_msg_group_settle;
typedef struct quoth_msg_group_settled {
    uint64_t records, late;
    quoth_span lost; /* a list of [first, last] */
    quoth_span durability;
} quoth_msg_group_settled;

typedef struct quoth_msg_group_name { quoth_span group; } quoth_msg_group_name; /* of describe_group, delete_group */
typedef struct quoth_msg_groups { quoth_span groups; } quoth_msg_groups;        /* a list of maps */
typedef struct quoth_msg_update_group {
    quoth_span group, settings;
    int64_t paused; /* -1: no change */
} quoth_msg_update_group;
typedef struct quoth_msg_seek_group {
    quoth_span group;
    int64_t after; /* -1: the end */
} quoth_msg_seek_group;

typedef struct quoth_msg_list_pending {
    quoth_span group;
    uint64_t after, limit;
} quoth_msg_list_pending;
typedef struct quoth_msg_pending {
    quoth_span ranges; /* a list of [first, last, attempts, milliseconds, token] */
    quoth_span members;
} quoth_msg_pending;

typedef struct quoth_msg_commit_cursor {
    quoth_span group;
    uint64_t pointer, generation;
} quoth_msg_commit_cursor;

typedef struct quoth_msg_get_metrics {
    quoth_span after;
    uint64_t since, limit;
} quoth_msg_get_metrics;
typedef struct quoth_msg_metrics {
    quoth_span server;
    uint64_t time;
    double uptime;
    uint64_t serial, topics;
    quoth_span counters, errors, requests, durations;
    quoth_span rows; /* a list of maps */
    uint64_t more;   /* a flag */
} quoth_msg_metrics;

/* Any message: room for whichever one is decoded. */
typedef union quoth_any_message {
    quoth_msg_error error;
    quoth_msg_hello hello;
    quoth_msg_welcome welcome;
    quoth_msg_pong pong;
    quoth_msg_publish publish;
    quoth_msg_published published;
    quoth_msg_fetch fetch;
    quoth_msg_fetched fetched;
    quoth_msg_list list;
    quoth_msg_topics topics;
    quoth_msg_topic topic;
    quoth_msg_settings settings;
    quoth_msg_delete delete_topic;
    quoth_msg_trim trim;
    quoth_msg_trimmed trimmed;
    quoth_msg_broker_status status;
    quoth_msg_advance advance;
    quoth_msg_advanced advanced;
    quoth_msg_split split;
    quoth_msg_parts parts;
    quoth_msg_count count;
    quoth_msg_counted counted;
    quoth_msg_stage stage;
    quoth_msg_staged staged;
    quoth_msg_publish_staged publish_staged;
    quoth_msg_name name;
    quoth_msg_transaction transaction;
    quoth_msg_open_group open_group;
    quoth_msg_group_info group_info;
    quoth_msg_group_fetch group_fetch;
    quoth_msg_group_fetched group_fetched;
    quoth_msg_group_settle group_settle;
    quoth_msg_group_settled group_settled;
    quoth_msg_group_name group_name;
    quoth_msg_groups groups;
    quoth_msg_update_group update_group;
    quoth_msg_seek_group seek_group;
    quoth_msg_list_pending list_pending;
    quoth_msg_pending pending;
    quoth_msg_commit_cursor commit_cursor;
    quoth_msg_get_metrics get_metrics;
    quoth_msg_metrics metrics;
} quoth_any_message;

/* ---- encoding and decoding ---- */

typedef enum quoth_field_type {
    QUOTH_FIELD_UNSIGNED,
    QUOTH_FIELD_SIGNED,
    QUOTH_FIELD_FLAG,
    QUOTH_FIELD_FLOAT, /* an integer, too */
    QUOTH_FIELD_TEXT,
    QUOTH_FIELD_TEXTS,   /* a list of text, as msgpack */
    QUOTH_FIELD_NUMBERS, /* a list of integers */
    QUOTH_FIELD_PAIRS,   /* a list of lists of 2 integers from 0 on */
    QUOTH_FIELD_BOUNDS,  /* of 4 of them */
    QUOTH_FIELD_RANGES,  /* of 5 of them */
    QUOTH_FIELD_MAPS,    /* a list of maps with text keys */
    QUOTH_FIELD_MAP      /* a map with text keys */
} quoth_field_type;

enum { QUOTH_FIELD_REQUIRED, QUOTH_FIELD_OPTIONAL, QUOTH_FIELD_LATER /* not sent at its default */ };

typedef struct quoth_field {
    const char *name;
    uint8_t name_bytes, type, presence;
    uint16_t offset;   /* in the struct */
    int64_t low;       /* of an integer, both included */
    uint64_t high;
    int64_t standard;  /* the default of an integer; that of everything else is empty */
} quoth_field;

typedef struct quoth_shape {
    const quoth_field *fields;
    uint16_t count;
    uint16_t size; /* of the struct */
    uint8_t is_request;
} quoth_shape;

/* The shapes of a request's arguments and of its reply, and that of an error. operation: a valid one. */
const quoth_shape *quoth_request_shape(unsigned operation);
const quoth_shape *quoth_reply_shape(unsigned operation);
extern const quoth_shape quoth_error_shape;

typedef enum quoth_decoding {
    QUOTH_DECODED,
    QUOTH_DECODED_LATER, /* decoded without fields that are not known here: a broker refuses such a request */
    QUOTH_NOT_PLAIN      /* anything else: no map of this shape, or a value that its field does not take */
} quoth_decoding;

/* Sets all fields of a message to their defaults, required ones to 0. */
void quoth_message_clear(const quoth_shape *shape, void *message);

/* Encodes a message as one msgpack map; returns its bytes, 0 if they do not fit into the room. */
size_t quoth_message_encode(const quoth_shape *shape, const void *message, void *to, size_t room);

/* Decodes arguments. Fields that are missing have their defaults. Strict: every key is text and there once,
 * every value within its bounds, nothing follows the map, and a reply is checked as a request is. */
quoth_decoding quoth_message_decode(const quoth_shape *shape, quoth_span arguments, void *message);

#define QUOTH_ROW_NUMBERS_MAX 5

/* Reads the next list of so many numbers in a list of pairs, bounds or ranges, whose head the caller has read.
 * Returns 0 for anything else. */
int quoth_row_next(quoth_span *rows, unsigned count, uint64_t *numbers);

/* ---- settlements: the payload of group_settle ----
 *
 *     0   kind            1     8   first pointer   8     24  token          8
 *     1   zeros           7     16  last pointer    8     32  milliseconds   8
 *
 * Rows are in the order of their pointers and do not overlap. */

enum { QUOTH_SETTLE_ACK = 1, QUOTH_SETTLE_NACK, QUOTH_SETTLE_EXTEND, QUOTH_SETTLE_TERM, QUOTH_SETTLE_RELEASE };

typedef struct quoth_settlement {
    uint8_t kind;
    uint64_t first, last, token, milliseconds;
} quoth_settlement;

typedef enum quoth_settlement_problem {
    QUOTH_SETTLEMENT_OK,
    QUOTH_SETTLEMENT_BAD,     /* bad_request: no such kind, no such range, or no token where there has to be one */
    QUOTH_SETTLEMENT_POINTER, /* bad_pointer */
    QUOTH_SETTLEMENT_LARGE    /* too_large: milliseconds above QUOTH_SETTLE_MS_MAX */
} quoth_settlement_problem;

/* Writes the QUOTH_SETTLEMENT_BYTES of a row. Reads them; returns 0 if its zeros are none. */
void quoth_settlement_write(void *to, const quoth_settlement *row);
int quoth_settlement_read(const void *from, quoth_settlement *row);

/* Checks the numbers of a row. */
quoth_settlement_problem quoth_settlement_check(const quoth_settlement *row);

#ifdef __cplusplus
}
#endif

#endif
