/* One connection to a broker: a DEALER and a monitor that reports when it was lost and made again.
 *
 * libzmq reconnects by itself but loses the requests in flight. Each phase of a connection has a limit, so that
 * after an outage of any length a client is served again within two seconds of the broker's return:
 *
 *     connecting      an attempt ends after CONNECT_MS, the next one begins RECONNECT_MAX_MS later
 *     handshake       ends after HANDSHAKE_MS: a frozen process accepts connections, too
 *     established     ends if the other host acknowledges no byte for UNACKNOWLEDGED_MS: see tcp_watch.h
 *     silent          ends after SILENCE_MS if the host acknowledges bytes but the process sends none
 *     refused         the broker does not take the key: see rejection.h. It stays so until quoth_link_retry
 *
 * Belongs to one thread. */

#ifndef QUOTH_LINK_H
#define QUOTH_LINK_H

#include <zmq.h>

#include "rejection.h"

#define QUOTH_NEVER INT64_MAX

/* Milliseconds by the monotonic clock, and a sum of them that does not overflow. */
int64_t quoth_now(void);
int64_t quoth_later(int64_t now, int64_t milliseconds);

/* Random bits, never 0. Returns 0 if the system has none. */
uint64_t quoth_random(void);

/* A random producer id, 0 if the system has no random bytes. It is below 2^63: some of the others are the broker's. */
uint64_t quoth_new_producer(void);

/* What all connections of a client share. Counted: the last one that is closed frees it. */
typedef struct quoth_shared {
    void *context;
    char *url;
    char *key_file; /* its path, NULL for none */
    quoth_key key;  /* all zeros: none */
    int server_key; /* which of the broker's keys it had last */
    unsigned users;
    /* As the broker and the client have set them when a producer, a reader or a part is opened. */
    size_t payload_bytes_max;
    int64_t timeout_ms, resend_ms;
} quoth_shared;

quoth_shared *quoth_shared_new(const char *url, quoth_error *error);
void quoth_shared_release(quoth_shared *shared);

typedef struct quoth_link {
    quoth_shared *shared;
    void *socket, *monitor;
    int connected;     /* a handshake has succeeded, and the connection was not lost since */
    int was_connected; /* at any time since it was opened, or tried again */
    int is_lost;       /* what was sent may be lost: a connection has ended, or another server key is tried */
    int server_key;    /* the one of the broker's keys that is tried */
    int closings;      /* connections in a row that the broker closed within the handshake */
    quoth_rejection rejection;
    int descriptor; /* of the TCP connection, -1 for none */
    int64_t watched_at, read_at; /* the times of the last look at the connection, and at the events */
} quoth_link;

/* An answer. Its frames are the caller's to close. */
typedef struct quoth_reply {
    int is_open; /* the frames are to be closed */
    quoth_frame_header header;
    int is_version; /* 1: the answer is of another version of the protocol */
    zmq_msg_t arguments, payload;
} quoth_reply;

/* Opens a link, and takes a share of `shared`. */
int quoth_link_open(quoth_link *link, quoth_shared *shared, quoth_error *error);
void quoth_link_close(quoth_link *link);

/* Tries a link again that was refused. It stays refused if the system withholds a socket. */
int quoth_link_retry(quoth_link *link, quoth_error *error);

/* Sends a request. payload: NULL bytes for none. Returns 0 if the queue is full because no broker is there. */
int quoth_link_send(quoth_link *link, const uint8_t header[QUOTH_HEADER_BYTES], quoth_span topic, quoth_span arguments,
                    const quoth_span *payload);

/* Receives the next answer; 0 if there is none now. Messages that are no answer are skipped. */
int quoth_link_receive(quoth_link *link, quoth_reply *reply);
void quoth_reply_close(quoth_reply *reply);

/* Moves an answer to one that is not open. Bytes of small frames lie in the structure: look at them behind it. */
void quoth_reply_move(quoth_reply *to, quoth_reply *from);

quoth_span quoth_frame(zmq_msg_t *frame);

/* Waits until something has happened, until a time at the latest. Returns 1 if a lost connection was made again: what
 * was sent before has to be sent again. */
int quoth_link_wait(quoth_link *link, int64_t until);

/* Reads the events so far, without waiting. Returns 1 if a lost connection was made again. */
int quoth_link_read_events(quoth_link *link);

/* The same, once in a millisecond: a look at a monitor without an event costs two system calls. */
int quoth_link_read_events_at(quoth_link *link, int64_t now);

/* The descriptors to poll, and 1 if there is something to read now. */
int quoth_link_descriptors(quoth_link *link, int descriptors[2]);

/* The error for a request without an answer: the rejection, if there is one. */
int quoth_link_no_answer(const quoth_link *link, const char *operation, quoth_span topic, quoth_error *error);

#endif
