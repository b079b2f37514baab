/* Implements inflight.h. */

#include "inflight.h"

#include <stdlib.h>

enum { BACKOFF_MS = 5, BACKOFF_MAX_MS = 500 };

int quoth_inflight_begin(quoth_inflight *inflight, quoth_link *link, const char *topic, int durability) {
    quoth_msg_publish publish = {quoth_durability_text(durability)};
    inflight->link = link;
    inflight->topic = quoth_span_of(topic);
    inflight->arguments_size = quoth_message_encode(quoth_request_shape(QUOTH_OP_PUBLISH), &publish,
                                                    inflight->arguments, sizeof inflight->arguments);
    inflight->behind = &inflight->oldest;
    inflight->round = inflight->first_round = 1;
    inflight->again_at = QUOTH_NEVER;
    inflight->backoff_ms = BACKOFF_MS;
    inflight->heard_at = quoth_now();
    inflight->producer = quoth_new_producer();
    return inflight->producer != 0;
}

/* ---- outcomes ---- */

static void tell(quoth_inflight *inflight, const quoth_sent *one) {
    quoth_outcome outcome = {one->number, one->records, one->is_acknowledged ? &one->ack : NULL,
                             one->is_acknowledged ? NULL : &one->problem};
    if (one->is_acknowledged) {
        inflight->counts.acknowledged += one->records;
        if (one->ack.last > inflight->counts.last) inflight->counts.last = one->ack.last;
    } else {
        inflight->counts.failed += one->records;
        if (!inflight->failure.code) inflight->failure = one->problem;
    }
    if (inflight->on_outcome) inflight->on_outcome(inflight->context, &outcome);
}

/* Removes the oldest batch, which is settled. */
static void remove_oldest(quoth_inflight *inflight) {
    quoth_sent *one = inflight->oldest;
    inflight->oldest = one->next;
    if (!inflight->oldest) inflight->behind = &inflight->oldest;
    if (one == inflight->unsent)
        inflight->unsent = one->next;
    else
        inflight->in_flight--;
    inflight->buffered_bytes -= one->size;
    tell(inflight, one);
    free(one->payload);
    free(one);
}

/* Hands out the acks at the front, in order. */
static void hand_out(quoth_inflight *inflight) {
    while (inflight->oldest && inflight->oldest->is_acknowledged) remove_oldest(inflight);
}

/* Fails the oldest batch. */
void quoth_inflight_fail_oldest(quoth_inflight *inflight, const quoth_error *problem, int is_unknown) {
    quoth_sent *one = inflight->oldest;
    if (problem != &one->problem) one->problem = *problem;
    one->problem.outcome_unknown = is_unknown;
    remove_oldest(inflight);
    hand_out(inflight);
}

/* ---- sequences and rounds ---- */

/* Sets the sequence in a payload, whose body stays as it is. */
static void number_batch(quoth_inflight *inflight, quoth_sent *one) {
    quoth_batch_header header;
    one->sequence = ++inflight->sequence;
    one->unanswered = 0;
    one->is_answered = 0;
    one->problem.code = QUOTH_OK;
    quoth_batch_read_header(one->payload, one->size, 0, &header);
    header.producer = inflight->producer;
    header.sequence = one->sequence;
    quoth_batch_stamp(&header, 0, one->payload);
}

/* Renumbers everything in flight, none of which is stored, under a new producer id. */
static void renumber(quoth_inflight *inflight) {
    uint64_t drawn = quoth_new_producer();
    inflight->producer = drawn ? drawn : inflight->producer + 1; /* the old one is not used any more */
    inflight->sequence = 0;
    inflight->first_round = ++inflight->round;
    for (quoth_sent *one = inflight->oldest; one != inflight->unsent; one = one->next)
        if (!one->is_acknowledged) number_batch(inflight, one);
}

static void pause_round(quoth_inflight *inflight, int64_t now) {
    if (inflight->again_at != QUOTH_NEVER) return;
    inflight->again_at = now + inflight->backoff_ms;
    inflight->backoff_ms = 2 * inflight->backoff_ms < BACKOFF_MAX_MS ? 2 * inflight->backoff_ms : BACKOFF_MAX_MS;
}

static void send_copy(quoth_inflight *inflight, quoth_sent *one, int64_t now) {
    uint8_t header[QUOTH_HEADER_BYTES];
    quoth_span payload = {one->payload, one->size};
    one->round = inflight->round;
    one->is_answered = 0;
    one->problem.code = QUOTH_OK;
    quoth_header_write(header, QUOTH_OP_PUBLISH, QUOTH_STATUS_REQUEST,
                       (uint64_t)inflight->round << 32 | (uint32_t)one->sequence);
    if (quoth_link_send(inflight->link, header, inflight->topic,
                        (quoth_span){inflight->arguments, inflight->arguments_size}, &payload))
        one->unanswered++;
    else
        pause_round(inflight, now);
}

void quoth_inflight_next_round(quoth_inflight *inflight, int64_t now) {
    inflight->again_at = QUOTH_NEVER;
    inflight->round++;
    for (quoth_sent *one = inflight->oldest; one != inflight->unsent; one = one->next)
        if (!one->is_acknowledged) {
            inflight->counts.resent++;
            send_copy(inflight, one, now);
        }
}

