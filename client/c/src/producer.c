/* A producer: collects records into batches and keeps several in flight, in order, each stored once. See inflight.h.
 *
 *     filling --full, old enough or flushed--> ready --> in flight --> settled: an ack, or an error */

#include <stdlib.h>
#include <string.h>

#include "inflight.h"

enum { IN_FLIGHT_MAX = 32, /* half of the results that a broker remembers for one producer */
       BATCH_RECORDS = 1000, LINGER_MS = 5, TIMEOUT_MS = 120000 };

#define BATCH_BYTES (1u << 20)
#define BUFFER_BYTES (64u << 20)

struct quoth_producer {
    quoth_link link;
    quoth_producer_options options;
    char topic[QUOTH_NAME_BYTES_MAX + 1];
    size_t payload_bytes_max;
    quoth_inflight inflight;

    quoth_records filling;
    uint64_t filling_number;
    int64_t filling_began;
};

/* ---- opening ---- */

static const quoth_producer_options DEFAULTS = QUOTH_PRODUCER_OPTIONS;

static int take_options(quoth_producer *producer, const quoth_producer_options *given, quoth_error *error) {
    quoth_producer_options *options = &producer->options;
    *options = DEFAULTS;
    if (given) memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
    if (!options->batch_records) options->batch_records = BATCH_RECORDS;
    if (!options->batch_bytes) options->batch_bytes = BATCH_BYTES;
    if (!options->linger_ms) options->linger_ms = LINGER_MS;
    if (!options->window) options->window = IN_FLIGHT_MAX;
    if (!options->buffer_bytes) options->buffer_bytes = BUFFER_BYTES;
    if (options->timeout_ms <= 0) options->timeout_ms = TIMEOUT_MS;
    if (options->batch_records > QUOTH_BATCH_RECORDS_MAX || options->window > IN_FLIGHT_MAX)
        return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "batch_records is up to %u, window up to %d",
                          QUOTH_BATCH_RECORDS_MAX, IN_FLIGHT_MAX);
    if (options->batch_bytes > producer->payload_bytes_max - QUOTH_BATCH_OVERHEAD)
        options->batch_bytes = (uint32_t)(producer->payload_bytes_max - QUOTH_BATCH_OVERHEAD);
    producer->inflight.on_outcome = options->on_outcome;
    producer->inflight.context = options->context;
    return QUOTH_OK;
}

int quoth_producer_open(quoth_client *client, const char *topic, const quoth_producer_options *options,
                        quoth_producer **producer, quoth_error *error) {
    quoth_shared *shared = client->channel.link.shared;
    *producer = NULL;
    int code = quoth_check_topic(topic, error);
    if (code) return code;
    quoth_producer *made = calloc(1, sizeof *made);
    if (!made) return quoth_fail_memory(error);
    memcpy(made->topic, topic, strlen(topic));
    made->payload_bytes_max = shared->payload_bytes_max;
    int has_random = quoth_inflight_begin(&made->inflight, &made->link, made->topic, options ? options->durability : 0);
    code = has_random ? take_options(made, options, error)
                          : quoth_fail(error, QUOTH_SYSTEM, NULL, "the system has no random bytes");
    if (!code) code = quoth_link_open(&made->link, shared, error);
    if (code)
        free(made);
    else
        *producer = made;
    return code;
}

/* ---- sending ---- */

/* Makes a batch of the records so far. A link that was refused is tried again for it. */
static int seal(quoth_producer *producer, quoth_error *error) {
    int code = producer->link.rejection ? quoth_link_retry(&producer->link, error) : QUOTH_OK;
    if (code) return code;
    quoth_sent *one = calloc(1, sizeof *one);
    if (!one) return quoth_fail_memory(error);
    code = quoth_records_write(&producer->filling, 0, 0, 0, producer->payload_bytes_max, &one->payload, &one->size,
                                   error);
    if (code) {
        free(one);
        return code;
    }
    one->records = producer->filling.count;
    one->number = producer->filling_number;
    one->began = producer->filling_began;
    producer->filling_number += one->records;
    quoth_records_clear(&producer->filling);
    quoth_inflight_add(&producer->inflight, one);
    return QUOTH_OK;
}

