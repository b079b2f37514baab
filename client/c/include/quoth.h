/* libquoth: a client of the Quoth broker.
 *
 *     quoth_client *client;
 *     quoth_error error;
 *     quoth_ack ack;
 *     quoth_record record = QUOTH_RECORD;
 *     record.value = quoth_text("hello");
 *     if (quoth_connect("tcp://127.0.0.1:5555", NULL, &client, &error)) return fail(&error);
 *     if (quoth_publish(client, "greetings", &record, 1, QUOTH_DEFAULT, &ack, &error)) return fail(&error);
 *     quoth_close(client);
 *
 * Threads. The library has no global state. A client, a producer, a reader, a part and a member of a group each have
 * a connection of their own and belong to one thread at a time; different ones may be used at the same time. A forked
 * child may not use those of its parent, not even to close them.
 *
 * Memory. What a function takes is copied before it returns, if it is needed longer. What it gives says at the
 * function how long it is valid. A close function frees its object and takes NULL. An allocation that fails is
 * QUOTH_OUT_OF_MEMORY, and nothing else happens.
 *
 * Errors. Functions that can fail return QUOTH_OK, which is 0, or a code, which is above 0, and fill in the
 * `quoth_error` that was given; NULL is allowed. Functions that read return QUOTH_END, which is below 0, where
 * there is nothing more at present. Nothing aborts, exits or prints.
 *
 * Time. Every call ends by a deadline: the timeout of the client, or the time that it takes as an argument. Times
 * are milliseconds. A signal does not end a call earlier; see the descriptors of producers and readers for
 * programs that wait for several things.
 *
 * Connections. A connection that was lost is made again, and what was not answered is sent again with the same
 * bytes. The broker recognises a publish that it has stored, so nothing is stored twice. However long the broker
 * was away, a client is served again within two seconds of its return.
 *
 * Keys. With a key the connections are encrypted, and the broker and the client know each other. A broker that refuses
 * the handshake ends all calls of that connection at once with QUOTH_AUTH_FAILED, also those that wait. Batches of a
 * producer have failed with it. The next call tries again.
 *
 * Text is UTF-8. A topic's name has 1 to 200 bytes. Pointers and times are microseconds since 1970, UTC. */

#ifndef QUOTH_H
#define QUOTH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QUOTH_API __attribute__((visibility("default")))
#else
#define QUOTH_API
#endif

/* The version of this interface. A structure that a program fills in begins with its size, so that later versions
 * can add fields: programs for an earlier one go on working with a library of the same QUOTH_ABI. */
#define QUOTH_ABI 1
#define QUOTH_VERSION "1.0.0"

/* The version of the library that is linked, static. */
QUOTH_API const char *quoth_version(void);

/* ---- errors ---- */

/* The codes of client/PROTOCOL.md, and two of this library. The numbers never change. */
enum {
    QUOTH_END = -1, /* no error: nothing more at present */
    QUOTH_OK = 0,
    QUOTH_BAD_REQUEST = 1,
    QUOTH_UNSUPPORTED_VERSION = 2,
    QUOTH_UNKNOWN_OPERATION = 3,
    QUOTH_BAD_TOPIC = 4,
    QUOTH_BAD_POINTER = 5,
    QUOTH_BAD_BATCH = 6,
    QUOTH_BAD_SETTING = 7,
    QUOTH_TOO_LARGE = 8,
    QUOTH_UNKNOWN_TOPIC = 9,
    QUOTH_UNKNOWN_RECORD = 10,
    QUOTH_TOPIC_EXISTS = 11,
    QUOTH_TOPICS_MAX = 12,
    QUOTH_UNKNOWN_PRODUCER = 13,
    QUOTH_OUT_OF_SEQUENCE = 14,
    QUOTH_SEQUENCE_REUSED = 15,
    QUOTH_FORGOTTEN_SEQUENCE = 16,
    QUOTH_NOT_STAGED = 17,
    QUOTH_ALREADY_PUBLISHED = 18,
    QUOTH_NEWEST_DIFFERS = 19,
    QUOTH_STAGED_MAX = 20,
    QUOTH_LOCKED = 21,
    QUOTH_POINTERS_EXHAUSTED = 22,
    QUOTH_BUSY = 23,
    QUOTH_RECOVERING = 24,
    QUOTH_STOPPING = 25,
    QUOTH_DISK_LOW = 26,
    QUOTH_STORAGE_FAILED = 27,
    QUOTH_UNUSABLE_SYSTEM = 28,
    QUOTH_INTERNAL = 29,
    QUOTH_DAMAGED = 30,
    QUOTH_TIMED_OUT = 31,    /* no answer in time: the outcome is unknown */
    QUOTH_DISCONNECTED = 32, /* no broker answers */
    QUOTH_CLOSED = 33,
    QUOTH_OTHER = 34,         /* a code of a later broker: see the name in the error. The outcome is unknown */
    QUOTH_OUT_OF_MEMORY = 35, /* of this library */
    QUOTH_SYSTEM = 36,        /* of this library: the system withholds a socket or random bytes */
    QUOTH_BAD_GROUP = 37,
    QUOTH_UNKNOWN_GROUP = 38,
    QUOTH_GROUP_EXISTS = 39, /* with other settings */
    QUOTH_GROUPS_MAX = 40,
    QUOTH_LEASE_LOST = 41, /* a settlement had no effect: its lease has ended, or the group was moved */
    QUOTH_QUOTA_EXCEEDED = 42, /* a quota of the client's key, or of all clients together, is used up */
    QUOTH_AUTH_FAILED = 43,    /* the broker refused the key, wants one, or is another one than the key file names */
    QUOTH_DENIED = 44          /* the key lacks the right for this operation */
};

