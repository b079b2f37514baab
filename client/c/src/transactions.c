/* Transactions: an attempt to write a part, and the calls of a client that end a transaction.
 *
 * The broker takes the batches of an attempt by their numbers and without a hole. So when one is refused for now,
 * those behind it are refused, too, and are sent again once the first of them is staged:
 *
 *     filling --> in flight --staged--> done
 *                   |  ^
 *                   +--+ out of order: sent again when all before it are staged
 *
 * If a batch is out of order although all before it were staged, those are lost: the transaction was aborted or has
 * expired, or the broker lost its power. Then, as after every lasting error, the attempt has failed. */

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "client.h"

enum { IN_FLIGHT_MAX = QUOTH_ASKED_MAX, TIMEOUT_MS = 120000, PUBLISH_TIMEOUT_MS = 600000, PUBLISH_WAITS = 4,
       ABSENCE_MS = 60000, ONCE_BITS = 0xffff };

#define BATCH_BYTES (1u << 20)
#define IN_FLIGHT_BYTES (16u << 20)

/* A batch that is not staged yet. Rows are a queue: the oldest one first. */
typedef struct staging {
    quoth_request request;
    uint8_t *bytes;
    quoth_span payload;
    uint64_t number;
    int leads;      /* all batches before it were staged when it was sent */
    int is_refused; /* it was out of order, and is to be sent again */
} staging;

struct quoth_part {
    quoth_channel channel;
    char topic[QUOTH_NAME_BYTES_MAX + 1], application[QUOTH_NAME_BYTES_MAX + 1];
    uint64_t version, producer;
    quoth_staged staged;
    int64_t timeout_ms;
    size_t payload_bytes_max;
    quoth_records filling;
    staging *rows[IN_FLIGHT_MAX];
    unsigned count;
    size_t bytes;
    quoth_error problem; /* that ended the attempt */
};

/* ---- names ---- */

static int check_name(const char *application, quoth_error *error) {
    size_t size = application ? strlen(application) : 0;
    if (size >= 1 && size <= QUOTH_NAME_BYTES_MAX) return QUOTH_OK;
    return quoth_fail(error, QUOTH_BAD_REQUEST, NULL, "an application's name has 1 to 200 bytes");
}

/* The producer id of an application's batches. Its lowest 16 bits are 0 for a name that is used once, and no other. */
static uint64_t producer_of(const char *application) {
    uint64_t digest = quoth_xxh3(application, strlen(application), 0);
    if (*application == '~') return digest & ~(uint64_t)ONCE_BITS ? digest & ~(uint64_t)ONCE_BITS : ONCE_BITS + 1;
    return digest & ONCE_BITS ? digest : digest | 1;
}

/* ---- an attempt to write a part ---- */

int quoth_part_open(quoth_client *client, const char *topic, const char *application, uint64_t version, uint64_t part,
                    quoth_part **attempt, quoth_error *error) {
    quoth_shared *shared = client->channel.link.shared;
    *attempt = NULL;
    int code = quoth_check_topic(topic, error);
    if (!code) code = check_name(application, error);
    if (code) return code;
    quoth_part *made = calloc(1, sizeof *made);
    if (!made) return quoth_fail_memory(error);
    memcpy(made->topic, topic, strlen(topic));
    memcpy(made->application, application, strlen(application));
    made->version = version;
    made->producer = producer_of(application);
    made->staged = (quoth_staged){part, quoth_random(), 0, 0};
    made->timeout_ms = shared->timeout_ms > TIMEOUT_MS ? shared->timeout_ms : TIMEOUT_MS;
    made->payload_bytes_max = shared->payload_bytes_max;
    if (!made->staged.attempt) code = quoth_fail(error, QUOTH_SYSTEM, NULL, "the system has no random bytes");
    if (!code) code = quoth_channel_open(&made->channel, shared, error);
    if (code)
        free(made);
    else
        *attempt = made;
    return code;
}

static void free_row(quoth_part *attempt, unsigned row) {
    staging *one = attempt->rows[row];
    attempt->bytes -= one->payload.size;
    quoth_channel_forget(&attempt->channel, &one->request);
    free(one->bytes);
    free(one);
    attempt->count--;
    memmove(&attempt->rows[row], &attempt->rows[row + 1], (attempt->count - row) * sizeof attempt->rows[0]);
}

void quoth_part_close(quoth_part *attempt) {
    if (!attempt) return;
    while (attempt->count) free_row(attempt, attempt->count - 1);
    quoth_records_free(&attempt->filling);
    quoth_channel_close(&attempt->channel);
    free(attempt);
}

/* Ends the attempt with an error. */
static int end(quoth_part *attempt, const quoth_error *problem, quoth_error *error) {
    attempt->problem = *problem;
    return quoth_pass_error(&attempt->problem, error);
}