quoth_sent *quoth_inflight_oldest(const quoth_inflight *inflight) {
    quoth_sent *one = inflight->oldest;
    while (one != inflight->unsent && one->is_acknowledged) one = one->next;
    return one == inflight->unsent ? NULL : one;
}

/* 1 if the error for its newest copy proves that nothing of a batch was stored. A broker that is busy refuses without
 * looking whether an older copy was stored. One whose disk fails may have written before it failed. */
static int is_certain(const quoth_sent *one) {
    int code = one->problem.code;
    if (quoth_is_broker_failure(code) || code == QUOTH_FORGOTTEN_SEQUENCE) return 0;
    return !quoth_is_passing(code) || one->unanswered <= 0;
}

/* Fails everything in flight: sequences have no holes, so none can arrive without the first one. */
void quoth_inflight_give_up(quoth_inflight *inflight, const quoth_error *problem) {
    quoth_sent *end = inflight->unsent;
    while (inflight->oldest != end) {
        quoth_sent *one = inflight->oldest;
        if (one->is_acknowledged) {
            hand_out(inflight);
        } else if (one->is_answered && one->problem.code) {
            quoth_inflight_fail_oldest(inflight, &one->problem, !is_certain(one));
        } else {
            quoth_inflight_fail_oldest(inflight, problem, 1);
        }
    }
    inflight->again_at = QUOTH_NEVER;
    renumber(inflight);
}

static void refused(quoth_inflight *inflight, quoth_sent *one, int64_t now) {
    int code = one->problem.code;
    if (one != quoth_inflight_oldest(inflight)) {
        pause_round(inflight, now); /* that of the earlier ones is not known yet; the next round answers this one */
    } else if (code == QUOTH_UNKNOWN_PRODUCER || code == QUOTH_OUT_OF_SEQUENCE) {
        /* All before it are settled, so the broker has lost or forgotten them. Go on without them. */
        if (one->sequence == 1)
            pause_round(inflight, now); /* a correct broker does not say that of a first batch: do not hurry */
        else
            inflight->again_at = now;
        renumber(inflight);
    } else if (quoth_is_passing(code) || code == QUOTH_DISK_LOW) {
        pause_round(inflight, now);
    } else if (!is_certain(one)) {
        quoth_error problem = one->problem;
        quoth_inflight_give_up(inflight, &problem);
    } else {
        quoth_inflight_fail_oldest(inflight, &one->problem, 0);
        renumber(inflight);
        inflight->again_at = now;
    }
}

/* ---- answers ---- */

/* Returns 0 for an answer that cannot be decoded. */
static int read_answer(quoth_sent *one, const quoth_reply *reply, quoth_span arguments) {
    quoth_any_message decoded;
    one->problem.code = QUOTH_OK;
    if (reply->is_version)
        quoth_fail(&one->problem, QUOTH_UNSUPPORTED_VERSION, NULL, "an answer in another version of the protocol");
    else if (reply->header.status == QUOTH_STATUS_OK
             && quoth_message_decode(quoth_reply_shape(QUOTH_OP_PUBLISH), arguments, &decoded) != QUOTH_NOT_PLAIN)
        quoth_ack_of(&decoded.published, &one->ack);
    else if (reply->header.status == QUOTH_STATUS_ERROR
             && quoth_message_decode(&quoth_error_shape, arguments, &decoded) != QUOTH_NOT_PLAIN)
        quoth_fail_as(&one->problem, &decoded.error);
    else
        return 0;
    return 1;
}

static void take_answer(quoth_inflight *inflight, quoth_reply *reply, int64_t now) {
    uint32_t round = (uint32_t)(reply->header.correlation >> 32);
    quoth_sent *one = inflight->oldest;
    while (one != inflight->unsent && (uint32_t)one->sequence != (uint32_t)reply->header.correlation) one = one->next;
    if (one == inflight->unsent || one->is_acknowledged || round < inflight->first_round) return;
    quoth_error before = one->problem;
    if (!read_answer(one, reply, quoth_frame(&reply->arguments))) {
        one->problem = before;
        return;
    }
    if (!one->problem.code) {
        one->is_acknowledged = 1;
        inflight->backoff_ms = BACKOFF_MS;
        hand_out(inflight);
        return;
    }
    if (!quoth_is_broker_failure(one->problem.code)) one->unanswered--; /* else this copy may have been written */
    if (round != one->round) {
        one->problem = before;
        return;
    }
    one->is_answered = 1;
    refused(inflight, one, now);
}

int quoth_inflight_take(quoth_inflight *inflight) {
    quoth_reply reply;
    int heard = 0;
    while (quoth_link_receive(inflight->link, &reply)) {
        heard = 1;
        inflight->heard_at = quoth_now();
        take_answer(inflight, &reply, inflight->heard_at);
        quoth_reply_close(&reply);
    }
    return heard;
}

/* ---- sending ---- */

void quoth_inflight_launch(quoth_inflight *inflight, int64_t now) {
    quoth_sent *one = inflight->unsent;
    inflight->unsent = one->next;
    inflight->in_flight++;
    number_batch(inflight, one);
    send_copy(inflight, one, now);
}

void quoth_inflight_add(quoth_inflight *inflight, quoth_sent *one) {
    *inflight->behind = one;
    inflight->behind = &one->next;
    if (!inflight->unsent) inflight->unsent = one;
    inflight->buffered_bytes += one->size;
}