/* What went wrong. All texts end with a 0 byte and are cut where they are longer. */
typedef struct quoth_error {
    int code;
    int outcome_unknown; /* 1: the request may have had its effect; 0: it had none */
    char name[48];       /* the code as the broker has it: "busy" */
    char text[512];
    char hint[256]; /* what a person can do, or empty */
} quoth_error;

/* The name of a code, static: "busy"; "other" for one that is not known. */
QUOTH_API const char *quoth_code_name(int code);

/* 1 if the same call may succeed later, without a change. */
QUOTH_API int quoth_is_retryable(int code);

/* ---- values ---- */

/* Bytes that another object owns. data is NULL for what is absent, as a key may be. */
typedef struct quoth_bytes {
    const void *data;
    size_t size;
} quoth_bytes;

/* The bytes of a text, without the 0 byte at its end. */
static inline quoth_bytes quoth_text(const char *text) {
    quoth_bytes bytes;
    bytes.data = text;
    bytes.size = strlen(text);
    return bytes;
}

/* A header of a record: a name, which is text, and any bytes. */
typedef struct quoth_header {
    quoth_bytes name, value;
} quoth_header;

/* A record to publish. A value may be empty. */
typedef struct quoth_record {
    quoth_bytes value;
    quoth_bytes key;             /* data NULL: none */
    const quoth_header *headers; /* NULL: none, or `encoded` */
    size_t headers_count;
    quoth_bytes encoded; /* those of a message that was read, to be published again; used without `headers` */
} quoth_record;

#define QUOTH_RECORD {{NULL, 0}, {NULL, 0}, NULL, 0, {NULL, 0}}

/* A record that was read. */
typedef struct quoth_message {
    uint64_t pointer; /* its address and its time */
    quoth_bytes value;
    quoth_bytes key;     /* data NULL: none */
    quoth_bytes headers; /* as they are stored: see quoth_next_header */
} quoth_message;

/* Levels of durability. */
enum {
    QUOTH_DEFAULT = 0, /* that of the topic */
    QUOTH_WRITTEN = 1, /* the operating system has the records: they survive the death of the broker */
    QUOTH_SYNCED = 2   /* fsync has returned: they survive a power cut */
};

/* The place of records that were stored: the pointers first, first + 1, ... last. */
typedef struct quoth_ack {
    uint64_t log; /* the id of the topic's log */
    uint64_t first, last, count;
    int durability; /* the level that is reached */
    int duplicate;  /* 1: an earlier attempt had stored them */
} quoth_ack;

/* Takes the next pair off `headers`. Returns 1 with a pair, 0 at the end, -1 for bytes that are no headers, which
 * early brokers stored. Begin with the headers of a message and `*left` = UINT32_MAX. A name that occurs twice has
 * its last value. */
QUOTH_API int quoth_next_header(quoth_bytes *headers, uint32_t *left, quoth_header *header);

/* ---- the client ---- */

typedef struct quoth_client quoth_client;

typedef struct quoth_options {
    size_t size;        /* sizeof(quoth_options) */
    int64_t timeout_ms; /* of every call; default 10,000 */
    int64_t wait_ms;    /* to wait for the broker when connecting; default: the timeout */
    int64_t resend_ms;  /* then a request without an answer is sent again, whatever its connection looks like;
                           default 5,000 */
    const char *name;   /* for people: default "libquoth" */
    /* CURVE without a key file: 40 characters of Z85 each, all three of them; NULL: none. */
    const char *server_key, *public_key, *secret_key;
    /* The path of a key file, see client/c/README.md: it holds the key of this client, and that of the broker. NULL: no
     * key. It is read once. QUOTH_BAD_SETTING: it cannot be used, or group or others may read it. */
    const char *key_file;
} quoth_options;

#define QUOTH_OPTIONS {sizeof(quoth_options), 0, 0, 0, NULL, NULL, NULL, NULL, NULL}