static int has_refused(const quoth_part *attempt) {
    for (unsigned row = 0; row < attempt->count; row++)
        if (attempt->rows[row]->is_refused) return 1;
    return 0;
}

/* Sends the batches that are not in flight, in order. */
static void send_ready(quoth_part *attempt) {
    if (attempt->count && attempt->rows[0]->request.state == QUOTH_ASKED && has_refused(attempt))
        return; /* until the first one is staged, they would be refused again */
    for (unsigned row = 0; row < attempt->count; row++) {
        staging *one = attempt->rows[row];
        if (one->request.state != QUOTH_IDLE) continue;
        quoth_request_begin(&attempt->channel, &one->request, QUOTH_OP_STAGE, attempt->topic, attempt->timeout_ms);
        quoth_msg_stage *stage = &one->request.message.stage;
        stage->application = quoth_span_of(attempt->application);
        stage->version = attempt->version;
        stage->part = attempt->staged.part;
        stage->attempt = attempt->staged.attempt;
        stage->number = one->number;
        one->request.payload = &one->payload;
        one->request.retries_disk_low = 1;
        one->leads = row == 0;
        one->is_refused = 0;
        quoth_channel_ask(&attempt->channel, &one->request);
    }
}

/* Takes the outcomes that there are. */
static int take_settled(quoth_part *attempt, quoth_error *error) {
    quoth_error lost;
    for (unsigned row = 0; row < attempt->count; row++) {
        staging *one = attempt->rows[row];
        if (one->request.state != QUOTH_SETTLED) continue;
        if (!one->request.code) {
            free_row(attempt, row--);
        } else if (one->request.code != QUOTH_OUT_OF_SEQUENCE) {
            return end(attempt, &one->request.error, error);
        } else if (one->leads) {
            quoth_fail(&lost, QUOTH_NOT_STAGED, "aborted, expired, or lost with the broker's power",
                       "part %llu: batches that were staged are gone", (unsigned long long)attempt->staged.part);
            return end(attempt, &lost, error);
        } else {
            quoth_request_end(&one->request);
            one->is_refused = 1;
        }
    }
    return QUOTH_OK;
}

/* Sends and waits until at most so many batches are left. */
static int reduce(quoth_part *attempt, unsigned count, size_t bytes, quoth_error *error) {
    for (;;) {
        send_ready(attempt);
        quoth_channel_turn(&attempt->channel, 0);
        int code = take_settled(attempt, error);
        if (code || (attempt->count <= count && attempt->bytes <= bytes)) return code;
        send_ready(attempt);
        quoth_channel_turn(&attempt->channel, QUOTH_NEVER);
    }
}

/* Puts the records so far in flight, as the next batch of the attempt. */
static int stage(quoth_part *attempt, quoth_error *error) {
    int code = reduce(attempt, IN_FLIGHT_MAX - 1, IN_FLIGHT_BYTES, error);
    if (code) return code;
    staging *one = calloc(1, sizeof *one);
    if (!one) return quoth_fail_memory(error);
    code = quoth_records_write(&attempt->filling, QUOTH_BATCH_TRANSACTION, attempt->producer, attempt->version + 1,
                               attempt->payload_bytes_max, &one->bytes, &one->payload.size, error);
    if (code) {
        free(one);
        return code;
    }
    one->payload.bytes = one->bytes;
    one->number = attempt->staged.batches++;
    attempt->staged.records += attempt->filling.count;
    attempt->bytes += one->payload.size;
    attempt->rows[attempt->count++] = one;
    quoth_records_clear(&attempt->filling);
    send_ready(attempt);
    return QUOTH_OK;
}

int quoth_part_write(quoth_part *attempt, const quoth_record *record, quoth_error *error) {
    size_t size = quoth_record_bytes(record), most = attempt->payload_bytes_max - QUOTH_BATCH_OVERHEAD;
    int code = QUOTH_OK;
    if (attempt->problem.code) return quoth_pass_error(&attempt->problem, error);
    if (size > most) return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "a record of %zu bytes", size);
    if (most > BATCH_BYTES) most = BATCH_BYTES;
    if (attempt->filling.count
        && (quoth_records_bytes(&attempt->filling) + size > most || attempt->filling.count >= QUOTH_BATCH_RECORDS_MAX))
        code = stage(attempt, error);
    return code ? code : quoth_records_add(&attempt->filling, record, error);
}

int quoth_part_flush(quoth_part *attempt, quoth_error *error) {
    if (attempt->problem.code) return quoth_pass_error(&attempt->problem, error);
    return attempt->filling.count ? stage(attempt, error) : QUOTH_OK;
}

