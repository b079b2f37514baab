/* A client: connecting, publishing, and the calls that concern the broker. */

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

enum { TIMEOUT_MS = 10000, RESEND_MS = 5000 };

/* ---- what several files need ---- */

int quoth_is_text(quoth_span span, const char *text) {
    return span.size == strlen(text) && memcmp(span.bytes, text, span.size) == 0;
}

quoth_span quoth_span_of(const char *text) { return (quoth_span){(const uint8_t *)text, text ? strlen(text) : 0}; }

int quoth_check_topic(const char *topic, quoth_error *error) {
    size_t size = topic ? strlen(topic) : 0;
    if (size >= 1 && size <= QUOTH_NAME_BYTES_MAX) return QUOTH_OK;
    return quoth_fail(error, QUOTH_BAD_TOPIC, NULL, "a topic's name of %zu bytes", size);
}

static const char *const DURABILITIES[] = {"", "written", "synced"};

quoth_span quoth_durability_text(int durability) {
    return quoth_span_of(durability >= QUOTH_DEFAULT && durability <= QUOTH_SYNCED ? DURABILITIES[durability] : "?");
}

int quoth_durability_of(quoth_span text) {
    for (int level = QUOTH_SYNCED; level > QUOTH_DEFAULT; level--)
        if (quoth_is_text(text, DURABILITIES[level])) return level;
    return QUOTH_DEFAULT;
}

void quoth_ack_of(const quoth_msg_published *published, quoth_ack *ack) {
    ack->log = published->log;
    ack->first = published->first;
    ack->last = published->last;
    ack->count = published->count;
    ack->durability = quoth_durability_of(published->durability);
    ack->duplicate = published->duplicate != 0;
}

void quoth_client_begin(quoth_client *client, unsigned operation, const char *topic) {
    quoth_request_begin(&client->channel, &client->request, operation, topic, client->channel.link.shared->timeout_ms);
}

int quoth_client_begin_topic(quoth_client *client, unsigned operation, const char *topic, quoth_error *error) {
    int code = quoth_check_topic(topic, error);
    if (!code) quoth_client_begin(client, operation, topic);
    return code;
}

int quoth_client_settle(quoth_client *client, quoth_error *error) {
    quoth_no_error(error);
    return quoth_channel_settle(&client->channel, &client->request, error);
}

/* ---- connecting ---- */

static const quoth_options DEFAULTS = QUOTH_OPTIONS;

/* Copies options of any version of this structure over the defaults. */
static void take_options(const quoth_options *given, quoth_options *options) {
    *options = DEFAULTS;
    if (given) memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
    if (options->timeout_ms <= 0) options->timeout_ms = TIMEOUT_MS;
    if (options->wait_ms <= 0) options->wait_ms = options->timeout_ms;
    if (options->resend_ms <= 0) options->resend_ms = RESEND_MS;
    if (!options->name) options->name = "libquoth";
}

static int take_key_file(const char *path, quoth_shared *shared, quoth_error *error) {
    char public_key[sizeof shared->key.public_key];
    size_t size = strlen(path) + 1;
    if (!*path)
        return quoth_fail(error, QUOTH_BAD_SETTING, "is a variable not set? without a key file there is no key",
                          "the key file is an empty path");
    shared->key_file = malloc(size);
    if (!shared->key_file) return quoth_fail_memory(error);
    memcpy(shared->key_file, path, size);
    int code = quoth_key_read(path, &shared->key, error);
    if (code) return code;
    if (zmq_curve_public(public_key, shared->key.secret_key) < 0)
        return quoth_fail(error, QUOTH_SYSTEM, "install a libzmq with libsodium", "this libzmq has no CURVE");
    if (strcmp(public_key, shared->key.public_key) == 0) return QUOTH_OK;
    return quoth_fail(error, QUOTH_BAD_SETTING, "take both from one pair",
                      "the key file %s: its public-key is not that of its secret-key", path);
}

static int take_keys(const quoth_options *options, quoth_shared *shared, quoth_error *error) {
    const char *keys[] = {options->server_key, options->public_key, options->secret_key};
    char *places[] = {shared->key.server_keys[0], shared->key.public_key, shared->key.secret_key};
    int given = 0;
    for (int key = 0; key < 3; key++) given += keys[key] != NULL;
    if (options->key_file && !given) return take_key_file(options->key_file, shared, error);
    if (given && (given < 3 || options->key_file))
        return quoth_fail(error, QUOTH_BAD_REQUEST, NULL,
                          "CURVE takes a key file, or the broker's key and a pair of the client's");
    for (int key = 0; given && key < 3; key++) {
        if (!quoth_is_key(quoth_span_of(keys[key])))
            return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "a CURVE key is %d characters of Z85",
                              QUOTH_KEY_CHARACTERS);
        memcpy(places[key], keys[key], QUOTH_KEY_CHARACTERS);
    }
    return QUOTH_OK;
}

