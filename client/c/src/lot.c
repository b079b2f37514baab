/* Implements lot.h. */

#include "lot.h"

#include <stdlib.h>
#include <string.h>

#define NOT_KNOWN (-1)

static const char UNREADABLE[] = "a batch in the answer of the broker does not check";

/* ---- opening ---- */

static int make_room(quoth_lot *lot, uint64_t count) {
    if (count <= lot->room) return 1;
    quoth_held *held = realloc(lot->held, (size_t)count * sizeof *held);
    if (!held) return 0;
    lot->held = held;
    lot->room = (size_t)count;
    return 1;
}

int quoth_lot_open(quoth_lot *lot, quoth_request *fetch, int64_t now, quoth_error *error) {
    const quoth_msg_group_fetched *fetched = &fetch->message.group_fetched;
    quoth_span leases = fetched->leases;
    quoth_value head;
    uint64_t row[4];
    if (!quoth_unpack(&leases, &head)) head.number = 0;
    if (!make_room(lot, head.number)) return quoth_fail_memory(error);
    lot->count = lot->current = lot->position = 0;
    while (lot->count < head.number && quoth_row_next(&leases, 4, row))
        lot->held[lot->count++] = (quoth_held){row[0], row[1], row[2] ? row[2] - 1 : 0, row[3], NOT_KNOWN};
    lot->log = fetched->log;
    lot->generation = fetched->generation;
    lot->lease_ms = fetched->lease_ms < QUOTH_SETTLE_MS_MAX ? (int64_t)fetched->lease_ms : QUOTH_SETTLE_MS_MAX;
    lot->deadline = quoth_later(now, lot->lease_ms);
    lot->has_batch = 0;
    lot->record = lot->end = 0;
    quoth_reply_move(&lot->answer, &fetch->reply);
    quoth_request_end(fetch);
    return QUOTH_OK;
}

void quoth_lot_close(quoth_lot *lot) {
    quoth_reply_close(&lot->answer);
    lot->count = lot->current = 0;
    lot->record = lot->end = 0;
}

void quoth_lot_free(quoth_lot *lot) {
    quoth_lot_close(lot);
    free(lot->held);
}

/* ---- settlements of what is at hand ---- */

/* Without room or memory for the row the lease ends by itself. */
static void settle(quoth_lot *lot, uint8_t kind, uint64_t token, uint64_t first, uint64_t last, uint64_t milliseconds,
                   const char *reason) {
    quoth_settlement row = {kind, first, last, token, milliseconds};
    if (token && !quoth_settlement_check(&row))
        quoth_settling_add(lot->settling, &row, lot->generation, (quoth_span){(const uint8_t *)reason, strlen(reason)},
                           NULL);
}

/* Settles all that was not handed out. */
static void settle_left(quoth_lot *lot, uint8_t kind, uint64_t milliseconds, const char *reason) {
    if (lot->record < lot->end)
        settle(lot, kind, lot->part.token, lot->part.after + 1, lot->part.until, milliseconds, reason);
    for (const quoth_held *held = lot->held + lot->current; held < lot->held + lot->count; held++)
        if (held->after < held->until) settle(lot, kind, held->token, held->after + 1, held->until, milliseconds, reason);
}

void quoth_lot_release(quoth_lot *lot) {
    if (quoth_now() < lot->deadline) settle_left(lot, QUOTH_SETTLE_RELEASE, 0, "");
    quoth_lot_close(lot);
}

/* ---- parts ---- */

static void report(const quoth_lot *lot, uint64_t after, uint64_t next, int64_t records, int64_t ordinal) {
    quoth_gap gap = {lot->topic, after, next, records, QUOTH_GAP_DAMAGED, ordinal};
    if (lot->on_gap) lot->on_gap(lot->context, &gap);
}

/* Opens the batch at the position. Returns 0 at the end, and for a header that cannot be read: all behind it is given
 * back. */
