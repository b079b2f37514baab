/* Requests over one link: up to QUOTH_ASKED_MAX in flight, answered in any order.
 *
 *     asked --answered--> settled: by a result, or by an error
 *      |  ^
 *      |  +-- lost, or no answer for long: the same frames are sent again
 *      v  |
 *     refused for now: sent again after a pause. An earlier copy may still be answered with a result
 *
 * A handshake that is refused settles all of them, and the next one that is asked tries the link again.
 *
 * Sending twice is safe: reads change nothing, the broker recognises a publish by its producer id and sequence,
 * and a deletion names the log's id. Belongs to one thread. */

#ifndef QUOTH_CHANNEL_H
#define QUOTH_CHANNEL_H

#include "link.h"

#define QUOTH_ASKED_MAX 8
#define QUOTH_ARGUMENTS_MAX 4608 /* bytes of arguments: those of a settlement with a reason of 1,000 characters */

typedef enum quoth_request_state { QUOTH_IDLE, QUOTH_ASKED, QUOTH_SETTLED } quoth_request_state;

/* One request. The caller owns it, and the topic and the payload, which stay until it is settled. */
typedef struct quoth_request {
    /* Set by quoth_request_begin, and by the caller before it is asked. */
    unsigned operation;
    quoth_span topic;
    const quoth_span *payload; /* NULL: none */
    int64_t deadline;
    int64_t resend_ms;      /* without an answer after which it is sent again */
    int64_t wait_ms;        /* that the broker may take to answer */
    int64_t absence_ms;     /* for which no broker may be there */
    int retries_disk_low;   /* it is sent again after disk_low, too */
    quoth_any_message message; /* the arguments; once it is settled the reply */
    /* Set here. */
    quoth_request_state state;
    uint8_t header[QUOTH_HEADER_BYTES], arguments[QUOTH_ARGUMENTS_MAX];
    size_t arguments_size;
    uint64_t correlation;
    int64_t due, resend_at, absent_until, backoff_ms;
    int is_refused;
    int unanswered; /* copies without an answer, each of which may have had its effect */
    int code;       /* once it is settled */
    quoth_error error;
    quoth_reply reply; /* its frames: the message points into the arguments */
} quoth_request;

typedef struct quoth_channel {
    quoth_link link;
    quoth_request *asked[QUOTH_ASKED_MAX];
    unsigned count;
    int64_t due;
    uint64_t correlation;
} quoth_channel;

int quoth_channel_open(quoth_channel *channel, quoth_shared *shared, quoth_error *error);
void quoth_channel_close(quoth_channel *channel);

/* Prepares a request that is idle or settled, with the defaults of its arguments. topic: NULL for none. */
void quoth_request_begin(const quoth_channel *channel, quoth_request *request, unsigned operation, const char *topic,
                         int64_t timeout_ms);

/* Frees what a settled request holds. */
void quoth_request_end(quoth_request *request);

/* Sends a request. It is settled at once if its arguments are too large, or a refused link cannot be tried again. */
void quoth_channel_ask(quoth_channel *channel, quoth_request *request);

/* Forgets a request: its answer will be skipped. */
void quoth_channel_forget(quoth_channel *channel, quoth_request *request);

/* Waits until a request is settled, until a time at the latest. Takes what has arrived in any case. */
void quoth_channel_turn(quoth_channel *channel, int64_t until);

/* Sends a request, waits until it is settled, and returns its code. */
int quoth_channel_settle(quoth_channel *channel, quoth_request *request, quoth_error *error);

#endif