/* Connects to a broker, tcp://HOST:PORT or ipc://PATH, and waits until it answers. options: NULL for the defaults.
 * The client is the caller's, who closes it. */
QUOTH_API int quoth_connect(const char *url, const quoth_options *options, quoth_client **client, quoth_error *error);

/* Closes a client, at any time. Its producers, readers and parts go on; each is closed by itself. */
QUOTH_API void quoth_close(quoth_client *client);

/* Changes the timeout of the calls from now on, also of producers, readers and parts that are opened later. */
QUOTH_API void quoth_set_timeout(quoth_client *client, int64_t timeout_ms);

/* Asks for a sign of life. time: the broker's clock as a pointer; may be NULL. */
QUOTH_API int quoth_ping(quoth_client *client, uint64_t *time, quoth_error *error);

typedef struct quoth_broker {
    char server[64]; /* name and version */
    uint64_t batch_bytes_max, fetch_bytes_max, frame_bytes_max;
} quoth_broker;

QUOTH_API int quoth_hello(quoth_client *client, quoth_broker *broker, quoth_error *error);

typedef struct quoth_status {
    char server[64], directory[256];
    uint64_t pid, topics, active, waits;
    double uptime_s;
} quoth_status;

QUOTH_API int quoth_get_status(quoth_client *client, quoth_status *status, quoth_error *error);

/* Called with a topic and the states of its segments, both valid during the call, in the order of the names: a letter
 * a segment, oldest first, w for the active one, r for open, h for hibernating. It may not call a function of the
 * client. Returns 0 to go on, and anything else to end the list. */
typedef int (*quoth_on_states)(void *context, const char *topic, quoth_bytes states);

QUOTH_API int quoth_list_states(quoth_client *client, quoth_on_states on_states, void *context, quoth_error *error);

/* Publishes records as one batch: all of them are stored, in order, or none. It is stored once, whatever becomes of
 * the connection. ack: may be NULL. */
QUOTH_API int quoth_publish(quoth_client *client, const char *topic, const quoth_record *records, size_t count,
                            int durability, quoth_ack *ack, quoth_error *error);

/* ---- the producer ---- */

/* Collects records into batches and keeps several in flight, in order, each stored once. It works in the calls
 * below and has no thread. */
typedef struct quoth_producer quoth_producer;

/* The outcome of a batch. Valid during the call. */
typedef struct quoth_outcome {
    uint64_t number; /* of its first record, counted from 0 over all that were sent */
    uint32_t records;
    const quoth_ack *ack;     /* NULL if it was not delivered: */
    const quoth_error *error; /* then this is why; see its outcome_unknown */
} quoth_outcome;

/* Called once for each batch, in the order of sending, within the calls below, by their thread. It may not call a
 * function of the same producer. */
typedef void (*quoth_on_outcome)(void *context, const quoth_outcome *outcome);

typedef struct quoth_producer_options {
    size_t size;            /* sizeof(quoth_producer_options) */
    int durability;         /* default: that of the topic */
    uint32_t batch_records; /* of a full batch, which is sent at once; default 1,000 */
    uint32_t batch_bytes;   /* the same; default 1 MiB */
    int64_t linger_ms;      /* then a smaller batch is sent; default 5, below 0: at once */
    uint32_t window;        /* batches in flight, 1 to 32; default 32 */
    uint64_t buffer_bytes;  /* of records that are not settled; the default is 64 MiB */
    int64_t timeout_ms;     /* then a batch that was not delivered has failed; default 120,000 */
    quoth_on_outcome on_outcome; /* may be NULL */
    void *context;
} quoth_producer_options;

#define QUOTH_PRODUCER_OPTIONS {sizeof(quoth_producer_options), 0, 0, 0, 0, 0, 0, 0, NULL, NULL}

/* Opens a producer. It sends nothing yet. options: NULL for the defaults. */
QUOTH_API int quoth_producer_open(quoth_client *client, const char *topic, const quoth_producer_options *options,
                                  quoth_producer **producer, quoth_error *error);

/* Appends a record. While the buffer is full it waits for acknowledgements, up to the producer's timeout: then it is
 * QUOTH_BUSY, and the record was not taken. That it was delivered is said by on_outcome and by a flush. */
QUOTH_API int quoth_producer_send(quoth_producer *producer, const quoth_record *record, quoth_error *error);

/* The same, without waiting: QUOTH_BUSY while the buffer is full. */
QUOTH_API int quoth_producer_try_send(quoth_producer *producer, const quoth_record *record, quoth_error *error);

/* Sends what is due, and takes what has arrived. Waits up to so many milliseconds for something to do, 0: not at all. */
QUOTH_API int quoth_producer_poll(quoth_producer *producer, int64_t wait_ms, quoth_error *error);

