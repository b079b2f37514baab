/* The batches of a producer that are ready or in flight: sent and not settled.
 *
 *     ready --> in flight --> settled: an ack, or an error
 *
 * The broker takes sequences without a hole only. So when a batch is refused for now, or answers stay away, all in
 * flight are sent again in order with the same bytes: the next round. After one that is refused for good, the later
 * ones get new sequences of a new producer id.
 *
 * The broker takes the requests of one connection in order, so when the newest copy of a batch is answered, the older
 * ones have had their effect. An ack therefore counts whichever copy it is for, an error only if it is for the newest
 * one. Belongs to one thread. */

#ifndef QUOTH_INFLIGHT_H
#define QUOTH_INFLIGHT_H

#include "client.h"

/* A batch that is ready or in flight. */
typedef struct quoth_sent {
    struct quoth_sent *next;
    uint8_t *payload;
    size_t size;
    uint32_t records;
    uint64_t number;   /* of its first record */
    int64_t began;     /* when its first record was taken */
    uint64_t sequence; /* 0: not in flight yet */
    uint32_t round;    /* of its newest copy */
    int unanswered;    /* copies whose outcome is not known, under the present sequence */
    int is_answered;   /* the newest copy, by `problem` */
    int is_acknowledged;
    quoth_ack ack;
    quoth_error problem;
} quoth_sent;

typedef struct quoth_inflight {
    quoth_link *link;
    quoth_span topic;
    quoth_on_outcome on_outcome;
    void *context;
    uint8_t arguments[QUOTH_ARGUMENTS_SMALL];
    size_t arguments_size;

    quoth_sent *oldest, **behind; /* all batches, the ones in flight first; where the next one is put */
    quoth_sent *unsent;           /* the first that is ready */
    unsigned in_flight;
    uint64_t buffered_bytes;

    uint64_t producer, sequence;
    uint32_t round, first_round;
    int64_t again_at, backoff_ms, heard_at; /* again_at: when the next round is due */
    quoth_producer_counts counts;
    quoth_error failure; /* of the first batch since the last flush that was not delivered */
} quoth_inflight;

/* Prepares one that is all zeros. topic: stays as long. Returns 0 if the system has no random bytes. */
int quoth_inflight_begin(quoth_inflight *inflight, quoth_link *link, const char *topic, int durability);

/* Adds a batch that is ready; puts the first of those in flight. */
void quoth_inflight_add(quoth_inflight *inflight, quoth_sent *one);
void quoth_inflight_launch(quoth_inflight *inflight, int64_t now);

/* The oldest batch in flight that is not settled, NULL for none. */
quoth_sent *quoth_inflight_oldest(const quoth_inflight *inflight);

/* Sends everything in flight once more. */
void quoth_inflight_next_round(quoth_inflight *inflight, int64_t now);

/* Takes the answers that have arrived. Returns 1 if there was one. */
int quoth_inflight_take(quoth_inflight *inflight);

/* Fails the oldest of all batches; everything in flight, because none can arrive without the first one. */
void quoth_inflight_fail_oldest(quoth_inflight *inflight, const quoth_error *problem, int is_unknown);
void quoth_inflight_give_up(quoth_inflight *inflight, const quoth_error *problem);

#endif
