/* A reader: a position in one topic that moves over its batches, with the fetch of the next ones in flight.
 *
 *     a fetch is in flight --> an answer is open --> a batch of it is open --> its records, one a call
 *              ^                     | (the fetch behind it is sent at once)
 *              +---------------------+
 *
 * `after` is the pointer up to which everything was handed out or reported, with the open batch counted whole. */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "client.h"

enum { WAIT_MS = 30000 }; /* for which the broker holds a fetch; then another one is sent */

#define NOT_KNOWN (-1)

struct quoth_reader {
    quoth_channel channel;
    quoth_request fetch;
    uint64_t fetched_after; /* the cursor of that fetch */
    int is_early;           /* it was sent before its answer was needed */
    char topic[QUOTH_NAME_BYTES_MAX + 1];
    uint64_t until, left; /* left: records that may be read */
    uint64_t fetch_bytes;
    int durability;
    int64_t timeout_ms;
    quoth_on_gap on_gap;
    void *context;

    uint64_t after, log;
    int64_t ordinal;   /* records that the log held up to the cursor, or NOT_KNOWN */
    int64_t old_after; /* the cursor in a deleted topic of the same name, until that gap was reported; -1: none */
    int is_time;       /* the beginning is a time: it may lie above the newest record */
    int seeks_end;     /* the end of the topic is to be found first */
    int is_ahead, has_asked, has_answered;
    int fetches_one; /* a header was damaged: the next batch is fetched alone */

    quoth_reply answer; /* the open one */
    quoth_msg_fetched fetched;
    size_t position; /* in its payload; 0 before the first batch */
    quoth_batch batch;
    uint32_t record; /* the next one of the open batch */
};

static const quoth_reader_options DEFAULTS = QUOTH_READER_OPTIONS;

/* ---- opening ---- */

static int begin(quoth_reader *reader, const quoth_reader_options *options, quoth_error *error) {
    reader->seeks_end = !options->since && options->after == QUOTH_NEWEST;
    reader->after = options->since ? options->since - 1 : reader->seeks_end ? 0 : options->after;
    reader->is_time = options->since != 0;
    reader->until = options->until ? options->until : QUOTH_BATCH_POINTER_MAX;
    if (reader->after > QUOTH_BATCH_POINTER_MAX || reader->until > QUOTH_BATCH_POINTER_MAX)
        return quoth_fail(error, QUOTH_BAD_POINTER, NULL, "a pointer above 2^56 - 1");
    reader->left = options->limit ? options->limit : UINT64_MAX;
    reader->log = options->log;
    reader->ordinal = options->log ? options->ordinal : NOT_KNOWN;
    reader->old_after = -1;
    reader->fetch_bytes = options->fetch_bytes ? options->fetch_bytes : 1u << 20;
    /* QUOTH_WRITTEN is what the topic shows: so it is not sent, and an older broker understands it. */
    reader->durability = options->durability == QUOTH_WRITTEN ? QUOTH_DEFAULT : options->durability;
    reader->on_gap = options->on_gap;
    reader->context = options->context;
    return QUOTH_OK;
}

int quoth_reader_open(quoth_client *client, const char *topic, const quoth_reader_options *options,
                      quoth_reader **reader, quoth_error *error) {
    quoth_reader_options taken = DEFAULTS;
    *reader = NULL;
    if (options) memcpy(&taken, options, options->size < sizeof taken ? options->size : sizeof taken);
    int code = quoth_check_topic(topic, error);
    if (code) return code;
    quoth_reader *made = calloc(1, sizeof *made);
    if (!made) return quoth_fail_memory(error);
    memcpy(made->topic, topic, strlen(topic));
    made->timeout_ms = client->channel.link.shared->timeout_ms;
    code = begin(made, &taken, error);
    if (!code) code = quoth_channel_open(&made->channel, client->channel.link.shared, error);
    if (code)
        free(made);
    else
        *reader = made;
    return code;
}

void quoth_reader_close(quoth_reader *reader) {
    if (!reader) return;
    quoth_channel_forget(&reader->channel, &reader->fetch);
    quoth_reply_close(&reader->answer);
    quoth_channel_close(&reader->channel);
    free(reader);
}

/* ---- gaps ---- */