/* Sends everything and waits until it is settled, for so many milliseconds at most: then it is QUOTH_TIMED_OUT, and
 * the rest is still on its way. Returns the error of the first batch since the last flush that was not delivered. */
QUOTH_API int quoth_producer_flush(quoth_producer *producer, int64_t wait_ms, quoth_error *error);

typedef struct quoth_producer_counts {
    uint64_t sent, acknowledged, failed; /* records */
    uint64_t resent;                     /* copies of batches that were sent again */
    uint64_t last;                       /* the newest pointer of a stored record */
} quoth_producer_counts;

QUOTH_API void quoth_producer_count(const quoth_producer *producer, quoth_producer_counts *counts);

/* For poll(): fills in two descriptors, to be watched for reading, and returns the milliseconds after which
 * quoth_producer_poll has something to do anyway: 0 for now, -1 for never. Ask right before each wait, because a
 * descriptor reports each event only once. */
QUOTH_API int64_t quoth_producer_descriptors(quoth_producer *producer, int descriptors[2]);

/* Closes a producer. What is not settled has an outcome now: it failed, and may have been stored. Flush before. */
QUOTH_API void quoth_producer_close(quoth_producer *producer);

/* ---- the reader ---- */

/* A position in a topic that moves over its records. */
typedef struct quoth_reader quoth_reader;

enum {
    QUOTH_GAP_TRIMMED = 1,   /* removed by retention or request */
    QUOTH_GAP_DAMAGED = 2,   /* stored bytes do not match their checksum */
    QUOTH_GAP_RECREATED = 3, /* the topic was deleted and created again */
    QUOTH_GAP_AHEAD = 4      /* the cursor lies above the newest record, which is `after`; nothing is missing */
};

/* Records that a reader did not get: those after the pointer `after` and before `next`. Valid during the call. */
typedef struct quoth_gap {
    const char *topic;
    uint64_t after, next;
    int64_t records; /* -1: not known */
    int reason;
    int64_t ordinal; /* how many records the topic held before the first of them; -1: not known */
} quoth_gap;

/* Called with each gap, in the order of the records, within quoth_read. It may not call a function of the reader. */
typedef void (*quoth_on_gap)(void *context, const quoth_gap *gap);

#define QUOTH_OLDEST 0ull          /* in front of the oldest record */
#define QUOTH_NEWEST UINT64_MAX    /* behind the newest record */

typedef struct quoth_reader_options {
    size_t size;          /* sizeof(quoth_reader_options) */
    uint64_t after;       /* a cursor: records with pointers above it; default QUOTH_OLDEST */
    uint64_t since;       /* a time, which is included; used if it is not 0 */
    uint64_t until;       /* the last pointer to read; 0: no end */
    uint64_t limit;       /* the most records; 0: no limit */
    uint64_t log;         /* of an earlier quoth_position, or 0 */
    int64_t ordinal;      /* of an earlier quoth_position, used if its log is given */
    uint64_t fetch_bytes; /* that one fetch asks for; default 1 MiB */
    quoth_on_gap on_gap;  /* may be NULL */
    void *context;
    int durability;       /* QUOTH_SYNCED: only what survives a power cut, whatever the topic shows to others */
} quoth_reader_options;

#define QUOTH_READER_OPTIONS {sizeof(quoth_reader_options), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, QUOTH_DEFAULT}

/* Opens a reader. It asks for nothing yet, and the topic need not exist. options: NULL for the defaults. */
QUOTH_API int quoth_reader_open(quoth_client *client, const char *topic, const quoth_reader_options *options,
                                quoth_reader **reader, quoth_error *error);

#define QUOTH_NOWAIT (-1)

/* Reads the next record. Its bytes belong to the reader and are valid until the next call with this reader.
 *
 * wait_ms: how long to wait for a record. 0: QUOTH_END at the end of what is there now. Above: QUOTH_END after so
 * many milliseconds without a record, also if the topic does not exist yet; call again to go on, as often as you
 * like. QUOTH_NOWAIT: only what has arrived; QUOTH_END otherwise, while a fetch waits at the broker.
 *
 * A broker that does not answer is an error after the client's timeout beyond that.
 *
 * After an error that is retryable, call again: the reader is where it was. Damaged records are reported by on_gap
 * and skipped. QUOTH_UNKNOWN_TOPIC after records were read: the topic was deleted. */
QUOTH_API int quoth_read(quoth_reader *reader, int64_t wait_ms, quoth_message *message, quoth_error *error);

/* Where a reader stands: behind the record that it returned last, and behind gaps. Store all three to go on there
 * with the options of another reader. */
typedef struct quoth_position {
    uint64_t cursor, log;
    int64_t ordinal; /* -1: not known */
} quoth_position;

QUOTH_API void quoth_reader_position(const quoth_reader *reader, quoth_position *position);

