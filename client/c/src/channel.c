/* Implements channel.h. */

#include "channel.h"

#include <stdlib.h>
#include <string.h>

enum { BACKOFF_MS = 5, BACKOFF_MAX_MS = 500 };

static const char *const NAMES[QUOTH_OPERATIONS] = {
    "", "hello", "ping", "publish", "fetch", "list", "describe", "create", "update", "delete", "trim", "roll",
    "status", "advance", "split", "count", "stage", "publish_staged", "abort", "transaction",
    "open_group", "group_fetch", "group_settle", "describe_group", "list_groups", "update_group", "seek_group",
    "delete_group", "list_pending", "commit_cursor", "metrics"};

int quoth_channel_open(quoth_channel *channel, quoth_shared *shared, quoth_error *error) {
    memset(channel, 0, sizeof *channel);
    channel->due = QUOTH_NEVER;
    return quoth_link_open(&channel->link, shared, error);
}

void quoth_channel_close(quoth_channel *channel) { quoth_link_close(&channel->link); }

static int64_t earlier(int64_t one, int64_t other) { return one < other ? one : other; }

/* ---- one request ---- */

void quoth_request_begin(const quoth_channel *channel, quoth_request *request, unsigned operation, const char *topic,
                         int64_t timeout_ms) {
    quoth_request_end(request);
    request->operation = operation;
    request->topic = (quoth_span){(const uint8_t *)topic, topic ? strlen(topic) : 0};
    request->payload = NULL;
    request->deadline = quoth_later(quoth_now(), timeout_ms);
    request->resend_ms = channel->link.shared->resend_ms;
    request->wait_ms = 0;
    request->absence_ms = QUOTH_NEVER;
    request->retries_disk_low = 0;
    quoth_message_clear(quoth_request_shape(operation), &request->message);
}

void quoth_request_end(quoth_request *request) {
    quoth_reply_close(&request->reply);
    request->state = QUOTH_IDLE;
}

/* Waits for an answer from now on: a copy is sent. */
static void restart(quoth_request *request, int64_t now) {
    request->is_refused = 0;
    request->resend_at = quoth_later(now, quoth_later(request->wait_ms, request->resend_ms));
    request->due = earlier(request->deadline, request->resend_at);
}

static int is_over(const quoth_request *request, int64_t now) {
    return now >= earlier(request->deadline, request->absent_until);
}

/* 1 if another copy is to be sent. found: a lost connection was made again just now. */
static int is_to_be_sent(quoth_request *request, int64_t now, int found, int connected) {
    int is_lost = found;
    if (connected)
        request->absent_until = QUOTH_NEVER;
    else if (request->absent_until == QUOTH_NEVER)
        request->absent_until = quoth_later(now, request->absence_ms);
    if (request->is_refused) {
        is_lost = now >= request->due;
    } else if (now >= request->resend_at) {
        /* Without a broker copies would only queue up: the next connection is the time to send. */
        is_lost = found || connected;
        request->resend_at = quoth_later(now, request->resend_ms);
        request->due = earlier(request->deadline, request->resend_at);
    }
    if (is_lost) restart(request, now);
    return is_lost;
}

/* 1 if an error is the outcome; else the request is sent again if there is time. An error for one copy does not
 * tell the outcome of an earlier one without an answer. */
static int is_final(quoth_request *request, int code, int64_t now) {
    if (!quoth_is_passing(code) && !(request->retries_disk_low && code == QUOTH_DISK_LOW)) return 1;
    int64_t pause = request->backoff_ms - (int64_t)(quoth_random() % (uint64_t)(request->backoff_ms / 2 + 1));
    if (now + pause > request->deadline && !request->unanswered) return 1;
    request->backoff_ms = earlier(2 * request->backoff_ms, BACKOFF_MAX_MS);
    request->is_refused = 1;
    request->due = earlier(now + pause, request->deadline);
    return 0;
}

/* ---- answers ---- */

/* Decodes the answer that a request has got. Returns QUOTH_END for one that cannot be decoded. */
static int decode(quoth_request *request) {
    quoth_reply *reply = &request->reply;
    quoth_any_message decoded;
    quoth_span arguments = quoth_frame(&reply->arguments);
    if (reply->is_version)
        return quoth_fail(&request->error, QUOTH_UNSUPPORTED_VERSION, NULL,
                          "an answer in another version of the protocol, this side speaks %u", QUOTH_PROTOCOL_VERSION);
    if (reply->header.status == QUOTH_STATUS_ERROR) {
        if (quoth_message_decode(&quoth_error_shape, arguments, &decoded) == QUOTH_NOT_PLAIN) return QUOTH_END;
        return quoth_fail_as(&request->error, &decoded.error);
    }
    if (quoth_message_decode(quoth_reply_shape(request->operation), arguments, &decoded) == QUOTH_NOT_PLAIN)
        return QUOTH_END;
    request->message = decoded;
    return QUOTH_OK;
}