static void report(const quoth_reader *reader, uint64_t after, uint64_t next, int64_t records, int reason,
                   int64_t ordinal) {
    quoth_gap gap = {reader->topic, after, next, records, reason, ordinal};
    if (reader->on_gap) reader->on_gap(reader->context, &gap);
}

/* Without an overflow, whatever a broker has answered. */
static int64_t difference(uint64_t number, uint64_t less) { return (int64_t)(number - less); }

static int64_t behind(int64_t ordinal, int64_t records) {
    return ordinal >= 0 && records >= 0 ? (int64_t)((uint64_t)ordinal + (uint64_t)records) : NOT_KNOWN;
}

/* Reports once that the cursor lies above the newest record; a synced read may not have reached it. */
static void check_ahead(quoth_reader *reader) {
    int was_ahead = reader->is_ahead, may_be = !reader->is_time && reader->durability == QUOTH_DEFAULT;
    reader->is_ahead = may_be && reader->fetched.newest < reader->after;
    if (reader->is_ahead && !was_ahead)
        report(reader, reader->fetched.newest, reader->after + 1, 0, QUOTH_GAP_AHEAD, (int64_t)reader->fetched.end);
}

static void report_recreated(quoth_reader *reader, uint64_t next) {
    report(reader, (uint64_t)reader->old_after, next, NOT_KNOWN, QUOTH_GAP_RECREATED, NOT_KNOWN);
    reader->old_after = -1;
}

/* Moves to the pointer `last` and reports everything up to it as damaged. */
static void skip_damage(quoth_reader *reader, uint64_t last, int64_t records, int64_t ordinal) {
    uint64_t before = reader->after;
    if (last > reader->after) reader->after = last;
    report(reader, before, last + 1, records, QUOTH_GAP_DAMAGED, ordinal);
}

/* Moves behind a batch that was fetched alone, and whose header cannot be read. */
static void skip_unknown(quoth_reader *reader) {
    reader->fetches_one = 0;
    skip_damage(reader, reader->fetched.next, NOT_KNOWN, reader->ordinal);
    reader->ordinal = NOT_KNOWN;
}

/* Reports what is missing between the cursor and the first batch of an answer. */
static void report_front(quoth_reader *reader, const quoth_batch_header *first) {
    int64_t damaged = (int64_t)reader->fetched.damaged;
    int64_t removed = difference(reader->fetched.gone, reader->fetched.damaged), ordinal = reader->ordinal;
    uint64_t before = reader->after;
    if (reader->old_after >= 0) report_recreated(reader, first->base);
    if (reader->ordinal >= 0) {
        int64_t missing = difference(first->ordinal, (uint64_t)reader->ordinal);
        if (missing < 0) missing = 0;
        if (damaged > missing) damaged = missing;
        removed = missing - damaged;
        reader->ordinal = (int64_t)first->ordinal;
    } else if (reader->after) { /* the cursor may stand anywhere among them, so their number is not known */
        damaged = damaged ? NOT_KNOWN : 0;
        removed = removed ? NOT_KNOWN : 0;
    } else { /* reading begins with the oldest record: what was before it is no loss */
        removed = 0;
        ordinal = difference(first->ordinal, reader->fetched.damaged);
    }
    if ((removed || damaged) && first->base - 1 > reader->after) reader->after = first->base - 1;
    if (removed) report(reader, before, first->base, removed, QUOTH_GAP_TRIMMED, ordinal);
    if (damaged) report(reader, before, first->base, damaged, QUOTH_GAP_DAMAGED, behind(ordinal, removed));
}

/* Moves to the end of the range. nothing: no batch lay in front of it. */
static void reach_end(quoth_reader *reader, int nothing) {
    const quoth_msg_fetched *fetched = &reader->fetched;
    uint64_t before = reader->after, next = reader->until + 1;
    int has_begun = before > 0 || reader->ordinal >= 0;
    if (reader->after < reader->until) reader->after = reader->until;
    if (reader->old_after >= 0) {
        report_recreated(reader, next);
        return;
    }
    if (nothing && has_begun && fetched->gone > fetched->damaged)
        report(reader, before, next, NOT_KNOWN, QUOTH_GAP_TRIMMED, reader->ordinal);
    if (nothing && fetched->damaged)
        report(reader, before, next, NOT_KNOWN, QUOTH_GAP_DAMAGED, reader->ordinal);
}