static int has_room(const quoth_producer *producer) {
    return producer->link.connected && producer->inflight.again_at == QUOTH_NEVER
           && producer->inflight.in_flight < producer->options.window;
}

static int is_expired(const quoth_producer *producer, const quoth_sent *one, int64_t now) {
    return now - one->began > producer->options.timeout_ms;
}

static void fill_window(quoth_producer *producer, int64_t now) {
    while (producer->inflight.unsent && has_room(producer)) quoth_inflight_launch(&producer->inflight, now);
}

/* Fails batches that wait and could not be sent in time. Those in flight are older, and have failed before. */
static void expire_unsent(quoth_producer *producer, int64_t now) {
    quoth_error problem;
    while (producer->inflight.unsent && producer->inflight.unsent == producer->inflight.oldest && is_expired(producer, producer->inflight.oldest, now)) {
        quoth_fail(&problem, QUOTH_TIMED_OUT, "nothing of it was stored", "publish %s: it could not be sent in time",
                   producer->topic);
        quoth_inflight_fail_oldest(&producer->inflight, &problem, 0);
    }
}

/* Fails all batches. Those in flight may be stored. */
static void give_up(quoth_producer *producer, const quoth_error *problem) {
    quoth_inflight_give_up(&producer->inflight, problem);
    while (producer->inflight.oldest) quoth_inflight_fail_oldest(&producer->inflight, problem, 0);
}

/* Begins the next round if it is due, and fails batches that are expired, or all of them after a rejection. */
static void check_clock(quoth_producer *producer, int64_t now) {
    quoth_sent *one = quoth_inflight_oldest(&producer->inflight);
    if (producer->link.rejection) {
        quoth_error problem;
        quoth_link_no_answer(&producer->link, "publish", quoth_span_of(producer->topic), &problem);
        give_up(producer, &problem);
        return;
    }
    if (!one) {
        producer->inflight.again_at = QUOTH_NEVER;
        producer->inflight.heard_at = now;
        expire_unsent(producer, now);
        return;
    }
    if (now - producer->inflight.heard_at > producer->link.shared->resend_ms && producer->link.connected)
        producer->inflight.again_at = producer->inflight.heard_at = now;
    if (is_expired(producer, one, now)) {
        quoth_error problem;
        if (quoth_inflight_take(&producer->inflight)) return;
        quoth_link_no_answer(&producer->link, "publish", quoth_span_of(producer->topic), &problem);
        quoth_inflight_give_up(&producer->inflight, &problem);
    } else if (producer->link.connected && now >= producer->inflight.again_at) {
        quoth_inflight_next_round(&producer->inflight, now);
    }
}

/* When there is something to do, unless an answer comes before. */
static int64_t next_due(const quoth_producer *producer) {
    int64_t due = QUOTH_NEVER, at;
    const quoth_sent *one = quoth_inflight_oldest(&producer->inflight);
    if (producer->link.connected) {
        due = producer->inflight.again_at;
        if (one && (at = producer->inflight.heard_at + producer->link.shared->resend_ms + 1) < due) due = at;
        if (producer->inflight.unsent && has_room(producer)) return 0;
    }
    if (producer->filling.count && (at = producer->filling_began + producer->options.linger_ms) < due) due = at;
    if (!one) one = producer->inflight.oldest;
    if (one && (at = quoth_later(one->began, producer->options.timeout_ms) + 1) < due) due = at;
    return due;
}

/* Takes what has arrived, and sends what is due. Returns 1 if there were answers. */
static int progress(quoth_producer *producer, int64_t now) {
    if (quoth_link_read_events_at(&producer->link, now)) producer->inflight.again_at = now;
    int heard = quoth_inflight_take(&producer->inflight);
    check_clock(producer, now);
    fill_window(producer, now);
    return heard;
}

/* The same, and waits until a time, or until something has happened. */
static int turn(quoth_producer *producer, int64_t until, quoth_error *error) {
    int64_t now = quoth_now(), due;
    if (producer->filling.count && !producer->inflight.unsent && now >= producer->filling_began + producer->options.linger_ms) {
        int code = seal(producer, error);
        if (code) return code;
    }
    if (progress(producer, now)) return QUOTH_OK;
    due = next_due(producer);
    if (due > now && until > now) {
        if (quoth_link_wait(&producer->link, due < until ? due : until)) producer->inflight.again_at = quoth_now();
        progress(producer, quoth_now());
    }
    return QUOTH_OK;
}