static int open_batch(quoth_lot *lot) {
    quoth_span payload = quoth_frame(&lot->answer.payload);
    if (lot->has_batch) return 1;
    if (lot->position >= payload.size) return 0;
    quoth_span rest = {payload.bytes + lot->position, payload.size - lot->position};
    if (quoth_batch_read_header(rest.bytes, rest.size, lot->log, &lot->header)) {
        settle_left(lot, QUOTH_SETTLE_NACK, 0, UNREADABLE);
        return 0;
    }
    size_t size = QUOTH_BATCH_HEADER + (size_t)lot->header.body_bytes;
    lot->problem = size > rest.size ? QUOTH_BATCH_SHORT : quoth_batch_parse(rest.bytes, size, lot->log, &lot->batch);
    lot->has_batch = 1;
    return 1;
}

static void close_batch(quoth_lot *lot) {
    lot->position += QUOTH_BATCH_HEADER + (size_t)lot->header.body_bytes;
    lot->has_batch = 0;
}

static uint64_t last_of(const quoth_batch_header *header) { return header->base + header->records - 1; }

/* The next lease that has records of the open batch; NULL for none. */
static quoth_held *next_lease(quoth_lot *lot) {
    for (size_t row = lot->current; row < lot->count; row++) {
        quoth_held *held = &lot->held[row];
        uint64_t first = held->after + 1 > lot->header.base ? held->after + 1 : lot->header.base;
        if (first > held->until || first > last_of(&lot->header)) continue;
        lot->current = row;
        return held;
    }
    return NULL;
}

/* Takes the records of the open batch that belong to a lease. Returns 0 if they do not check: then they are reported,
 * and finished, since no member can read them. */
static int open_part(quoth_lot *lot, quoth_held *held) {
    const quoth_batch_header *header = &lot->header;
    uint64_t first = held->after + 1 > header->base ? held->after + 1 : header->base;
    uint64_t last = held->until < last_of(header) ? held->until : last_of(header), after = held->after;
    int64_t ordinal = (int64_t)(header->ordinal + (first - header->base));
    if (held->ordinal >= 0 && held->ordinal < ordinal)
        report(lot, after, first, ordinal - held->ordinal, held->ordinal);
    held->ordinal = (int64_t)((uint64_t)ordinal + (last - first + 1));
    held->after = last;
    lot->part = (quoth_held){held->token, held->attempts, after, last, ordinal};
    if (last == held->until) lot->current++;
    if (lot->problem) {
        report(lot, first - 1, last + 1, (int64_t)(last - first + 1), ordinal);
        settle(lot, QUOTH_SETTLE_ACK, held->token, after + 1, last, 0, "");
        return 0;
    }
    lot->record = (uint32_t)(first - header->base);
    lot->end = (uint32_t)(last - header->base) + 1;
    return 1;
}

static int next_part(quoth_lot *lot) {
    while (lot->current < lot->count && open_batch(lot)) {
        quoth_held *held = next_lease(lot);
        if (!held)
            close_batch(lot);
        else if (open_part(lot, held))
            return 1;
    }
    return 0;
}

/* 1 while the records at hand are under their lease, which is extended in its second half. */
static int is_held(quoth_lot *lot) {
    if (!lot->part.token) return 1;
    int64_t now = quoth_now();
    if (now >= lot->deadline) return 0;
    if (lot->deadline - now < lot->lease_ms / 2) {
        settle_left(lot, QUOTH_SETTLE_EXTEND, (uint64_t)lot->lease_ms, "");
        lot->deadline = quoth_later(now, lot->lease_ms);
        lot->was_extended = 1;
    }
    return 1;
}

int quoth_lot_has_record(quoth_lot *lot) {
    if (!lot->answer.is_open) return 0;
    if ((lot->record < lot->end || next_part(lot)) && is_held(lot)) return 1;
    lot->count = lot->current = 0; /* the bytes stay until the next fetch */
    lot->record = lot->end = 0;
    return 0;
}

void quoth_lot_hand_out(quoth_lot *lot, quoth_leased *leased) {
    quoth_message_of(&lot->batch, lot->record++, &leased->message);
    leased->attempts = lot->part.attempts;
    leased->lease =
        (quoth_lease){lot->part.after + 1, leased->message.pointer, lot->part.token, lot->generation};
    lot->part.after = leased->message.pointer;
}