/* ---- batches ---- */

static void close_answer(quoth_reader *reader) {
    quoth_reply_close(&reader->answer);
    reader->position = 0;
}

static void close_batch(quoth_reader *reader) { reader->batch.header.records = reader->record = 0; }

/* Moves behind one batch, whose header is valid. Returns 1 if it is open, 0 if its body is damaged or nothing of it
 * is wanted. */
static int open_batch(quoth_reader *reader, quoth_span rest, const quoth_batch_header *header) {
    uint64_t last = header->base + header->records - 1, before = reader->after;
    if (reader->ordinal >= 0 && (uint64_t)reader->ordinal < header->ordinal)
        skip_damage(reader, header->base - 1, difference(header->ordinal, (uint64_t)reader->ordinal), reader->ordinal);
    if (reader->after > before) before = reader->after;
    if (header->base - 1 > before) before = header->base - 1;
    reader->ordinal = (int64_t)(header->ordinal + header->records);
    if (last <= before) return 0;
    uint32_t skip = (uint32_t)(before - (header->base - 1));
    size_t size = QUOTH_BATCH_HEADER + (size_t)header->body_bytes;
    if (size > rest.size || quoth_batch_parse(rest.bytes, size, reader->log, &reader->batch)) {
        close_batch(reader);
        skip_damage(reader, last, (int64_t)(last - before), (int64_t)(header->ordinal + skip));
        return 0;
    }
    reader->record = skip;
    reader->after = last;
    reader->is_time = 0;
    return 1;
}

/* Opens the next batch of the open answer. Returns 0 at its end, and closes it. */
static int next_batch(quoth_reader *reader) {
    quoth_batch_header header;
    quoth_span payload = quoth_frame(&reader->answer.payload);
    close_batch(reader);
    while (reader->position < payload.size) {
        quoth_span rest = {payload.bytes + reader->position, payload.size - reader->position};
        int is_first = !reader->position;
        if (quoth_batch_read_header(rest.bytes, rest.size, reader->log, &header)) {
            if (is_first && reader->fetches_one) /* neither alone: the answer says where it ends */
                skip_unknown(reader);
            else
                reader->fetches_one = 1;
            close_answer(reader);
            return 0;
        }
        reader->fetches_one = 0;
        if (header.base > reader->until) break;
        if (is_first) report_front(reader, &header);
        reader->position += QUOTH_BATCH_HEADER + (size_t)header.body_bytes;
        if (open_batch(reader, rest, &header)) return 1;
    }
    if (reader->position < payload.size || reader->fetched.next >= reader->until) reach_end(reader, !reader->position);
    close_answer(reader);
    return 0;
}

/* ---- fetches ---- */

static void ask(quoth_reader *reader, uint64_t after, int64_t ordinal, uint64_t left, int64_t wait_ms) {
    quoth_request *request = &reader->fetch;
    quoth_request_begin(&reader->channel, request, QUOTH_OP_FETCH, reader->topic, quoth_later(wait_ms, reader->timeout_ms));
    quoth_msg_fetch *fetch = &request->message.fetch;
    request->wait_ms = wait_ms;
    fetch->after = after;
    fetch->ordinal = ordinal;
    if (left < fetch->records_max) fetch->records_max = left;
    if (reader->fetches_one) fetch->records_max = 1;
    fetch->bytes_max = reader->fetch_bytes;
    fetch->wait_ms = (uint64_t)wait_ms;
    fetch->until = reader->until < QUOTH_BATCH_POINTER_MAX ? reader->until : 0;
    fetch->durability = quoth_durability_text(reader->durability);
    reader->fetched_after = after;
    reader->has_asked = 1;
    reader->is_early = 0;
    quoth_channel_ask(&reader->channel, request);
}

/* Sends the fetch at the cursor. A cursor that may lie above the newest record is not waited for at first: that is
 * reported at once. */