static void settle(quoth_channel *channel, quoth_request *request, int code) {
    request->code = code;
    request->state = QUOTH_SETTLED;
    for (unsigned row = 0; row < channel->count; row++)
        if (channel->asked[row] == request) {
            channel->asked[row] = channel->asked[--channel->count];
            return;
        }
}

/* Takes all answers that have arrived; returns how many requests are settled by them. */
static unsigned take_answers(quoth_channel *channel, int64_t now) {
    unsigned settled = 0;
    quoth_reply reply;
    while (channel->count && quoth_link_receive(&channel->link, &reply)) {
        quoth_request *request = NULL;
        for (unsigned row = 0; row < channel->count; row++)
            if (channel->asked[row]->correlation == reply.header.correlation) request = channel->asked[row];
        if (!request || (!reply.is_version && request->operation != reply.header.operation)) {
            quoth_reply_close(&reply); /* to a request that was given up, or a second copy's */
            continue;
        }
        quoth_reply_move(&request->reply, &reply);
        int code = decode(request);
        request->unanswered -= code != QUOTH_END;
        if (code == QUOTH_END || (code && !is_final(request, code, now))) {
            channel->due = earlier(channel->due, request->due);
            quoth_reply_close(&request->reply);
            continue;
        }
        settle(channel, request, code);
        settled++;
    }
    return settled;
}

static void send(quoth_channel *channel, quoth_request *request) {
    quoth_span arguments = {request->arguments, request->arguments_size};
    request->unanswered +=
        quoth_link_send(&channel->link, request->header, request->topic, arguments, request->payload);
    channel->due = earlier(channel->due, request->due);
}

/* Sends requests again that may be lost, and settles those that are over: all of them after a rejection. Returns how
 * many. */
static unsigned check(quoth_channel *channel, int64_t now, int found) {
    const quoth_link *link = &channel->link;
    unsigned over = 0;
    for (unsigned row = channel->count; row-- > 0;) {
        quoth_request *request = channel->asked[row];
        if (link->rejection || is_over(request, now)) {
            quoth_link_no_answer(link, NAMES[request->operation], request->topic, &request->error);
            request->error.outcome_unknown = request->unanswered > 0 && (link->was_connected || !link->rejection);
            settle(channel, request, request->error.code);
            over++;
        } else if (is_to_be_sent(request, now, found, link->connected)) {
            send(channel, request);
        }
    }
    channel->due = QUOTH_NEVER;
    for (unsigned row = 0; row < channel->count; row++) channel->due = earlier(channel->due, channel->asked[row]->due);
    return over;
}

/* ---- the channel ---- */

void quoth_channel_ask(quoth_channel *channel, quoth_request *request) {
    int64_t now = quoth_now();
    if (!channel->count) quoth_link_read_events(&channel->link); /* earlier ones are no reason to send twice */
    request->correlation = ++channel->correlation;
    request->arguments_size = quoth_message_encode(quoth_request_shape(request->operation), &request->message,
                                                   request->arguments, sizeof request->arguments);
    request->unanswered = 0;
    request->backoff_ms = BACKOFF_MS;
    request->absent_until = QUOTH_NEVER;
    request->code = QUOTH_OK;
    if (!request->arguments_size)
        request->code = quoth_fail(&request->error, QUOTH_TOO_LARGE, NULL, "arguments of %s above %d bytes",
                                   NAMES[request->operation], QUOTH_ARGUMENTS_MAX);
    else if (channel->link.rejection)
        request->code = quoth_link_retry(&channel->link, &request->error);
    if (request->code) {
        request->state = QUOTH_SETTLED;
        return;
    }
    quoth_header_write(request->header, request->operation, QUOTH_STATUS_REQUEST, request->correlation);
    request->state = QUOTH_ASKED;
    channel->asked[channel->count++] = request;
    restart(request, now);
    send(channel, request);
}

void quoth_channel_forget(quoth_channel *channel, quoth_request *request) {
    if (request->state == QUOTH_ASKED) settle(channel, request, QUOTH_CLOSED);
    quoth_request_end(request);
}

void quoth_channel_turn(quoth_channel *channel, int64_t until) {
    while (channel->count) {
        unsigned settled = take_answers(channel, quoth_now());
        if (settled) return;
        int found = quoth_link_wait(&channel->link, earlier(until, channel->due));
        int64_t now = quoth_now(); /* before the answers are taken: then none comes too late */
        settled = take_answers(channel, now);
        if (found || now >= channel->due || channel->link.rejection) settled += check(channel, now, found);
        if (settled || now >= until) return;
    }
}

int quoth_channel_settle(quoth_channel *channel, quoth_request *request, quoth_error *error) {
    quoth_channel_ask(channel, request);
    while (request->state == QUOTH_ASKED) quoth_channel_turn(channel, QUOTH_NEVER);
    return request->code ? quoth_pass_error(&request->error, error) : QUOTH_OK;
}
