/* A member of a group: its fetches, the records at hand, its settlements.
 *
 *     fetch in flight --answered--> lot --> records, one a call --> settlements
 *
 * A fetch is never forgotten, because its answer brings records under a lease. So the broker holds it for a second at
 * most: what it brings to a member that has died meanwhile is handed out again only after the lease. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "lot.h"

enum { HOLD_MS = 1000, EXTEND_MS = 1000, SLOW_MS = 5, MEMBER_BYTES_MAX = 200 };

struct quoth_group {
    quoth_channel channel;
    quoth_request fetch;
    char topic[QUOTH_NAME_BYTES_MAX + 1], name[QUOTH_GROUP_BYTES_MAX + 1], member[MEMBER_BYTES_MAX + 1];
    uint64_t fetch_records, fetch_bytes, lease_ms;
    int64_t timeout_ms;
    int64_t handed_out_at; /* when the last record was handed out */
    uint64_t seen; /* all records up to this pointer were handed out to some member, in this generation */
    uint64_t generation;
    quoth_settling settling;
    quoth_lot lot;
};

static const quoth_group_options DEFAULTS = QUOTH_GROUP_OPTIONS;

/* ---- opening ---- */

static int take_name(quoth_group *member, const quoth_client *client, const char *given, quoth_error *error) {
    char host[64] = "";
    if (given && strlen(given) > MEMBER_BYTES_MAX)
        return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "a member's name of %zu bytes, at most %d", strlen(given),
                          MEMBER_BYTES_MAX);
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    if (given)
        memcpy(member->member, given, strlen(given));
    else
        snprintf(member->member, sizeof member->member, "%s@%s:%ld", client->name, host, (long)getpid());
    return QUOTH_OK;
}

static int take_options(quoth_group *member, const quoth_client *client, const quoth_group_options *options,
                        quoth_error *error) {
    if (options->lease_ms > (int64_t)QUOTH_SETTLE_MS_MAX)
        return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "a lease of %" PRId64 " ms, at most %u", options->lease_ms,
                          QUOTH_SETTLE_MS_MAX);
    member->fetch_records = options->fetch_records ? options->fetch_records : 100;
    member->fetch_bytes = options->fetch_bytes ? options->fetch_bytes : 1u << 20;
    member->lease_ms = options->lease_ms > 0 ? (uint64_t)options->lease_ms : 0;
    member->timeout_ms = client->channel.link.shared->timeout_ms;
    member->lot.topic = member->topic;
    member->lot.on_gap = options->on_gap;
    member->lot.context = options->context;
    member->lot.settling = &member->settling;
    return take_name(member, client, options->member, error);
}

/* Creates the group, or looks whether it has these settings. */
static int join(quoth_group *member, const quoth_group_options *options, quoth_error *error) {
    uint8_t buffer[QUOTH_GROUP_SETTINGS_BYTES];
    quoth_request *request = &member->fetch;
    quoth_request_begin(&member->channel, request, QUOTH_OP_OPEN_GROUP, member->topic, member->timeout_ms);
    quoth_msg_open_group *open = &request->message.open_group;
    open->group = quoth_span_of(member->name);
    int code = quoth_group_place(options->start, &open->start, error);
    if (!code) code = quoth_pack_group_settings(options->settings, buffer, &open->settings, error);
    if (!code) code = quoth_channel_settle(&member->channel, request, error);
    if (!code) {
        member->seen = request->message.group_info.cursor;
        member->generation = request->message.group_info.generation;
    }
    quoth_request_end(request);
    return code;
}

int quoth_group_open(quoth_client *client, const char *topic, const char *group, const quoth_group_options *options,
                     quoth_group **member, quoth_error *error) {
    quoth_group_options taken = DEFAULTS;
    *member = NULL;
    if (options) memcpy(&taken, options, options->size < sizeof taken ? options->size : sizeof taken);
    int code = quoth_check_topic(topic, error);
    if (!code) code = quoth_check_group(group, error);
    if (code) return code;
    quoth_group *made = calloc(1, sizeof *made);
    if (!made) return quoth_fail_memory(error);
    memcpy(made->topic, topic, strlen(topic));
    memcpy(made->name, group, strlen(group));
    code = take_options(made, client, &taken, error);
    if (!code) code = quoth_channel_open(&made->channel, client->channel.link.shared, error);
    if (!code) {
        quoth_settling_begin(&made->settling, &made->channel, made->topic, made->name, made->timeout_ms);
        code = join(made, &taken, error);
    }
    if (code)
        quoth_group_close(made);
    else
        *member = made;
    return code;
}

