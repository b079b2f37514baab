/* Implements settling.h. */

#include "settling.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LINGER_MS = 5, ROOM_MIN = 16 };

void quoth_settling_begin(quoth_settling *settling, quoth_channel *channel, const char *topic, const char *group,
                          int64_t timeout_ms) {
    settling->channel = channel;
    settling->topic = topic;
    settling->group = group;
    settling->timeout_ms = timeout_ms;
    settling->behind = &settling->oldest;
    settling->due = QUOTH_NEVER;
}

static void remove_oldest(quoth_settling *settling) {
    quoth_rows *rows = settling->oldest;
    settling->oldest = rows->next;
    if (!settling->oldest) settling->behind = &settling->oldest;
    settling->count--;
    quoth_channel_forget(settling->channel, &rows->request);
    free(rows->bytes);
    free(rows);
}

void quoth_settling_end(quoth_settling *settling) {
    while (settling->oldest) remove_oldest(settling);
}

/* ---- rows ---- */

static void row_at(const quoth_rows *rows, size_t place, quoth_settlement *row) {
    quoth_settlement_read(rows->bytes + QUOTH_SETTLEMENT_BYTES * place, row);
}

/* Finds the place of a row among the others. Returns 0 if it overlaps one of them. */
static int find_place(const quoth_rows *rows, const quoth_settlement *row, size_t *place) {
    quoth_settlement other = {0, 0, 0, 0, 0};
    for (*place = rows->count; *place; --*place) {
        row_at(rows, *place - 1, &other);
        if (other.first <= row->last) return other.last < row->first;
    }
    return 1;
}

static int grow(quoth_rows *rows) {
    if (rows->count < rows->room) return 1;
    size_t room = rows->room ? 2 * rows->room : ROOM_MIN;
    uint8_t *bytes = realloc(rows->bytes, QUOTH_SETTLEMENT_BYTES * room);
    if (!bytes) return 0;
    rows->bytes = bytes;
    rows->room = room;
    return 1;
}

/* Acknowledged records that follow others of their lease make one row with them. */
static int is_merged(quoth_rows *rows, const quoth_settlement *row, size_t place) {
    quoth_settlement before;
    if (!place || row->kind != QUOTH_SETTLE_ACK) return 0;
    row_at(rows, place - 1, &before);
    if (before.kind != QUOTH_SETTLE_ACK || before.token != row->token || before.last + 1 != row->first) return 0;
    before.last = row->last;
    quoth_settlement_write(rows->bytes + QUOTH_SETTLEMENT_BYTES * (place - 1), &before);
    return 1;
}

static int insert(quoth_rows *rows, const quoth_settlement *row, size_t place) {
    if (is_merged(rows, row, place)) return 1;
    if (!grow(rows)) return 0;
    uint8_t *at = rows->bytes + QUOTH_SETTLEMENT_BYTES * place;
    memmove(at + QUOTH_SETTLEMENT_BYTES, at, QUOTH_SETTLEMENT_BYTES * (rows->count - place));
    quoth_settlement_write(at, row);
    rows->count++;
    return 1;
}

/* 1 if the rows take another one. place: its place. */
static int fits(const quoth_rows *rows, const quoth_settlement *row, uint64_t generation, quoth_span reason,
                size_t *place) {
    int needs_reason = row->kind == QUOTH_SETTLE_NACK || row->kind == QUOTH_SETTLE_TERM;
    int is_reason = strlen(rows->reason) == reason.size
                    && (!reason.size || memcmp(rows->reason, reason.bytes, reason.size) == 0);
    return rows->generation == generation && rows->count < QUOTH_SETTLEMENTS_MAX
           && (!needs_reason || !rows->has_reason || is_reason) && find_place(rows, row, place);
}

static quoth_rows *begin_rows(quoth_settling *settling, uint64_t generation) {
    quoth_rows *rows = calloc(1, sizeof *rows);
    if (!rows) return NULL;
    rows->generation = generation;
    *settling->behind = rows;
    settling->behind = &rows->next;
    settling->count++;
    settling->filling = rows;
    settling->due = quoth_later(quoth_now(), LINGER_MS);
    return rows;
}