static void fetch_next(quoth_reader *reader, int64_t wait_ms) {
    int is_sure = reader->has_asked || reader->has_answered || reader->is_time || !reader->after;
    if (reader->seeks_end)
        ask(reader, QUOTH_BATCH_POINTER_MAX, NOT_KNOWN, 1, 0);
    else
        ask(reader, reader->after, reader->ordinal, reader->left, is_sure || wait_ms < WAIT_MS ? wait_ms : 0);
}

/* Sends the fetch behind the batches of the open answer, if they are whole and more may be wanted. */
static void fetch_ahead(quoth_reader *reader, int64_t wait_ms) {
    quoth_span payload = quoth_frame(&reader->answer.payload);
    quoth_batch_header first;
    if (quoth_batch_read_header(payload.bytes, payload.size, reader->log, &first)) return;
    quoth_batch_place place = {0, first.base - 1, first.ordinal, 0};
    quoth_batch_walk(payload.bytes, payload.size, reader->log, QUOTH_BATCH_POINTER_MAX, UINT64_MAX, &place);
    uint64_t records = place.ordinal - first.ordinal; /* some of them may not be wanted: then it is asked later */
    if (place.end != payload.size || place.pointer >= reader->until || records >= reader->left) return;
    if (!wait_ms && place.pointer >= reader->fetched.newest) return; /* there is none now; later there may be some */
    ask(reader, place.pointer, (int64_t)place.ordinal, reader->left - records, wait_ms);
    reader->is_early = 1;
}

static void go_to_end(quoth_reader *reader) {
    reader->after = reader->fetched.newest;
    reader->ordinal = (int64_t)reader->fetched.end;
    reader->log = reader->fetched.log;
    reader->seeks_end = 0;
    quoth_reply_close(&reader->answer);
}

/* Opens the answer of the settled fetch. Returns 1 if it has batches. */
static int open_answer(quoth_reader *reader, int64_t wait_ms) {
    quoth_reply_move(&reader->answer, &reader->fetch.reply);
    reader->fetched = reader->fetch.message.fetched;
    quoth_request_end(&reader->fetch);
    reader->position = 0;
    reader->has_answered = 1;
    if (reader->seeks_end) {
        go_to_end(reader);
        return 0;
    }
    if (reader->log && reader->log != reader->fetched.log) { /* another log: none of its records was read */
        reader->old_after = (int64_t)reader->after;
        reader->after = 0;
        reader->ordinal = NOT_KNOWN;
        reader->log = reader->fetched.log;
        quoth_reply_close(&reader->answer);
        return 1; /* there may be records in it */
    }
    reader->log = reader->fetched.log;
    int has_batches = zmq_msg_size(&reader->answer.payload) > 0;
    if (!has_batches && reader->fetched.newest == reader->after) reader->ordinal = (int64_t)reader->fetched.end;
    check_ahead(reader);
    if (has_batches) fetch_ahead(reader, wait_ms);
    return has_batches;
}

/* ---- reading ---- */

static void hand_out(quoth_reader *reader, quoth_message *message) {
    quoth_message_of(&reader->batch, reader->record++, message);
    reader->left--;
}

/* 1 if the open batch has another record that is wanted. */
static int has_record(const quoth_reader *reader) {
    return reader->record < reader->batch.header.records && reader->left
           && reader->batch.header.base + reader->record <= reader->until;
}

/* Waits for the fetch in flight, and sends one if there is none that helps. Returns its code, QUOTH_END if it has not
 * come by then. is_fresh: 1 if the answer shows what is there now. */
static int await(quoth_reader *reader, int64_t wait_ms, int64_t until, int *is_fresh) {
    quoth_request *fetch = &reader->fetch;
    int64_t hold_ms = !wait_ms ? 0 : wait_ms == QUOTH_NOWAIT ? WAIT_MS : until - quoth_now();
    if (hold_ms > WAIT_MS) hold_ms = WAIT_MS;
    if (hold_ms < 0) hold_ms = 0;
    if (reader->is_early) fetch->deadline = quoth_later(quoth_now(), quoth_later(fetch->wait_ms, reader->timeout_ms));
    reader->is_early = 0;
    if (fetch->state == QUOTH_ASKED) quoth_channel_turn(&reader->channel, 0);
    if (fetch->state != QUOTH_IDLE
        && (reader->fetched_after != reader->after || (fetch->state == QUOTH_ASKED && !wait_ms && fetch->wait_ms)))
        quoth_channel_forget(&reader->channel, fetch); /* of another cursor, or one that would be held */
    *is_fresh = fetch->state == QUOTH_IDLE;
    if (fetch->state == QUOTH_IDLE) fetch_next(reader, hold_ms);
    if (wait_ms != QUOTH_NOWAIT && fetch->wait_ms <= hold_ms) until = QUOTH_NEVER; /* its own deadline ends it */
    while (fetch->state == QUOTH_ASKED) {
        quoth_channel_turn(&reader->channel, until);
        if (fetch->state == QUOTH_ASKED && quoth_now() >= until) return QUOTH_END;
    }
    return fetch->code;
}