void quoth_group_close(quoth_group *member) {
    if (!member) return;
    quoth_channel_forget(&member->channel, &member->fetch);
    quoth_settling_end(&member->settling);
    quoth_lot_free(&member->lot);
    quoth_channel_close(&member->channel);
    free(member);
}

/* ---- fetching ---- */

static void ask(quoth_group *member, int64_t hold_ms) {
    quoth_request *request = &member->fetch;
    quoth_request_begin(&member->channel, request, QUOTH_OP_GROUP_FETCH, member->topic,
                        quoth_later(hold_ms, member->timeout_ms));
    quoth_msg_group_fetch *fetch = &request->message.group_fetch;
    request->wait_ms = hold_ms;
    fetch->group = quoth_span_of(member->name);
    fetch->member = quoth_span_of(member->member);
    fetch->records_max = member->fetch_records;
    fetch->bytes_max = member->fetch_bytes;
    fetch->wait_ms = (uint64_t)hold_ms;
    fetch->lease_ms = member->lease_ms;
    quoth_channel_ask(&member->channel, request);
}

/* Takes what has arrived, until a time at the latest, and sends the next settlements: a wait gathers no others. */
static void turn(quoth_group *member, int64_t until) {
    quoth_channel_turn(&member->channel, until);
    quoth_settling_send(&member->settling, 1);
}

/* Takes what has arrived, and sends what is due. all: everything is. */
static void push(quoth_group *member, int all) {
    const quoth_rows *oldest = member->settling.oldest;
    if (oldest && oldest->request.state == QUOTH_ASKED) quoth_channel_turn(&member->channel, 0);
    quoth_settling_send(&member->settling, all);
}

/* 1 if a record is at hand. Extensions are sent at once, since the next call may come late: so it waits for the
 * settlements in front of them. */
static int has_record(quoth_group *member) {
    int found = quoth_lot_has_record(&member->lot);
    if (!member->lot.was_extended) return found;
    int64_t give_up = quoth_later(quoth_now(), EXTEND_MS);
    member->lot.was_extended = 0;
    push(member, 1);
    while (member->settling.count > 1 && quoth_now() < give_up) turn(member, give_up);
    return found;
}

/* Waits for the fetch in flight, and sends one if there is none. Returns its code, QUOTH_END if it has not come by
 * then. */
static int await(quoth_group *member, int64_t wait_ms, int64_t until) {
    quoth_request *fetch = &member->fetch;
    int64_t hold_ms = wait_ms == QUOTH_NOWAIT ? HOLD_MS : until - quoth_now();
    if (hold_ms > HOLD_MS) hold_ms = HOLD_MS;
    if (hold_ms < 0) hold_ms = 0;
    if (fetch->state == QUOTH_IDLE) ask(member, hold_ms);
    if (wait_ms != QUOTH_NOWAIT && fetch->wait_ms <= hold_ms) until = QUOTH_NEVER; /* its own deadline ends it */
    while (fetch->state == QUOTH_ASKED) {
        turn(member, until);
        if (fetch->state == QUOTH_ASKED && quoth_now() >= until) return QUOTH_END;
    }
    return fetch->code;
}

static void report(const quoth_group *member, uint64_t next, uint64_t records, int reason) {
    quoth_gap gap = {member->topic, member->seen, next, (int64_t)records, reason, -1};
    if (records && member->lot.on_gap) member->lot.on_gap(member->lot.context, &gap);
}