/* The same for quoth_read with QUOTH_NOWAIT as quoth_producer_descriptors. */
QUOTH_API int64_t quoth_reader_descriptors(quoth_reader *reader, int descriptors[2]);

QUOTH_API void quoth_reader_close(quoth_reader *reader);

/* ---- topics ---- */

/* Settings of a topic. In one that is given, a number below 0 and QUOTH_DEFAULT leave a setting as it is; 0 means no
 * limit. */
typedef struct quoth_settings {
    size_t size;         /* sizeof(quoth_settings) */
    int durability;      /* of a publish that asks for none */
    double max_age_s;    /* older records are removed, a segment at a time */
    int64_t max_bytes;   /* of the topic's segments */
    int64_t size_limit;  /* bytes of a segment */
    int64_t count_limit; /* records of a segment */
    double age_limit_s;  /* of a segment's first record */
} quoth_settings;

#define QUOTH_SETTINGS {sizeof(quoth_settings), QUOTH_DEFAULT, -1, -1, -1, -1, -1}

typedef struct quoth_topic {
    char name[201];
    uint64_t log, first, last, count, first_ordinal, bytes, segments;
    quoth_settings settings;
    char problem[256];    /* why it takes no writes, or empty */
    quoth_bytes counters; /* for quoth_counter; the client's, valid until its next call */
} quoth_topic;

/* Finds a counter or a gauge of a topic; 0 if there is none of this name. */
QUOTH_API int quoth_counter(const quoth_topic *topic, const char *name, uint64_t *count);

/* Describes, creates, changes a topic. info: may be NULL for the last two; settings: NULL for the defaults. */
QUOTH_API int quoth_describe(quoth_client *client, const char *topic, quoth_topic *info, quoth_error *error);
QUOTH_API int quoth_create(quoth_client *client, const char *topic, const quoth_settings *settings, quoth_topic *info,
                           quoth_error *error);
QUOTH_API int quoth_update(quoth_client *client, const char *topic, const quoth_settings *settings, quoth_topic *info,
                           quoth_error *error);

/* Called with a topic's name, which is valid during the call, in the order of their bytes. It may not call a function
 * of the client. Returns 0 to go on, and anything else to end the list. */
typedef int (*quoth_on_topic)(void *context, const char *name);

QUOTH_API int quoth_list(quoth_client *client, quoth_on_topic on_topic, void *context, quoth_error *error);

typedef struct quoth_removed {
    uint64_t records, bytes;
    uint64_t first; /* the oldest pointer left, 0 for none */
} quoth_removed;

/* Deletes the topic that exists now, not one that another client creates meanwhile. removed: may be NULL. */
QUOTH_API int quoth_delete(quoth_client *client, const char *topic, quoth_removed *removed, quoth_error *error);

/* Removes the segments that hold only records before a pointer. removed: may be NULL. */
QUOTH_API int quoth_trim(quoth_client *client, const char *topic, uint64_t before, quoth_removed *removed,
                         quoth_error *error);

/* Seals the topic's active segment and begins a new one. info: may be NULL. */
QUOTH_API int quoth_roll(quoth_client *client, const char *topic, quoth_topic *info, quoth_error *error);

/* ---- ranges ---- */

#define QUOTH_POINTER_LAST ((1ull << 56) - 1)

/* The records above the pointer `after` up to `until`, inclusive. */
typedef struct quoth_range {
    uint64_t after, until, records, bytes;
} quoth_range;

typedef struct quoth_advanced {
    quoth_range range;
    uint64_t gone;        /* upper bound of the records in front of it that were removed */
    uint64_t newest, end; /* the newest pointer that can be read; how many records the log has ever held */
} quoth_advanced;

/* Finds how far the next records above a pointer reach. records_max, bytes_max: 0 for no limit. */
QUOTH_API int quoth_advance(quoth_client *client, const char *topic, uint64_t after, uint64_t records_max,
                            uint64_t bytes_max, quoth_advanced *advanced, quoth_error *error);

/* Divides a range between batches into at most `*count` ranges, 1 to 10,000, that the caller has room for. count: how
 * many they are in the end. */
QUOTH_API int quoth_split(quoth_client *client, const char *topic, uint64_t after, uint64_t until, quoth_range *ranges,
                          size_t *count, quoth_error *error);

typedef struct quoth_counted {
    uint64_t records, bytes;
    uint64_t gone; /* upper bound of the records in front of the first one that were removed */
    uint64_t first, last, newest, end;
} quoth_counted;

/* Counts the records of a range without reading them. */
QUOTH_API int quoth_count(quoth_client *client, const char *topic, uint64_t after, uint64_t until,
                          quoth_counted *counted, quoth_error *error);

/* ---- transactions ---- */

/* Many batches of many writers that a topic gets all or none, once. An application (1 to 200 bytes) and a version (0
 * to 2^62), which rises, name a transaction on a topic. Any client may write its parts, in any process; then one
 * client publishes one attempt of each part. */

