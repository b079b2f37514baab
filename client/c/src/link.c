/* Implements link.h. */

#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"
#include "tcp_watch.h"

#if defined(__APPLE__) || defined(__linux__)
#include <sys/random.h>
#endif

enum { RECONNECT_MS = 50, RECONNECT_MAX_MS = 200, CONNECT_MS = 1500, HANDSHAKE_MS = 3000, HEARTBEAT_MS = 1000,
       SILENCE_MS = 15000, UNACKNOWLEDGED_MS = 2500, WATCH_MS = 500 };

#define EVENTS (ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECTED)

/* ---- the system ---- */

int64_t quoth_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t quoth_later(int64_t now, int64_t milliseconds) {
    return milliseconds > QUOTH_NEVER - now ? QUOTH_NEVER : now + (milliseconds > 0 ? milliseconds : 0);
}

uint64_t quoth_random(void) {
    uint64_t bits = 0;
    if (getentropy(&bits, sizeof bits)) return 0;
    return bits ? bits : 1;
}

/* ---- what connections share ---- */

quoth_shared *quoth_shared_new(const char *url, quoth_error *error) {
    quoth_shared *shared = calloc(1, sizeof *shared);
    size_t size = strlen(url) + 1;
    if (shared) shared->url = malloc(size);
    if (!shared || !shared->url) {
        free(shared);
        quoth_fail_memory(error);
        return NULL;
    }
    memcpy(shared->url, url, size);
    shared->users = 1;
    shared->context = zmq_ctx_new();
    if (!shared->context) {
        quoth_fail(error, QUOTH_SYSTEM, NULL, "no ZeroMQ context can be made: %s", zmq_strerror(errno));
        quoth_shared_release(shared);
        return NULL;
    }
    return shared;
}

void quoth_shared_release(quoth_shared *shared) {
    if (__atomic_sub_fetch(&shared->users, 1, __ATOMIC_ACQ_REL)) return;
    if (shared->context)
        while (zmq_ctx_term(shared->context) < 0 && errno == EINTR) continue;
    memset(shared->curve, 0, sizeof shared->curve);
    free(shared->url);
    free(shared);
}

/* ---- opening ---- */

static int set_number(void *socket, int option, int number) {
    return zmq_setsockopt(socket, option, &number, sizeof number);
}

static int set_curve(void *socket, const quoth_shared *shared) {
    static const int OPTIONS[] = {ZMQ_CURVE_SERVERKEY, ZMQ_CURVE_PUBLICKEY, ZMQ_CURVE_SECRETKEY};
    for (int key = 0; shared->has_curve && key < 3; key++)
        if (zmq_setsockopt(socket, OPTIONS[key], shared->curve[key], sizeof shared->curve[key]) < 0) return -1;
    return 0;
}