/* Reports records that no member of the group can get any more: they lie in front of the first new one. */
static void report_gone(quoth_group *member, const quoth_msg_group_fetched *fetched) {
    const quoth_lot *lot = &member->lot;
    if (fetched->generation && fetched->generation != member->generation) member->seen = 0; /* the group was moved */
    if (fetched->generation) member->generation = fetched->generation;
    uint64_t next = UINT64_MAX, last = member->seen;
    for (size_t row = 0; row < lot->count; row++) {
        uint64_t first = lot->held[row].after + 1;
        if (first > member->seen && first < next) next = first;
        if (lot->held[row].until > last) last = lot->held[row].until;
    }
    if (next == UINT64_MAX) next = (fetched->newest > member->seen ? fetched->newest : member->seen) + 1;
    if (fetched->gone > fetched->damaged) report(member, next, fetched->gone - fetched->damaged, QUOTH_GAP_TRIMMED);
    report(member, next, fetched->damaged, QUOTH_GAP_DAMAGED);
    member->seen = last;
}

/* Takes the outcome of the settled fetch. */
static int open_answer(quoth_group *member, quoth_error *error) {
    quoth_request *fetch = &member->fetch;
    quoth_msg_group_fetched fetched = fetch->message.group_fetched;
    int code = fetch->code;
    if (code) {
        quoth_pass_error(&fetch->error, error);
        quoth_request_end(fetch);
        return code;
    }
    quoth_lot_close(&member->lot);
    code = quoth_lot_open(&member->lot, fetch, quoth_now(), error);
    if (code) return code; /* the next call opens it */
    if (fetched.lease_ms < QUOTH_SETTLE_MS_MAX && (int64_t)fetched.lease_ms > member->settling.timeout_ms)
        member->settling.timeout_ms = (int64_t)fetched.lease_ms;
    report_gone(member, &fetched);
    return QUOTH_OK;
}

int quoth_group_fetch(quoth_group *member, int64_t wait_ms, quoth_error *error) {
    quoth_no_error(error);
    if (wait_ms < 0) wait_ms = QUOTH_NOWAIT;
    if (has_record(member)) return QUOTH_OK;
    int64_t until = quoth_later(quoth_now(), wait_ms);
    for (;;) {
        quoth_settling_send(&member->settling, 1); /* in front of the fetch: it may wait for the room that they make */
        int code = await(member, wait_ms, until);
        if (code == QUOTH_END) return code;
        code = open_answer(member, error);
        if (code) return code;
        if (has_record(member)) return QUOTH_OK;
        if (wait_ms != QUOTH_NOWAIT && quoth_now() >= until) return QUOTH_END;
    }
}

int quoth_group_next(quoth_group *member, quoth_leased *leased) {
    int64_t now = quoth_now();
    int is_slow = now - member->handed_out_at >= SLOW_MS; /* so may be what is done with the next one */
    if (member->settling.oldest && (is_slow || now >= member->settling.due)) push(member, is_slow);
    if (!has_record(member)) return QUOTH_END;
    quoth_lot_hand_out(&member->lot, leased);
    member->handed_out_at = now;
    member->settling.counts.fetched++;
    return QUOTH_OK;
}

int64_t quoth_group_descriptors(quoth_group *member, int descriptors[2]) {
    int is_ready = quoth_link_descriptors(&member->channel.link, descriptors);
    int64_t due = member->channel.due < member->settling.due ? member->channel.due : member->settling.due;
    if (is_ready || member->fetch.state != QUOTH_ASKED || has_record(member)) return 0;
    int64_t left = due - quoth_now();
    return left > 0 ? left : 0;
}

/* ---- settling ---- */

/* Cuts a reason to as many characters as the broker keeps. */
static int check_reason(const char *reason, quoth_span *cut, quoth_error *error) {
    *cut = quoth_span_of(reason);
    if (!quoth_is_utf8(*cut)) return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "a reason that is not UTF-8");
    size_t characters = 0, size = 0;
    for (; size < cut->size; size++)
        if ((cut->bytes[size] & 0xc0) != 0x80 && characters++ == QUOTH_REASON_CHARACTERS_MAX) break;
    cut->size = size;
    return QUOTH_OK;
}

