/* The simple protocol over a DEALER. Requests are [id, "", operation, ...], replies [id, "", "ok" or "error", ...]. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "quothpipe.h"

#define PAUSE_MS 20 /* before a refused request is sent again; doubles each time, up to: */
#define PAUSE_MS_MAX 1000

/* Each phase of a connection has its own limit, so that it is open again within two seconds of the broker's return
   after any outage. Without these limits the operating system doubles its pauses up to minutes. */
#define RECONNECT_MS 50
#define RECONNECT_MS_MAX 200
#define CONNECT_MS 1500   /* an attempt to connect; the system's second packet, after 1 s, is within it */
#define HANDSHAKE_MS 3000 /* a frozen process accepts connections, too */
#define HEARTBEAT_MS 1000 /* sends bytes that the other host has to acknowledge */
#define HEARTBEAT_TIMEOUT_MS 15000 /* the host acknowledges them, the process does not answer */

static void close_sockets(struct broker *broker) {
    if (broker->socket) zmq_close(broker->socket);
    if (broker->monitor) zmq_close(broker->monitor);
    broker->socket = broker->monitor = NULL;
    broker->more = 0;
}

void disconnect(struct broker *broker) {
    zmq_msg_close(&broker->frame);
    close_sockets(broker);
    if (broker->context) zmq_ctx_term(broker->context);
}

static void set(void *socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); }

int connect_socket(struct broker *broker) {
    char monitor_url[64];
    close_sockets(broker);
    snprintf(monitor_url, sizeof monitor_url, "inproc://monitor-%d", broker->connections++);
    broker->socket = zmq_socket(broker->context, ZMQ_DEALER);
    broker->monitor = zmq_socket(broker->context, ZMQ_PAIR);
    if (!broker->socket || !broker->monitor) return report_error("disconnected", "%s", zmq_strerror(errno));
    set(broker->socket, ZMQ_LINGER, 0);
    set(broker->monitor, ZMQ_LINGER, 0);
    set(broker->socket, ZMQ_RECONNECT_IVL, RECONNECT_MS);
    set(broker->socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MS_MAX);
    set(broker->socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS);
    set(broker->socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    set(broker->socket, ZMQ_TCP_MAXRT, broker->unacknowledged_ms);
    set(broker->socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS);
    set(broker->socket, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS);
    set(broker->socket, ZMQ_IPV6, strchr(broker->url, '[') != NULL);
    if (zmq_socket_monitor(broker->socket, monitor_url, ZMQ_EVENT_DISCONNECTED) < 0
        || zmq_connect(broker->monitor, monitor_url) < 0)
        return report_error("disconnected", "%s", zmq_strerror(errno));
    if (zmq_connect(broker->socket, broker->url) < 0)
        return report_error("bad_request", "%s: %s (like tcp://127.0.0.1:5555)", broker->url, zmq_strerror(errno));
    return DONE;
}

int report_silence(const struct broker *broker) {
    return report_error("disconnected", "no broker answers at %s within %" PRId64 " s", broker->url,
                    broker->timeout_ms / 1000);
}

int wait_for_events(const struct broker *broker, int stream, short events, int64_t until) {
    zmq_pollitem_t items[] = {
        {broker->socket, 0, ZMQ_POLLIN, 0}, {broker->monitor, 0, ZMQ_POLLIN, 0},
        {NULL, wakeup(), ZMQ_POLLIN, 0},      {NULL, stream, events, 0},
    };
    int64_t left = until - now_ms();
    if (zmq_poll(items, stream < 0 ? 3 : 4, until == NEVER ? -1 : left < 0 ? 0 : (long)left) <= 0) return 0;
    if (items[2].revents) clear_wakeup();
    return (items[0].revents ? ANSWER : 0) | (items[1].revents ? BROKEN : 0)
           | (stream >= 0 && items[3].revents ? STREAM : 0);
}

void send_frame(const struct broker *broker, const void *bytes, size_t size, int more) {
    zmq_send(broker->socket, bytes, size, more ? ZMQ_SNDMORE : 0); /* never more requests than its queue holds */
}

void send_text(const struct broker *broker, const char *text, int more) {
    send_frame(broker, text, strlen(text), more);
}

void start_request(const struct broker *broker, uint64_t number, const char *operation, int more) {
    char id[24];
    snprintf(id, sizeof id, "%" PRIu64, number);
    send_text(broker, id, 1);
    send_text(broker, "", 1);
    send_text(broker, operation, more);
}

int next_frame(struct broker *broker) {
    if (!broker->more || zmq_msg_recv(&broker->frame, broker->socket, 0) < 0) return 0;
    broker->more = zmq_msg_more(&broker->frame);
    return 1;
}

static int frame_is(struct broker *broker, const char *text) {
    size_t size = zmq_msg_size(&broker->frame);
    return size == strlen(text) && memcmp(zmq_msg_data(&broker->frame), text, size) == 0;
}

static void copy_frame(struct broker *broker, char *text, size_t size) {
    snprintf(text, size, "%.*s", (int)zmq_msg_size(&broker->frame), (char *)zmq_msg_data(&broker->frame));
}

int parse_number(const char *digits, size_t size, uint64_t *number) {
    *number = 0;
    for (size_t at = 0; at < size; at++) {
        if (digits[at] < '0' || digits[at] > '9') return 0;
        *number = *number * 10 + (uint64_t)(digits[at] - '0');
    }
    return size > 0 && size < 19;
}

int frame_number(struct broker *broker, uint64_t *number) {
    return parse_number(zmq_msg_data(&broker->frame), zmq_msg_size(&broker->frame), number);
}

int take_answer(struct broker *broker, struct answer *answer) {
    while (next_frame(broker)) { /* the rest of the last answer */ }
    if (zmq_msg_recv(&broker->frame, broker->socket, ZMQ_DONTWAIT) < 0) return 0;
    broker->more = zmq_msg_more(&broker->frame);
    memset(answer, 0, sizeof *answer);
    if (frame_number(broker, &answer->number) && next_frame(broker) && frame_is(broker, "") && next_frame(broker)) {
        answer->ok = frame_is(broker, "ok");
        if (answer->ok) return 1;
        if (frame_is(broker, "error") && next_frame(broker)) {
            copy_frame(broker, answer->code, sizeof answer->code);
            if (next_frame(broker)) copy_frame(broker, answer->text, sizeof answer->text);
            return 1;
        }
    }
    strcpy(answer->code, "unsupported_version");
    strcpy(answer->text, "the answer is not in the simple protocol: is this a Quoth broker?");
    return 1;
}

int greet(struct broker *broker) {
    struct answer answer;
    int64_t until = now_ms() + broker->timeout_ms, again = 0;
    int status = connect_socket(broker);
    while (status == DONE) {
        if (now_ms() >= until) return report_silence(broker);
        if (now_ms() >= again) {
            start_request(broker, 0, "ping", 0);
            again = NEVER;
        }
        int found = wait_for_events(broker, -1, 0, again < until ? again : until);
        if (end_signal) return 128 + end_signal;
        if (take_answer(broker, &answer)) {
            if (answer.ok) return DONE;
            if (!is_retryable(answer.code)) return report_error(answer.code, "%s", answer.text);
            again = now_ms() + PAUSE_MS;
        } else if (found & BROKEN) {
            status = connect_socket(broker);
            again = now_ms() + PAUSE_MS;
        }
    }
    return status;
}

int64_t next_pause(int64_t pause) {
    if (pause == 0) return PAUSE_MS;
    return pause * 2 < PAUSE_MS_MAX ? pause * 2 : PAUSE_MS_MAX;
}
