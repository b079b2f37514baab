/* Why a broker refused a handshake, as far as the events of a socket tell:
 *
 *     no right key           an event with a status of three digits, and libzmq does not try again
 *     other mechanism        an event, and libzmq does not try again. One of the two has keys, the other has none
 *     wrong server key       the broker closes the connection, and libzmq tries again. So does a broker that cannot
 *                            check keys, one that is killed, and a forwarder of connections whose broker is away
 *
 * A closed connection is a rejection when it happened QUOTH_CLOSINGS_MAX times in a row for each server key, and a
 * ZeroMQ socket greets there. */

#ifndef QUOTH_REJECTION_H
#define QUOTH_REJECTION_H

#include "key_file.h"

#define QUOTH_CLOSINGS_MAX 2

typedef enum quoth_rejection {
    QUOTH_NOT_REFUSED,
    QUOTH_KEY_REFUSED,    /* the broker does not know the key */
    QUOTH_KEY_UNCHECKED,  /* it failed to check the key */
    QUOTH_KEY_MISSING,    /* it has keys, and the client has none */
    QUOTH_KEY_UNEXPECTED, /* it has none, and the client has one */
    QUOTH_SERVER_KEY      /* it may have another key than the client knows */
} quoth_rejection;

/* The events to be judged, for a monitor. */
extern const int QUOTH_REJECTIONS;

/* Judges an event and its value. QUOTH_SERVER_KEY: if it repeats itself. */
quoth_rejection quoth_judge(unsigned event, unsigned value, const quoth_key *key);

/* Judges repeated closings by what greets at a URL, for which this waits up to 600 ms: QUOTH_NOT_REFUSED if nothing
 * does, QUOTH_KEY_UNEXPECTED for a ZeroMQ socket without CURVE, else QUOTH_SERVER_KEY, also if that cannot be tried. */
quoth_rejection quoth_ask_mechanism(void *context, const char *url);

/* Fills in the error for a rejection. path: of the key file, NULL for none. */
int quoth_fail_refused(quoth_rejection rejection, const char *url, const quoth_key *key, const char *path,
                       quoth_error *error);

#endif