int quoth_settling_add(quoth_settling *settling, const quoth_settlement *row, uint64_t generation, quoth_span reason,
                       quoth_error *error) {
    quoth_rows *rows = settling->filling;
    size_t place = 0;
    if (!rows || !fits(rows, row, generation, reason, &place)) {
        if (settling->count == QUOTH_SETTLING_MAX)
            return quoth_fail(error, QUOTH_BUSY, NULL, "group %s: settlements wait for answers", settling->group);
        rows = begin_rows(settling, generation);
        place = 0;
    }
    if (!rows || !insert(rows, row, place)) return quoth_fail_memory(error);
    if (row->kind == QUOTH_SETTLE_NACK || row->kind == QUOTH_SETTLE_TERM) {
        rows->has_reason = 1;
        if (reason.size) memcpy(rows->reason, reason.bytes, reason.size);
        rows->reason[reason.size] = 0;
    }
    return QUOTH_OK;
}

/* ---- outcomes ---- */

static void note(quoth_settling *settling, const quoth_error *failure) {
    if (!settling->failure.code) settling->failure = *failure;
}

static void lose(quoth_settling *settling, const quoth_settlement *row) {
    static const char *const KINDS[] = {"", "ack", "nack", "extend", "term", "release"};
    quoth_error lost;
    settling->counts.lost++;
    quoth_fail(&lost, QUOTH_LEASE_LOST, NULL, "%s of %" PRIu64 " to %" PRIu64 ": the member has no lease of it now",
               KINDS[row->kind], row->first, row->last);
    note(settling, &lost);
}

/* Counts the rows without an effect. An ack has none if the group was moved, and then no row has. A nack, a term or a
 * release that the answer to one of several copies calls lost may have been executed by an earlier copy. */
static void take_lost(quoth_settling *settling, const quoth_rows *rows, quoth_span lost) {
    quoth_value head;
    uint64_t range[2];
    size_t place = 0;
    if (!quoth_unpack(&lost, &head)) return;
    int is_moved = head.number == rows->count, may_be_done = rows->request.unanswered > 0;
    for (uint64_t left = head.number; left && quoth_row_next(&lost, 2, range); left--) {
        quoth_settlement row = {0, 0, 0, 0, 0};
        while (place < rows->count && row.first < range[0]) row_at(rows, place++, &row);
        if (row.first != range[0] || row.last != range[1]) continue;
        if (row.kind == QUOTH_SETTLE_ACK ? is_moved : row.kind == QUOTH_SETTLE_EXTEND || !may_be_done)
            lose(settling, &row);
    }
}

static void take_outcome(quoth_settling *settling) {
    const quoth_rows *rows = settling->oldest;
    const quoth_msg_group_settled *settled = &rows->request.message.group_settled;
    if (rows->request.code) {
        note(settling, &rows->request.error);
    } else {
        settling->counts.finished += settled->records;
        settling->counts.late += settled->late;
        take_lost(settling, rows, settled->lost);
    }
    remove_oldest(settling);
}

static void launch(quoth_settling *settling, quoth_rows *rows) {
    quoth_request *request = &rows->request;
    if (rows == settling->filling) {
        settling->filling = NULL;
        settling->due = QUOTH_NEVER;
    }
    quoth_request_begin(settling->channel, request, QUOTH_OP_GROUP_SETTLE, settling->topic, settling->timeout_ms);
    quoth_msg_group_settle *settle = &request->message.group_settle;
    settle->group = (quoth_span){(const uint8_t *)settling->group, strlen(settling->group)};
    settle->rows = rows->count;
    settle->generation = rows->generation;
    settle->reason = (quoth_span){(const uint8_t *)rows->reason, strlen(rows->reason)};
    rows->payload = (quoth_span){rows->bytes, QUOTH_SETTLEMENT_BYTES * rows->count};
    request->payload = &rows->payload;
    quoth_channel_ask(settling->channel, request);
}

void quoth_settling_send(quoth_settling *settling, int all) {
    while (settling->oldest && settling->oldest->request.state != QUOTH_ASKED) {
        quoth_rows *rows = settling->oldest;
        if (rows->request.state == QUOTH_SETTLED)
            take_outcome(settling);
        else if (rows != settling->filling || all || quoth_now() >= settling->due)
            launch(settling, rows);
        else
            return;
    }
}