/* One attempt to write a part. */
typedef struct quoth_part quoth_part;

/* What a finished attempt has staged: plain numbers, to be carried to the client that publishes. */
typedef struct quoth_staged {
    uint64_t part, attempt, batches, records;
} quoth_staged;

/* Begins another attempt to write a part, 0 to 999,999. Each of its batches has the client's timeout, or 120 s if that
 * is shorter. */
QUOTH_API int quoth_part_open(quoth_client *client, const char *topic, const char *application, uint64_t version,
                              uint64_t part, quoth_part **attempt, quoth_error *error);

/* Appends a record. Waits while 8 batches are in flight. The first error ends the attempt, except for a record that is
 * refused before anything was sent: QUOTH_TOO_LARGE, QUOTH_BAD_REQUEST. */
QUOTH_API int quoth_part_write(quoth_part *attempt, const quoth_record *record, quoth_error *error);

/* Sends the records so far as a batch of their own. A full one is sent without it. */
QUOTH_API int quoth_part_flush(quoth_part *attempt, quoth_error *error);

/* Waits until everything is staged. Nothing may be written any more. */
QUOTH_API int quoth_part_finish(quoth_part *attempt, quoth_staged *staged, quoth_error *error);

/* Closes an attempt. One that is not finished is never published. */
QUOTH_API void quoth_part_close(quoth_part *attempt);

enum { QUOTH_NO_VERSION = -1, QUOTH_ANY_VERSION = -2 };

/* Publishes parts, one behind the other: all of them, or nothing. Publishing again is safe: it has the same pointers,
 * as a duplicate. newest: publish only if this is the newest version that the application has published here. wait_ms:
 * how long the broker may take; 0: ten minutes. ack: may be NULL. */
QUOTH_API int quoth_publish_staged(quoth_client *client, const char *topic, const char *application, uint64_t version,
                                   const quoth_staged *parts, size_t count, int64_t newest, int64_t wait_ms,
                                   quoth_ack *ack, quoth_error *error);

enum { QUOTH_TRANSACTION_UNKNOWN, QUOTH_TRANSACTION_STAGED, QUOTH_TRANSACTION_PUBLISHED };

typedef struct quoth_transaction {
    int state;
    uint64_t first, last, count;              /* if it is published */
    uint64_t parts, batches, records, bytes;  /* that are staged, or that an abort has removed */
    int64_t newest_version;                   /* -1: none is known */
} quoth_transaction;

/* Asks for the state of a transaction; removes its staged parts. transaction: may be NULL for an abort. */
QUOTH_API int quoth_inspect(quoth_client *client, const char *topic, const char *application, uint64_t version,
                            quoth_transaction *transaction, quoth_error *error);
QUOTH_API int quoth_abort(quoth_client *client, const char *topic, const char *application, uint64_t version,
                          quoth_transaction *transaction, quoth_error *error);

/* ---- consumer groups ---- */

/* A group shares the records of a topic among its members: client/GROUPS.md says what it promises. Calls of a client
 * create, describe and move groups; a quoth_group is one member. A group's name has 1 to 100 bytes. */

enum { QUOTH_AT_LEAST_ONCE = 1, QUOTH_AT_MOST_ONCE = 2, QUOTH_CURSOR = 3 }; /* modes; 0 is the default, or another */

#define QUOTH_BACKOFF_MAX 32

/* Settings of a group. In those that are given, a number below 0, and 0, QUOTH_DEFAULT or NULL where the comment does
 * not say otherwise, leave a setting as it is. */
typedef struct quoth_group_settings {
    size_t size;             /* sizeof(quoth_group_settings) */
    int mode;                /* default QUOTH_AT_LEAST_ONCE */
    double lease_s;          /* for which a member has a record; default 30 */
    int64_t max_in_flight;   /* records that are handed out and not finished; default 1,000 */
    int64_t max_attempts;    /* then a record becomes a dead letter; 0: no limit; default 5 */
    double backoff_s[QUOTH_BACKOFF_MAX]; /* before the second hand-out, the third, ...; the last one repeats */
    size_t backoff_count;
    quoth_bytes dead_letter; /* the topic of dead letters; "auto": TOPIC.GROUP.dead; 0 bytes that are not NULL: none */
    int key_order;           /* 1: of the records with one key, one at a time; 0: all of them */
    int durability;          /* of acks; QUOTH_DEFAULT: that of the topic */
} quoth_group_settings;

#define QUOTH_GROUP_SETTINGS {sizeof(quoth_group_settings), 0, -1, -1, -1, {0}, 0, {NULL, 0}, -1, QUOTH_DEFAULT}