static uint64_t number_in(quoth_span map, const char *name, uint64_t missing) {
    quoth_span key, found;
    quoth_value value;
    if (!quoth_unpack(&map, &value)) return missing;
    for (uint64_t left = value.number; left && quoth_pair_next(&map, &key, &found); left--)
        if (quoth_is_text(key, name))
            return quoth_unpack(&found, &value) && value.kind == QUOTH_UNSIGNED ? value.number : missing;
    return missing;
}

int quoth_hello(quoth_client *client, quoth_broker *broker, quoth_error *error) {
    quoth_client_begin(client, QUOTH_OP_HELLO, NULL);
    client->request.message.hello.client = quoth_span_of(client->name);
    int code = quoth_client_settle(client, error);
    if (code) return code;
    const quoth_msg_welcome *welcome = &client->request.message.welcome;
    uint64_t frame = number_in(welcome->limits, "frame_bytes_max", QUOTH_BATCH_BYTES_MAX);
    client->channel.link.shared->payload_bytes_max =
        frame < QUOTH_BATCH_BYTES_MAX ? (size_t)frame : QUOTH_BATCH_BYTES_MAX;
    if (!broker) return QUOTH_OK;
    memset(broker, 0, sizeof *broker);
    quoth_copy_text(broker->server, sizeof broker->server, welcome->server);
    broker->batch_bytes_max = number_in(welcome->limits, "batch_bytes_max", QUOTH_BATCH_BYTES_MAX);
    broker->fetch_bytes_max = number_in(welcome->limits, "fetch_bytes_max", 4u << 20);
    broker->frame_bytes_max = frame;
    return QUOTH_OK;
}

static int greet(quoth_client *client, const quoth_options *options, quoth_error *error) {
    quoth_shared *shared = client->channel.link.shared;
    snprintf(client->name, sizeof client->name, "%s", options->name);
    shared->resend_ms = options->resend_ms;
    shared->timeout_ms = options->wait_ms;
    int code = quoth_hello(client, NULL, error);
    shared->timeout_ms = options->timeout_ms;
    return code;
}

int quoth_connect(const char *url, const quoth_options *options, quoth_client **client, quoth_error *error) {
    quoth_options taken;
    *client = NULL;
    take_options(options, &taken);
    if (!url) return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "no URL");
    quoth_client *made = calloc(1, sizeof *made);
    if (!made) return quoth_fail_memory(error);
    quoth_shared *shared = quoth_shared_new(url, error);
    if (!shared) {
        free(made);
        return error ? error->code : QUOTH_OUT_OF_MEMORY;
    }
    int code = take_keys(&taken, shared, error);
    if (!code) code = quoth_channel_open(&made->channel, shared, error);
    quoth_shared_release(shared);
    if (!code) code = greet(made, &taken, error);
    if (code)
        quoth_close(made);
    else
        *client = made;
    return code;
}

void quoth_close(quoth_client *client) {
    if (!client) return;
    quoth_request_end(&client->request);
    quoth_channel_close(&client->channel);
    quoth_records_free(&client->records);
    free(client->sequences);
    free(client);
}

void quoth_set_timeout(quoth_client *client, int64_t timeout_ms) {
    client->channel.link.shared->timeout_ms = timeout_ms > 0 ? timeout_ms : TIMEOUT_MS;
}

/* ---- the broker ---- */

int quoth_ping(quoth_client *client, uint64_t *time, quoth_error *error) {
    quoth_client_begin(client, QUOTH_OP_PING, NULL);
    int code = quoth_client_settle(client, error);
    if (!code && time) *time = client->request.message.pong.time;
    return code;
}

int quoth_get_status(quoth_client *client, quoth_status *status, quoth_error *error) {
    quoth_client_begin(client, QUOTH_OP_STATUS, NULL);
    client->request.message.list.limit = 0;
    int code = quoth_client_settle(client, error);
    if (code) return code;
    const quoth_msg_broker_status *found = &client->request.message.status;
    memset(status, 0, sizeof *status);
    quoth_copy_text(status->server, sizeof status->server, found->server);
    quoth_copy_text(status->directory, sizeof status->directory, found->directory);
    status->pid = found->pid;
    status->topics = found->topics;
    status->active = found->active;
    status->waits = found->waits;
    status->uptime_s = found->uptime;
    return QUOTH_OK;
}