/* Takes the error of the settled fetch. Returns QUOTH_END if a topic that does not exist yet is waited for. */
static int fail(quoth_reader *reader, int64_t wait_ms, quoth_error *error) {
    int code = reader->fetch.code;
    if (code == QUOTH_UNKNOWN_TOPIC && reader->seeks_end) {
        reader->seeks_end = 0; /* its first record will be the newest */
        code = QUOTH_END;
    } else if (code == QUOTH_UNKNOWN_TOPIC && !reader->has_answered && wait_ms) {
        code = QUOTH_END;
    } else {
        quoth_pass_error(&reader->fetch.error, error);
    }
    quoth_request_end(&reader->fetch);
    return code;
}

/* Makes the next batch the open one. Not inlined: its registers would be saved for every record. */
__attribute__((__noinline__)) static int read_on(quoth_reader *reader, int64_t wait_ms, quoth_error *error) {
    if (!reader->left || reader->record < reader->batch.header.records) return QUOTH_END; /* it ends in this batch */
    int64_t until = quoth_later(quoth_now(), wait_ms), give_up = quoth_later(until, reader->timeout_ms);
    for (;;) {
        int is_fresh;
        while (reader->answer.is_open)
            if (next_batch(reader)) return has_record(reader) ? QUOTH_OK : QUOTH_END;
        close_batch(reader);
        if (reader->after >= reader->until) return QUOTH_END;
        if (quoth_now() >= give_up)
            return quoth_fail(error, QUOTH_TIMED_OUT, NULL, "fetch %s: nothing of the answers can be read", reader->topic);
        int had_end = !reader->seeks_end;
        int code = await(reader, wait_ms, until, &is_fresh);
        if (code == QUOTH_END) return QUOTH_END;
        if (code) {
            code = fail(reader, wait_ms, error);
            if (code != QUOTH_END) return code;
        } else if (open_answer(reader, wait_ms < 0 || wait_ms > WAIT_MS ? WAIT_MS : wait_ms)) {
            continue;
        }
        if (reader->answer.is_open) next_batch(reader); /* there is none; the end of the range may be reached */
        if (wait_ms ? wait_ms != QUOTH_NOWAIT && quoth_now() >= until : is_fresh && had_end) return QUOTH_END;
        if (wait_ms == QUOTH_NOWAIT && reader->fetch.state == QUOTH_ASKED) return QUOTH_END;
    }
}

int quoth_read(quoth_reader *reader, int64_t wait_ms, quoth_message *message, quoth_error *error) {
    if (!has_record(reader)) {
        if (error) quoth_no_error(error);
        int code = read_on(reader, wait_ms < 0 ? QUOTH_NOWAIT : wait_ms, error);
        if (code) return code;
    }
    hand_out(reader, message);
    return QUOTH_OK;
}

void quoth_reader_position(const quoth_reader *reader, quoth_position *position) {
    uint32_t left = reader->batch.header.records - reader->record;
    position->cursor = left ? reader->batch.header.base + reader->record - 1 : reader->after;
    position->log = reader->log;
    position->ordinal = reader->ordinal >= 0 ? reader->ordinal - (int64_t)left : NOT_KNOWN;
}

int64_t quoth_reader_descriptors(quoth_reader *reader, int descriptors[2]) {
    int is_ready = quoth_link_descriptors(&reader->channel.link, descriptors);
    if (is_ready || has_record(reader) || reader->answer.is_open || reader->fetch.state != QUOTH_ASKED) return 0;
    int64_t left = reader->channel.due - quoth_now();
    return left > 0 ? left : 0;
}