/* ---- the calls ---- */

static int is_full(const quoth_producer *producer) {
    return producer->inflight.buffered_bytes + quoth_records_bytes(&producer->filling) >= producer->options.buffer_bytes
           && producer->inflight.buffered_bytes;
}

/* Appends a record for which there is room. */
static int put(quoth_producer *producer, const quoth_record *record, quoth_error *error) {
    size_t size = quoth_record_bytes(record);
    int code = QUOTH_OK;
    if (size > producer->payload_bytes_max - QUOTH_BATCH_OVERHEAD)
        return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "a record of %zu bytes", size);
    if (producer->filling.count && quoth_records_bytes(&producer->filling) + size > producer->options.batch_bytes)
        code = seal(producer, error);
    if (code) return code;
    code = quoth_records_add(&producer->filling, record, error);
    if (code) return code;
    producer->inflight.counts.sent++;
    if (producer->filling.count == 1) producer->filling_began = quoth_now();
    if (producer->filling.count < producer->options.batch_records && producer->options.linger_ms > 0) return QUOTH_OK;
    /* The record is taken: a batch that cannot be made now is made by the next call. */
    if (seal(producer, NULL)) return QUOTH_OK;
    progress(producer, quoth_now());
    return QUOTH_OK;
}

int quoth_producer_try_send(quoth_producer *producer, const quoth_record *record, quoth_error *error) {
    if (is_full(producer)) {
        int code = turn(producer, 0, error);
        if (code) return code;
        if (is_full(producer)) return quoth_fail(error, QUOTH_BUSY, NULL, "the producer's buffer is full");
    }
    return put(producer, record, error);
}

int quoth_producer_send(quoth_producer *producer, const quoth_record *record, quoth_error *error) {
    if (is_full(producer)) {
        int64_t until = quoth_later(quoth_now(), producer->options.timeout_ms);
        while (is_full(producer)) {
            int code = turn(producer, until, error);
            if (code) return code;
            if (is_full(producer) && quoth_now() >= until)
                return quoth_fail(error, QUOTH_BUSY, NULL, "the producer's buffer is full, and stays so");
        }
    }
    return put(producer, record, error);
}

int quoth_producer_poll(quoth_producer *producer, int64_t wait_ms, quoth_error *error) {
    quoth_no_error(error);
    return turn(producer, quoth_later(quoth_now(), wait_ms), error);
}

int quoth_producer_flush(quoth_producer *producer, int64_t wait_ms, quoth_error *error) {
    int64_t until = quoth_later(quoth_now(), wait_ms);
    int code = QUOTH_OK;
    quoth_no_error(error);
    if (producer->filling.count) code = seal(producer, error);
    while (!code && producer->inflight.oldest) {
        code = turn(producer, until, error);
        if (!code && producer->inflight.oldest && quoth_now() >= until)
            code = quoth_fail(error, QUOTH_TIMED_OUT, "call again to wait for longer", "records are still on their way");
    }
    if (code || !producer->inflight.failure.code) return code;
    code = quoth_pass_error(&producer->inflight.failure, error);
    producer->inflight.failure.code = QUOTH_OK;
    return code;
}

void quoth_producer_count(const quoth_producer *producer, quoth_producer_counts *counts) { *counts = producer->inflight.counts; }

int64_t quoth_producer_descriptors(quoth_producer *producer, int descriptors[2]) {
    if (quoth_link_descriptors(&producer->link, descriptors)) return 0;
    int64_t due = next_due(producer), now = quoth_now();
    return due == QUOTH_NEVER ? -1 : due > now ? due - now : 0;
}

void quoth_producer_close(quoth_producer *producer) {
    quoth_error problem;
    if (!producer) return;
    if (producer->filling.count) seal(producer, NULL);
    quoth_fail(&problem, QUOTH_CLOSED, NULL, "publish %s: the producer was closed before", producer->topic);
    give_up(producer, &problem);
    quoth_records_free(&producer->filling);
    quoth_link_close(&producer->link);
    free(producer);
}