int quoth_counter(const quoth_topic *topic, const char *name, uint64_t *count) {
    quoth_span counters = {topic->counters.data, topic->counters.size};
    *count = number_in(counters, name, UINT64_MAX);
    return *count != UINT64_MAX;
}

int quoth_next_header(quoth_bytes *headers, uint32_t *left, quoth_header *header) {
    quoth_span rest = {headers->data, headers->size}, name = {NULL, 0}, value = {NULL, 0};
    int found = quoth_headers_next(&rest, left, &name, &value);
    *headers = (quoth_bytes){rest.bytes, rest.size};
    header->name = (quoth_bytes){name.bytes, name.size};
    header->value = (quoth_bytes){value.bytes, value.size};
    return found;
}

/* ---- publishing ---- */

/* The producer id for a topic, a new one for a topic that is not known. NULL: no memory, or no random bits. */
static quoth_sequence *sequence_of(quoth_client *client, const char *topic, quoth_error *error) {
    for (unsigned row = 0; row < client->sequences_count; row++)
        if (strcmp(client->sequences[row].topic, topic) == 0) return &client->sequences[row];
    if (!client->sequences) client->sequences = calloc(QUOTH_TOPICS_KNOWN, sizeof *client->sequences);
    uint64_t producer = quoth_new_producer();
    if (!client->sequences || !producer) {
        if (client->sequences)
            quoth_fail(error, QUOTH_SYSTEM, NULL, "the system has no random bytes");
        else
            quoth_fail_memory(error);
        return NULL;
    }
    unsigned row = client->sequences_count < QUOTH_TOPICS_KNOWN ? client->sequences_count++
                                                               : client->sequences_next++ % QUOTH_TOPICS_KNOWN;
    quoth_sequence *sequence = &client->sequences[row];
    memcpy(sequence->topic, topic, strlen(topic) + 1);
    sequence->producer = producer;
    sequence->stored = 0;
    return sequence;
}

/* The sequence after it is not known, or the broker does not know the producer id: the next publish has another. */
static void forget(quoth_client *client, const quoth_sequence *sequence) {
    client->sequences[sequence - client->sequences] = client->sequences[--client->sequences_count];
}

static int publish_once(quoth_client *client, const char *topic, int durability, int64_t deadline, quoth_error *error) {
    quoth_error found;
    quoth_span payload;
    uint8_t *bytes;
    quoth_no_error(&found);
    quoth_sequence *sequence = sequence_of(client, topic, &found);
    if (!sequence) return quoth_pass_error(&found, error);
    int code = quoth_records_write(&client->records, 0, sequence->producer, sequence->stored + 1,
                                   client->channel.link.shared->payload_bytes_max, &bytes, &payload.size, error);
    if (code) return code;
    payload.bytes = bytes;
    quoth_client_begin(client, QUOTH_OP_PUBLISH, topic);
    client->request.message.publish.durability = quoth_durability_text(durability);
    client->request.payload = &payload;
    client->request.deadline = deadline;
    code = quoth_client_settle(client, &found);
    free(bytes);
    client->request.payload = NULL;
    if (!code) {
        sequence->stored++;
        return QUOTH_OK;
    }
    int is_forgotten = code == QUOTH_UNKNOWN_PRODUCER || code == QUOTH_OUT_OF_SEQUENCE;
    if (found.outcome_unknown || client->request.unanswered > 0 || is_forgotten) forget(client, sequence);
    return quoth_pass_error(&found, error);
}

static int collect(quoth_client *client, const quoth_record *records, size_t count, quoth_error *error) {
    quoth_records_clear(&client->records);
    for (size_t row = 0; row < count; row++) {
        int code = quoth_records_add(&client->records, &records[row], error);
        if (code) return code;
    }
    return QUOTH_OK;
}

int quoth_publish(quoth_client *client, const char *topic, const quoth_record *records, size_t count, int durability,
                  quoth_ack *ack, quoth_error *error) {
    int code = quoth_check_topic(topic, error);
    quoth_no_error(code ? NULL : error);
    if (!code) code = collect(client, records, count, error);
    if (code) return code;
    int64_t deadline = quoth_later(quoth_now(), client->channel.link.shared->timeout_ms);
    code = publish_once(client, topic, durability, deadline, error);
    if (code == QUOTH_UNKNOWN_PRODUCER || code == QUOTH_OUT_OF_SEQUENCE) { /* all before it are settled */
        quoth_no_error(error);
        code = publish_once(client, topic, durability, deadline, error);
    }
    if (!code && ack) quoth_ack_of(&client->request.message.published, ack);
    return code;
}