typedef struct quoth_group_info {
    char name[101];
    uint64_t log, generation;
    int paused;
    uint64_t after;  /* all records up to this pointer are finished */
    uint64_t cursor; /* no record above it was ever handed out */
    uint64_t lag;    /* records that are not finished */
    uint64_t oldest; /* the pointer of the first of them, 0 for none */
    uint64_t newest;
    uint64_t in_flight, pending;      /* under a lease; handed out and not finished */
    uint64_t redelivered, dead, gone; /* counted since the group was created */
    double idle_s;                    /* since the last fetch or commit of a member */
    char problem[256];                /* why dead letters cannot be written, or empty */
    quoth_group_settings settings;    /* its bytes are the client's, valid until its next call */
    quoth_bytes members;              /* for quoth_next_member; the same */
} quoth_group_info;

typedef struct quoth_member {
    quoth_bytes name;
    uint64_t in_flight;
    double idle_s;
} quoth_member;

/* Takes the next member off `members`. Returns 1 with a member, 0 at the end. Begin with those of a group and `*left` =
 * UINT32_MAX. */
QUOTH_API int quoth_next_member(quoth_bytes *members, uint32_t *left, quoth_member *member);

/* Creates a group that begins above the pointer `start`, QUOTH_OLDEST or QUOTH_NEWEST; finds one that exists. That has
 * to have the settings that are given, else it is QUOTH_GROUP_EXISTS. info: may be NULL, as in all of these calls. */
QUOTH_API int quoth_group_create(quoth_client *client, const char *topic, const char *group, uint64_t start,
                                 const quoth_group_settings *settings, quoth_group_info *info, quoth_error *error);
QUOTH_API int quoth_group_describe(quoth_client *client, const char *topic, const char *group, quoth_group_info *info,
                                   quoth_error *error);
QUOTH_API int quoth_group_update(quoth_client *client, const char *topic, const char *group,
                                 const quoth_group_settings *settings, quoth_group_info *info, quoth_error *error);

/* Hands out nothing until it is resumed. Leases and settlements go on. */
QUOTH_API int quoth_group_pause(quoth_client *client, const char *topic, const char *group, quoth_group_info *info,
                                quoth_error *error);
QUOTH_API int quoth_group_resume(quoth_client *client, const char *topic, const char *group, quoth_group_info *info,
                                 quoth_error *error);

/* Goes on above a pointer, QUOTH_OLDEST or QUOTH_NEWEST, in another generation: no earlier lease or ack has an
 * effect. */
QUOTH_API int quoth_group_seek(quoth_client *client, const char *topic, const char *group, uint64_t after,
                               quoth_group_info *info, quoth_error *error);

/* Deletes a group. info: its last state. */
QUOTH_API int quoth_group_delete(quoth_client *client, const char *topic, const char *group, quoth_group_info *info,
                                 quoth_error *error);

/* Moves the pointer of a group of mode QUOTH_CURSOR forward, never back. generation: in which the records were read;
 * another one has no effect; 0 for any. */
QUOTH_API int quoth_group_commit(quoth_client *client, const char *topic, const char *group, uint64_t pointer,
                                 uint64_t generation, quoth_group_info *info, quoth_error *error);

/* Calls with the name of each group of a topic, see quoth_list. */
QUOTH_API int quoth_group_list(quoth_client *client, const char *topic, quoth_on_topic on_group, void *context,
                               quoth_error *error);

/* Records that were handed out and are not finished. */
typedef struct quoth_pending {
    uint64_t first, last; /* pointers */
    uint64_t attempts;
    uint64_t milliseconds; /* until their lease ends, or until they are handed out again */
    quoth_bytes member;    /* who has the lease, valid during the call; of 0 bytes without one */
} quoth_pending;

/* Called with each range in the order of the pointers. It may not call a function of the client. Returns 0 to go on,
 * and anything else to end the list. */
typedef int (*quoth_on_pending)(void *context, const quoth_pending *pending);

QUOTH_API int quoth_group_list_pending(quoth_client *client, const char *topic, const char *group,
                                       quoth_on_pending on_pending, void *context, quoth_error *error);

/* ---- a member of a group ---- */

/* Fetches records under a lease, and settles them. Settlements are collected and sent together: by the next fetch, by a
 * flush, or by the next of these calls some milliseconds later. It works in the calls below and has no thread. */
typedef struct quoth_group quoth_group;

typedef struct quoth_group_options {
    size_t size;        /* sizeof(quoth_group_options) */
    const char *member; /* its name, for people, of up to 200 bytes; default CLIENT@HOST:PID */
    uint64_t start;     /* of a new group, see quoth_group_create; default QUOTH_OLDEST */
    const quoth_group_settings *settings; /* the same; may be NULL */
    uint64_t fetch_records; /* the most records of one fetch; default 100 */
    uint64_t fetch_bytes;   /* the bytes that one fetch asks for; default 1 MiB */
    int64_t lease_ms;       /* of what it fetches; default that of the group */
    quoth_on_gap on_gap;    /* records that are gone, or damaged; may be NULL */
    void *context;
} quoth_group_options;

