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

#define EVENTS (ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECTED | QUOTH_REJECTIONS)

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

uint64_t quoth_new_producer(void) {
    uint64_t bits = quoth_random();
    return bits ? bits >> 1 | 1 : 0;
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
    quoth_wipe(&shared->key, sizeof shared->key);
    free(shared->key_file);
    free(shared->url);
    free(shared);
}

/* ---- opening ---- */

static int set_number(void *socket, int option, int number) {
    return zmq_setsockopt(socket, option, &number, sizeof number);
}

static int set_key(void *socket, int option, const char key[QUOTH_KEY_CHARACTERS + 1]) {
    return zmq_setsockopt(socket, option, key, QUOTH_KEY_CHARACTERS + 1);
}

static int set_curve(quoth_link *link) {
    const quoth_key *key = &link->shared->key;
    if (!*key->secret_key) return 0;
    return set_key(link->socket, ZMQ_CURVE_SERVERKEY, key->server_keys[link->server_key])
           | set_key(link->socket, ZMQ_CURVE_PUBLICKEY, key->public_key)
           | set_key(link->socket, ZMQ_CURVE_SECRETKEY, key->secret_key);
}

/* Any number of answers, of which there are no more than requests: libzmq ends a process that has heartbeats and a
   full queue when the connection is lost. */
static int set_options(quoth_link *link) {
    void *socket = link->socket;
    return set_number(socket, ZMQ_LINGER, 0) | set_number(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS)
           | set_number(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
           | set_number(socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS) | set_number(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS)
           | set_number(socket, ZMQ_TCP_MAXRT, SILENCE_MS) | set_number(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS)
           | set_number(socket, ZMQ_HEARTBEAT_TIMEOUT, SILENCE_MS) | set_number(socket, ZMQ_RCVHWM, 0)
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

static void close_socket(quoth_link *link) {
    if (link->socket) {
        zmq_socket_monitor(link->socket, NULL, 0);
        zmq_close(link->socket);
    }
    if (link->monitor) zmq_close(link->monitor);
}

/* Begins with another socket, and closes the one before. That stays after an error. */
static int open_socket(quoth_link *link, int server_key, quoth_error *error) {
    quoth_link fresh;
    int code = QUOTH_OK;
    memset(&fresh, 0, sizeof fresh);
    fresh.shared = link->shared;
    fresh.server_key = server_key;
    fresh.descriptor = -1;
    fresh.socket = zmq_socket(fresh.shared->context, ZMQ_DEALER);
    if (!fresh.socket || set_options(&fresh) || open_monitor(&fresh))
        code = quoth_fail(error, QUOTH_SYSTEM, "close some clients", "no socket can be made: %s", zmq_strerror(errno));
    else if (set_curve(&fresh))
        code = quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "the CURVE keys: %s", zmq_strerror(errno));
    else if (zmq_connect(fresh.socket, fresh.shared->url) < 0)
        code = quoth_fail(error, QUOTH_BAD_REQUEST, "like tcp://127.0.0.1:5555", "%s: %s", fresh.shared->url,
                          zmq_strerror(errno));
    close_socket(code ? &fresh : link);
    if (!code) *link = fresh;
    return code;
}

static int known_server_key(const quoth_shared *shared) {
    return __atomic_load_n(&shared->server_key, __ATOMIC_RELAXED);
}

int quoth_link_open(quoth_link *link, quoth_shared *shared, quoth_error *error) {
    memset(link, 0, sizeof *link);
    __atomic_add_fetch(&shared->users, 1, __ATOMIC_RELAXED);
    link->shared = shared;
    int code = open_socket(link, known_server_key(shared), error);
    if (code) quoth_link_close(link);
    return code;
}

void quoth_link_close(quoth_link *link) {
    if (!link->shared) return;
    close_socket(link);
    quoth_shared_release(link->shared);
    link->shared = NULL;
}

int quoth_link_retry(quoth_link *link, quoth_error *error) {
    return open_socket(link, known_server_key(link->shared), error);
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

/* Ends the attempts to connect: libzmq would go on with some of them. */
static void refuse(quoth_link *link, quoth_rejection rejection) {
    zmq_disconnect(link->socket, link->shared->url);
    link->rejection = rejection;
    link->connected = 0;
    link->descriptor = -1;
}

/* Begins another attempt, with another socket. Without one libzmq may go on with the present one. */
static void try_server_key(quoth_link *link, int server_key) {
    quoth_link before = *link;
    if (open_socket(link, server_key, NULL)) return;
    link->is_lost = 1;
    link->was_connected = before.was_connected;
    link->closings = before.closings;
}

/* Tries the other server key at once after the first closing, the third, ...; libzmq pauses after those between.
 * is_over: libzmq does not try again. */
static void take_closing(quoth_link *link, int is_over) {
    int keys = *link->shared->key.server_keys[1] ? 2 : 1;
    if (++link->closings >= QUOTH_CLOSINGS_MAX * keys) {
        quoth_rejection rejection = quoth_ask_mechanism(link->shared->context, link->shared->url);
        if (rejection) {
            refuse(link, rejection);
            return;
        }
        link->closings = 0;
    }
    int is_other = keys == 2 && link->closings % 2;
    if (is_other || is_over) try_server_key(link, is_other ? !link->server_key : link->server_key);
}

static void take_failure(quoth_link *link, unsigned event, unsigned value) {
    quoth_rejection rejection = quoth_judge(event, value, &link->shared->key);
    if (rejection == QUOTH_SERVER_KEY)
        take_closing(link, event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL);
    else if (rejection)
        refuse(link, rejection);
}

/* Returns 1 if a lost connection was made again. */
static int take_success(quoth_link *link) {
    int was_lost = link->is_lost;
    link->connected = link->was_connected = 1;
    link->is_lost = link->closings = 0;
    __atomic_store_n(&link->shared->server_key, link->server_key, __ATOMIC_RELAXED);
    return was_lost;
}

static int take_event(quoth_link *link, unsigned event, unsigned value) {
    if (link->rejection) return 0; /* of attempts before it */
    switch (event) {
    case ZMQ_EVENT_CONNECTED: link->descriptor = (int)value; return 0;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: return take_success(link);
    case ZMQ_EVENT_DISCONNECTED:
        link->is_lost |= link->connected;
        link->connected = 0;
        link->descriptor = -1;
        return 0;
    default: take_failure(link, event, value); return 0;
    }
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
        found |= take_event(link, number, value); /* which may begin with another monitor */
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
    if (link->rejection)
        return quoth_fail_refused(link->rejection, url, &link->shared->key, link->shared->key_file, error);
    if (link->connected)
        return quoth_fail(error, QUOTH_TIMED_OUT, NULL, "%s%s%.*s: no answer from %s in time", operation, gap, size, name,
                          url);
    return quoth_fail(error, QUOTH_DISCONNECTED, NULL, "%s%s%.*s: no broker answers at %s", operation, gap, size, name,
                      url);
}
