/* The records of one answer to a fetch of a group: batches, in which each record belongs to a lease, or to none.
 *
 *     batches   |--------|   |--|------------|
 *     leases      |----|      |--|   |-------|
 *     parts       |----|      ||-|   |-------|     consecutive records of one batch and one lease
 *
 * All leases of an answer begin and end together. */

#ifndef QUOTH_LOT_H
#define QUOTH_LOT_H

#include "records.h"
#include "settling.h"

/* A lease. after: the pointer up to which its records were taken. ordinal: of the next one, -1 if it is not known. */
typedef struct quoth_held {
    uint64_t token, attempts, after, until;
    int64_t ordinal;
} quoth_held;

typedef struct quoth_lot {
    quoth_settling *settling; /* takes the rows about damage and extensions */
    const char *topic;
    quoth_on_gap on_gap;
    void *context;

    quoth_reply answer;
    uint64_t log, generation;
    int64_t lease_ms, deadline; /* of its leases */
    quoth_held *held;
    size_t count, room, current; /* current: the lease that the next records belong to, or one behind it */
    size_t position;             /* of the open batch in the payload */
    int has_batch;               /* its header was read */
    quoth_batch_header header;
    quoth_batch_problem problem; /* of its body */
    quoth_batch batch;
    quoth_held part;      /* the lease of the open part, and its bounds */
    uint32_t record, end; /* the next record of the open part, and that behind its last */
    int was_extended;     /* rows were added that have to be sent before the leases end; the caller sets it to 0 */
} quoth_lot;

/* Opens the answer of a settled request; the lot has none. Returns QUOTH_OUT_OF_MEMORY, and takes nothing then. */
int quoth_lot_open(quoth_lot *lot, quoth_request *fetch, int64_t now, quoth_error *error);
void quoth_lot_close(quoth_lot *lot);
void quoth_lot_free(quoth_lot *lot);

/* 1 if another record is at hand under its lease. Reports damage in front of it. */
int quoth_lot_has_record(quoth_lot *lot);

/* Hands out that record. */
void quoth_lot_hand_out(quoth_lot *lot, quoth_leased *leased);

/* Releases all records that were not handed out, unless their leases have ended, and closes the lot. */
void quoth_lot_release(quoth_lot *lot);

#endif