#define QUOTH_GROUP_OPTIONS {sizeof(quoth_group_options), NULL, 0, NULL, 0, 0, 0, NULL, NULL}

/* Creates or joins a group. options: NULL for the defaults. QUOTH_GROUP_EXISTS: it has other settings than those that
 * are given. */
QUOTH_API int quoth_group_open(quoth_client *client, const char *topic, const char *group,
                               const quoth_group_options *options, quoth_group **member, quoth_error *error);

/* Records of one lease: what a settlement names. Plain numbers, to be kept as long as needed; `first` of one record and
 * `last` of a later one with the same token and generation make a range of them. */
typedef struct quoth_lease {
    uint64_t first, last; /* pointers */
    uint64_t token, generation;
} quoth_lease;

/* A record under a lease. */
typedef struct quoth_leased {
    quoth_message message;
    uint64_t attempts; /* how often it was handed out, this time included */
    quoth_lease lease;
} quoth_leased;

/* Fetches the next records, unless some are left. Returns QUOTH_OK once quoth_group_next has at least one.
 *
 * wait_ms: how long to wait for records; QUOTH_END after so many milliseconds without one. 0: not at all. QUOTH_NOWAIT:
 * only what has arrived; QUOTH_END otherwise, while a fetch waits at the broker.
 *
 * A broker that does not answer is an error after the client's timeout beyond that. After an error that is retryable,
 * call again. */
QUOTH_API int quoth_group_fetch(quoth_group *member, int64_t wait_ms, quoth_error *error);

/* Hands out the next record that was fetched; QUOTH_END at the end. All bytes are valid until the next fetch. A record
 * whose lease has ended meanwhile is left out. Leases of records that were not handed out yet are extended in time, for
 * which a call may wait up to a second. */
QUOTH_API int quoth_group_next(quoth_group *member, quoth_leased *leased);

/* Settles records: ack finishes them. nack gives them back, to be handed out again after `delay_ms`, below 0: after the
 * group's backoff. release gives back records with which no work has begun: they are handed out again at once, and this
 * hand-out does not count as one of their attempts. extend lets their lease last `lease_ms` from now on, 0: as long as
 * the group's. term makes dead letters of them. reason: may be NULL; 1,000 characters of it are kept in the dead letter.
 *
 * The lease is copied. quoth_group_flush reports the outcome. An ack also counts after the lease has ended. In a
 * group of mode QUOTH_AT_MOST_ONCE an ack does nothing, and all else is QUOTH_BAD_REQUEST. While many settlements wait
 * for answers this waits, too, up to the client's timeout: then it is QUOTH_BUSY, and nothing was settled. */
QUOTH_API int quoth_group_ack(quoth_group *member, const quoth_lease *lease, quoth_error *error);
QUOTH_API int quoth_group_nack(quoth_group *member, const quoth_lease *lease, int64_t delay_ms, const char *reason,
                               quoth_error *error);
QUOTH_API int quoth_group_release(quoth_group *member, const quoth_lease *lease, quoth_error *error);
QUOTH_API int quoth_group_extend(quoth_group *member, const quoth_lease *lease, int64_t lease_ms, quoth_error *error);
QUOTH_API int quoth_group_term(quoth_group *member, const quoth_lease *lease, const char *reason, quoth_error *error);

/* Sends all settlements and waits for their answers, for so many milliseconds at most: then it is QUOTH_TIMED_OUT, and
 * the rest is still on its way. Returns the first error since the last flush; QUOTH_LEASE_LOST: a settlement had no
 * effect, because its lease has ended, or the group was moved. */
QUOTH_API int quoth_group_flush(quoth_group *member, int64_t wait_ms, quoth_error *error);

typedef struct quoth_group_counts {
    uint64_t fetched;  /* records that were handed out */
    uint64_t finished; /* by acks of this member */
    uint64_t late;     /* of them, after their lease had ended */
    uint64_t lost;     /* settlements without an effect */
} quoth_group_counts;

QUOTH_API void quoth_group_count(const quoth_group *member, quoth_group_counts *counts);

/* The same for quoth_group_fetch with QUOTH_NOWAIT as quoth_reader_descriptors. */
QUOTH_API int64_t quoth_group_descriptors(quoth_group *member, int descriptors[2]);

/* Releases what was fetched and not handed out, and flushes. Call it before you close a member. */
QUOTH_API int quoth_group_leave(quoth_group *member, int64_t wait_ms, quoth_error *error);

/* Closes a member. What is not settled is handed out again when its lease has ended. */
QUOTH_API void quoth_group_close(quoth_group *member);

#ifdef __cplusplus
}
#endif

#endif
