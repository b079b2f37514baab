/* Settlements of a member of a group: rows, collected into requests of which one is in flight.
 *
 *     filling --due, or another row does not fit--> waiting --> in flight --answered--> gone
 *
 * A row does not fit that overlaps another one, or has another generation or reason. So settlements of one record have
 * their effect in the order of the calls. Belongs to one thread. */

#ifndef QUOTH_SETTLING_H
#define QUOTH_SETTLING_H

#include "channel.h"

#define QUOTH_SETTLING_MAX 8              /* requests that are filling, waiting or in flight */
#define QUOTH_REASON_CHARACTERS_MAX 1000u /* as many as the broker keeps */
#define QUOTH_REASON_BYTES_MAX (4u * QUOTH_REASON_CHARACTERS_MAX)

/* The rows of a request, in the order of their pointers. */
typedef struct quoth_rows {
    struct quoth_rows *next;
    quoth_request request;
    quoth_span payload;
    uint8_t *bytes;
    size_t count, room;
    uint64_t generation;
    int has_reason; /* a nack or a term has set it */
    char reason[QUOTH_REASON_BYTES_MAX + 1];
} quoth_rows;

typedef struct quoth_settling {
    quoth_channel *channel;
    const char *topic, *group;
    int64_t timeout_ms; /* for which a request is sent again */
    quoth_rows *oldest, **behind, *filling;
    unsigned count;
    int64_t due; /* when the rows that are filling are to be sent; QUOTH_NEVER without any */
    quoth_group_counts counts;
    quoth_error failure; /* the first since the last flush */
} quoth_settling;

/* Prepares one that is all zeros. The texts stay as long. */
void quoth_settling_begin(quoth_settling *settling, quoth_channel *channel, const char *topic, const char *group,
                          int64_t timeout_ms);
void quoth_settling_end(quoth_settling *settling);

/* Adds a row that was checked. reason: UTF-8, empty for none. QUOTH_BUSY if that takes another request, and there are
 * as many as there may be. */
int quoth_settling_add(quoth_settling *settling, const quoth_settlement *row, uint64_t generation, quoth_span reason,
                       quoth_error *error);

/* Takes the outcome of the request in flight, if there is one, and sends the next one that is due. all: rows that are
 * filling are due now. */
void quoth_settling_send(quoth_settling *settling, int all);

#endif