static int check_row(const quoth_settlement *row, quoth_error *error) {
    if (row->kind != QUOTH_SETTLE_ACK && !row->token)
        return quoth_fail(error, QUOTH_BAD_REQUEST, "records of a group of mode at_most_once have no lease",
                          "a settlement other than an ack, without a lease");
    switch (quoth_settlement_check(row)) {
    case QUOTH_SETTLEMENT_OK: return QUOTH_OK;
    case QUOTH_SETTLEMENT_LARGE:
        return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "more than %u milliseconds", QUOTH_SETTLE_MS_MAX);
    case QUOTH_SETTLEMENT_POINTER: return quoth_fail(error, QUOTH_BAD_POINTER, NULL, "a pointer above 2^56 - 1");
    case QUOTH_SETTLEMENT_BAD: break;
    }
    return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "a settlement of %" PRIu64 " to %" PRIu64, row->first, row->last);
}

static int settle(quoth_group *member, uint8_t kind, const quoth_lease *lease, uint64_t milliseconds, const char *reason,
                  quoth_error *error) {
    quoth_settlement row = {kind, lease->first, lease->last, lease->token, milliseconds};
    quoth_span cut;
    int code = check_row(&row, error);
    if (!code) code = check_reason(reason, &cut, error);
    if (code || !lease->token) return code; /* an ack without a lease: the record was finished before */
    int64_t give_up = 0;
    while ((code = quoth_settling_add(&member->settling, &row, lease->generation, cut, error)) == QUOTH_BUSY) {
        int64_t now = quoth_now();
        if (!give_up) give_up = quoth_later(now, member->timeout_ms);
        if (now >= give_up) return code;
        quoth_settling_send(&member->settling, 1);
        turn(member, give_up);
    }
    if (quoth_now() >= member->settling.due) push(member, 0);
    return code;
}

int quoth_group_ack(quoth_group *member, const quoth_lease *lease, quoth_error *error) {
    return settle(member, QUOTH_SETTLE_ACK, lease, 0, NULL, error);
}

int quoth_group_nack(quoth_group *member, const quoth_lease *lease, int64_t delay_ms, const char *reason,
                     quoth_error *error) {
    return settle(member, QUOTH_SETTLE_NACK, lease, delay_ms < 0 ? 0 : (uint64_t)delay_ms + 1, reason, error);
}

int quoth_group_release(quoth_group *member, const quoth_lease *lease, quoth_error *error) {
    return settle(member, QUOTH_SETTLE_RELEASE, lease, 0, NULL, error);
}

int quoth_group_extend(quoth_group *member, const quoth_lease *lease, int64_t lease_ms, quoth_error *error) {
    return settle(member, QUOTH_SETTLE_EXTEND, lease, lease_ms < 0 ? 0 : (uint64_t)lease_ms, NULL, error);
}

int quoth_group_term(quoth_group *member, const quoth_lease *lease, const char *reason, quoth_error *error) {
    return settle(member, QUOTH_SETTLE_TERM, lease, 0, reason, error);
}

int quoth_group_flush(quoth_group *member, int64_t wait_ms, quoth_error *error) {
    quoth_settling *settling = &member->settling;
    int64_t until = quoth_later(quoth_now(), wait_ms);
    quoth_no_error(error);
    for (int is_late = 0; settling->oldest; is_late = quoth_now() >= until) {
        quoth_settling_send(settling, 1);
        if (!settling->oldest) break;
        if (is_late)
            return quoth_fail(error, QUOTH_TIMED_OUT, "call again to wait for longer",
                              "group %s: settlements are still on their way", member->name);
        quoth_channel_turn(&member->channel, until);
    }
    quoth_error failure = settling->failure;
    quoth_no_error(&settling->failure);
    return failure.code ? quoth_pass_error(&failure, error) : QUOTH_OK;
}

void quoth_group_count(const quoth_group *member, quoth_group_counts *counts) { *counts = member->settling.counts; }

int quoth_group_leave(quoth_group *member, int64_t wait_ms, quoth_error *error) {
    int64_t until = quoth_later(quoth_now(), wait_ms);
    quoth_error ignored;
    quoth_lot_release(&member->lot);
    while (member->fetch.state == QUOTH_ASKED && quoth_now() < until) turn(member, until);
    if (member->fetch.state == QUOTH_SETTLED && !open_answer(member, &ignored)) quoth_lot_release(&member->lot);
    int64_t left = until - quoth_now();
    return quoth_group_flush(member, left > 0 ? left : 0, error);
}