int quoth_part_finish(quoth_part *attempt, quoth_staged *staged, quoth_error *error) {
    int code = quoth_part_flush(attempt, error);
    if (!code) code = reduce(attempt, 0, IN_FLIGHT_BYTES, error);
    if (code) return code;
    *staged = attempt->staged;
    quoth_fail(&attempt->problem, QUOTH_CLOSED, NULL, "part %llu is finished",
               (unsigned long long)attempt->staged.part);
    return QUOTH_OK;
}

/* ---- ending a transaction ---- */

/* Encodes the parts that have batches into memory of their own. */
static int write_parts(const quoth_staged *parts, size_t count, uint8_t **bytes, quoth_span *payload, uint64_t *named,
                       quoth_error *error) {
    if (count > QUOTH_TRANSACTION_BATCHES_MAX)
        return quoth_fail(error, QUOTH_TOO_LARGE, NULL, "a transaction of %zu parts, at most %u", count,
                          QUOTH_TRANSACTION_BATCHES_MAX);
    *bytes = malloc(count * QUOTH_PART_BYTES + 1);
    if (!*bytes) return quoth_fail_memory(error);
    for (size_t row = 0; row < count; row++) {
        if (!parts[row].batches) continue;
        uint8_t *at = *bytes + QUOTH_PART_BYTES * (size_t)(*named)++;
        quoth_write_le64(at, parts[row].part);
        quoth_write_le64(at + 8, parts[row].attempt);
        quoth_write_le64(at + 16, parts[row].batches);
        quoth_write_le64(at + 24, parts[row].records);
    }
    *payload = (quoth_span){*bytes, QUOTH_PART_BYTES * (size_t)*named};
    return QUOTH_OK;
}

int quoth_publish_staged(quoth_client *client, const char *topic, const char *application, uint64_t version,
                         const quoth_staged *parts, size_t count, int64_t newest, int64_t wait_ms, quoth_ack *ack,
                         quoth_error *error) {
    uint8_t *bytes = NULL;
    quoth_span payload = {NULL, 0};
    uint64_t named = 0;
    int code = check_name(application, error);
    if (!code) code = quoth_client_begin_topic(client, QUOTH_OP_PUBLISH_STAGED, topic, error);
    if (!code) code = write_parts(parts, count, &bytes, &payload, &named, error);
    if (code) return code;
    quoth_request *request = &client->request;
    int64_t timeout_ms = client->channel.link.shared->timeout_ms;
    request->message.publish_staged =
        (quoth_msg_publish_staged){quoth_span_of(application), version, named, newest};
    request->payload = &payload;
    request->deadline = quoth_later(quoth_now(), wait_ms > 0 ? wait_ms : PUBLISH_TIMEOUT_MS);
    request->wait_ms = PUBLISH_WAITS * client->channel.link.shared->resend_ms; /* it may be of gigabytes */
    request->absence_ms = timeout_ms > ABSENCE_MS ? timeout_ms : ABSENCE_MS;
    request->retries_disk_low = 1;
    code = quoth_client_settle(client, error);
    free(bytes);
    request->payload = NULL;
    if (!code && ack) quoth_ack_of(&request->message.published, ack);
    return code;
}

static int ask_transaction(quoth_client *client, unsigned operation, const char *topic, const char *application,
                           uint64_t version, quoth_transaction *transaction, quoth_error *error) {
    static const char *const STATES[] = {"unknown", "staged", "published"};
    int code = check_name(application, error);
    if (!code) code = quoth_client_begin_topic(client, operation, topic, error);
    if (code) return code;
    client->request.message.name = (quoth_msg_name){quoth_span_of(application), version};
    code = quoth_client_settle(client, error);
    if (code || !transaction) return code;
    const quoth_msg_transaction *found = &client->request.message.transaction;
    *transaction = (quoth_transaction){QUOTH_TRANSACTION_UNKNOWN, found->first,   found->last,
                                       found->count,              found->parts,   found->batches,
                                       found->records,            found->bytes,   found->newest_version};
    for (int state = 0; state < 3; state++)
        if (quoth_is_text(found->state, STATES[state])) transaction->state = state;
    return QUOTH_OK;
}

int quoth_inspect(quoth_client *client, const char *topic, const char *application, uint64_t version,
                  quoth_transaction *transaction, quoth_error *error) {
    return ask_transaction(client, QUOTH_OP_TRANSACTION, topic, application, version, transaction, error);
}

int quoth_abort(quoth_client *client, const char *topic, const char *application, uint64_t version,
                quoth_transaction *transaction, quoth_error *error) {
    return ask_transaction(client, QUOTH_OP_ABORT, topic, application, version, transaction, error);
}