static int set_options(quoth_link *link) {
    void *socket = link->socket;
    return set_number(socket, ZMQ_LINGER, 0) | set_number(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS)
           | set_number(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
           | set_number(socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS) | set_number(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS)
           | set_number(socket, ZMQ_TCP_MAXRT, SILENCE_MS) | set_number(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS)
           | set_number(socket, ZMQ_HEARTBEAT_TIMEOUT, SILENCE_MS)
           | set_number(socket, ZMQ_IPV6, strchr(link->shared->url, '[') != NULL);
}

static int descriptor_of(void *socket) {
    int descriptor = -1;
    size_t size = sizeof descriptor;
    zmq_getsockopt(socket, ZMQ_FD, &descriptor, &size);
    return descriptor;
}

/* A monitor that holds any number of events: libzmq's thread waits for one that is full. */
static int open_monitor(quoth_link *link) {
    char address[64];
    snprintf(address, sizeof address, "inproc://quoth-monitor-%d", descriptor_of(link->socket));
    link->monitor = zmq_socket(link->shared->context, ZMQ_PAIR);
    return !link->monitor || set_number(link->monitor, ZMQ_LINGER, 0) || set_number(link->monitor, ZMQ_RCVHWM, 0)
           || zmq_socket_monitor(link->socket, address, EVENTS) < 0 || zmq_connect(link->monitor, address) < 0;
}

int quoth_link_open(quoth_link *link, quoth_shared *shared, quoth_error *error) {
    int code = QUOTH_OK;
    memset(link, 0, sizeof *link);
    __atomic_add_fetch(&shared->users, 1, __ATOMIC_RELAXED);
    link->shared = shared;
    link->descriptor = -1;
    link->socket = zmq_socket(shared->context, ZMQ_DEALER);
    if (!link->socket || set_options(link) || open_monitor(link))
        code = quoth_fail(error, QUOTH_SYSTEM, "close some clients", "no socket can be made: %s", zmq_strerror(errno));
    else if (set_curve(link->socket, shared) < 0)
        code = quoth_fail(error, QUOTH_BAD_REQUEST, "40 characters of Z85 each", "the CURVE keys: %s",
                          zmq_strerror(errno));
    else if (zmq_connect(link->socket, shared->url) < 0)
        code = quoth_fail(error, QUOTH_BAD_REQUEST, "like tcp://127.0.0.1:5555", "%s: %s", shared->url,
                          zmq_strerror(errno));
    if (code) quoth_link_close(link);
    return code;
}

void quoth_link_close(quoth_link *link) {
    if (!link->shared) return;
    if (link->socket) {
        zmq_socket_monitor(link->socket, NULL, 0);
        zmq_close(link->socket);
    }
    if (link->monitor) zmq_close(link->monitor);
    quoth_shared_release(link->shared);
    link->shared = NULL;
}

/* ---- messages ---- */

int quoth_link_send(quoth_link *link, const uint8_t header[QUOTH_HEADER_BYTES], quoth_span topic, quoth_span arguments,
                    const quoth_span *payload) {
    const int more = ZMQ_DONTWAIT | ZMQ_SNDMORE;
    return zmq_send(link->socket, "", 0, more) >= 0 && zmq_send(link->socket, header, QUOTH_HEADER_BYTES, more) >= 0
           && zmq_send(link->socket, topic.bytes, topic.size, more) >= 0
           && zmq_send(link->socket, arguments.bytes, arguments.size, payload ? more : ZMQ_DONTWAIT) >= 0
           && (!payload || zmq_send(link->socket, payload->bytes, payload->size, ZMQ_DONTWAIT) >= 0);
}

quoth_span quoth_frame(zmq_msg_t *frame) { return (quoth_span){zmq_msg_data(frame), zmq_msg_size(frame)}; }

void quoth_reply_close(quoth_reply *reply) {
    if (!reply->is_open) return;
    zmq_msg_close(&reply->arguments);
    zmq_msg_close(&reply->payload);
    reply->is_open = 0;
}

void quoth_reply_move(quoth_reply *to, quoth_reply *from) {
    zmq_msg_init(&to->arguments);
    zmq_msg_init(&to->payload);
    zmq_msg_move(&to->arguments, &from->arguments);
    zmq_msg_move(&to->payload, &from->payload);
    to->header = from->header;
    to->is_version = from->is_version;
    to->is_open = 1;
    quoth_reply_close(from);
}

/* Receives a frame of a message whose earlier ones are there: then libzmq has all of them. */
static int next_frame(quoth_link *link, zmq_msg_t *frame, int *has_more) {
    if (!*has_more || zmq_msg_recv(frame, link->socket, ZMQ_DONTWAIT) < 0) return 0;
    *has_more = zmq_msg_more(frame);
    return 1;
}

/* Receives the frames of one message. Returns -1 if there is none, 1 for an answer, 0 for anything else. */
static int receive(quoth_link *link, quoth_reply *reply) {
    zmq_msg_t frame;
    int has_more, is_answer = 0;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, link->socket, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&frame);
        return -1;
    }
    has_more = zmq_msg_more(&frame);
    if (!zmq_msg_size(&frame) && next_frame(link, &frame, &has_more)) {
        quoth_header_problem problem =
            quoth_header_read(zmq_msg_data(&frame), zmq_msg_size(&frame), 0, &reply->header);
        reply->is_version = problem == QUOTH_HEADER_VERSION;
        int has_arguments = next_frame(link, &reply->arguments, &has_more);
        next_frame(link, &reply->payload, &has_more);
        is_answer = reply->is_version || (problem == QUOTH_HEADER_OK && has_arguments && !has_more);
    }
    while (next_frame(link, &frame, &has_more)) continue;
    zmq_msg_close(&frame);
    return is_answer;
}

int quoth_link_receive(quoth_link *link, quoth_reply *reply) {
    int found;
    zmq_msg_init(&reply->arguments);
    zmq_msg_init(&reply->payload);
    reply->is_open = 1;
    while ((found = receive(link, reply)) == 0) continue;
    if (found < 0) quoth_reply_close(reply);
    return found > 0;
}

/* ---- events ---- */

static unsigned port_of(const char *url) {
    const char *colon = strrchr(url, ':');
    return strncmp(url, "tcp://", 6) == 0 && colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
}

static void end_if_dead(quoth_link *link, int64_t now) {
    if (now - link->watched_at < WATCH_MS) return;
    link->watched_at = now;
    unsigned port = port_of(link->shared->url);
    if (link->descriptor >= 0 && port && quoth_end_if_dead(link->descriptor, port, UNACKNOWLEDGED_MS))
        link->descriptor = -1;
}

static int take_event(quoth_link *link, unsigned event, int value) {
    if (event == ZMQ_EVENT_CONNECTED) {
        link->descriptor = value;
        return 0;
    }
    int was_lost = link->was_connected && !link->connected;
    link->connected = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    if (!link->connected) link->descriptor = -1;
    if (link->connected) link->was_connected = 1;
    return link->connected && was_lost;
}

int quoth_link_read_events(quoth_link *link) {
    uint8_t event[64], address[256];
    int found = 0, size;
    while ((size = zmq_recv(link->monitor, event, sizeof event, ZMQ_DONTWAIT)) >= 0) {
        uint16_t number;
        uint32_t value;
        zmq_recv(link->monitor, address, sizeof address, ZMQ_DONTWAIT);
        if (size < 6) continue;
        memcpy(&number, event, sizeof number); /* in the order of this machine */
        memcpy(&value, event + 2, sizeof value);
        found |= take_event(link, number, (int)value);
    }
    return found;
}

int quoth_link_read_events_at(quoth_link *link, int64_t now) {
    if (now == link->read_at) return 0;
    link->read_at = now;
    return quoth_link_read_events(link);
}

int quoth_link_wait(quoth_link *link, int64_t until) {
    zmq_pollitem_t items[] = {{link->socket, 0, ZMQ_POLLIN, 0}, {link->monitor, 0, ZMQ_POLLIN, 0}};
    int64_t now = quoth_now();
    end_if_dead(link, now);
    int64_t left = until <= now ? 0 : until - now < WATCH_MS ? until - now : WATCH_MS;
    if (zmq_poll(items, 2, (long)left) <= 0) return 0; /* a signal ends it early, and the caller waits again */
    return items[1].revents ? quoth_link_read_events(link) : 0;
}

static int is_readable(void *socket) {
    int events = 0;
    size_t size = sizeof events;
    return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 && events & ZMQ_POLLIN;
}

int quoth_link_descriptors(quoth_link *link, int descriptors[2]) {
    descriptors[0] = descriptor_of(link->socket);
    descriptors[1] = descriptor_of(link->monitor);
    return is_readable(link->socket) | is_readable(link->monitor);
}

int quoth_link_no_answer(const quoth_link *link, const char *operation, quoth_span topic, quoth_error *error) {
    const char *url = link->shared->url, *gap = topic.size ? " " : "";
    int size = (int)topic.size;
    const char *name = topic.size ? (const char *)topic.bytes : "";
    if (link->connected)
        return quoth_fail(error, QUOTH_TIMED_OUT, NULL, "%s%s%.*s: no answer from %s in time", operation, gap, size, name,
                          url);
    return quoth_fail(error, QUOTH_DISCONNECTED, NULL, "%s%s%.*s: no broker answers at %s", operation, gap, size, name,
                      url);
}
