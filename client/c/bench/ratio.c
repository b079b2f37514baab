/* Measures libquoth against a bare DEALER that does the same exchange of frames, in turn, on one broker.
 *
 *     quoth-c-ratio URL TOPIC [BATCHES [ROUNDS [KEYFILE]]]
 *
 * Writes batches of 100 records of 100 bytes with 32 in flight, then reads all of them with fetches of 1 MiB, one
 * ahead. The bare side sends bytes that were made before and looks at no record. Each round begins with the other
 * side; one before the first does not count. Prints, as one JSON object, the batches a second of each round, and the
 * microseconds of this process's processor time a batch. Trims what it has written. KEYFILE: of both
 * sides, for a broker with keys. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "batch.h"
#include "bytes.h"
#include "key_file.h"
#include "quoth.h"

enum { /* PAYLOAD_BYTES: header, offsets, padding, values */
       RECORDS = 100, VALUE_BYTES = 100, WINDOW = 32, ROUNDS_MAX = 10000, PAYLOAD_BYTES = 64 + 4 * (RECORDS + 1) + 4 +
       RECORDS * VALUE_BYTES };

enum { READS = 4 }; /* times that all is read: reading takes a quarter of the time of writing */

enum { BARE, LIBRARY, SIDES };

static double seconds(clockid_t of) {
    struct timespec now;
    clock_gettime(of, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void stop(const char *what) {
    fprintf(stderr, "quoth-c-ratio: %s\n", what);
    exit(1);
}

/* ---- the bare side ---- */

static void use_key(void *socket, const char *path) {
    const size_t size = QUOTH_KEY_CHARACTERS + 1;
    quoth_key key;
    quoth_error error;
    if (quoth_key_read(path, &key, &error)) stop(error.text);
    if (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, key.server_keys[0], size) ||
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, key.public_key, size) ||
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, key.secret_key, size))
        stop("the bare side cannot use the key");
    quoth_wipe(&key, sizeof key);
}

static void send_frames(void *socket, uint8_t operation, uint64_t correlation, const char *topic, const void *arguments,
                        size_t size, const void *payload, size_t payload_size) {
    uint8_t header[16] = {0xd1, 0x51, 1, operation};
    memcpy(header + 8, &correlation, 8);
    zmq_send(socket, "", 0, ZMQ_SNDMORE);
    zmq_send(socket, header, sizeof header, ZMQ_SNDMORE);
    zmq_send(socket, topic, strlen(topic), ZMQ_SNDMORE);
    zmq_send(socket, arguments, size, payload ? ZMQ_SNDMORE : 0);
    if (payload) zmq_send(socket, payload, payload_size, 0);
}

/* Receives a reply; its arguments and its payload stay in the messages. */
static void receive_frames(void *socket, zmq_msg_t *arguments, zmq_msg_t *payload) {
    uint8_t header[16];
    zmq_recv(socket, header, 0, 0);
    if (zmq_recv(socket, header, sizeof header, 0) != 16 || header[4] != 1) stop("the broker refused a bare request");
    zmq_msg_recv(arguments, socket, 0);
    if (zmq_msg_more(arguments)) zmq_msg_recv(payload, socket, 0);
}

static void bare_write(void *socket, const char *topic, uint8_t *payload, uint64_t batches) {
    static const uint8_t ARGUMENTS[] = "\x81\xaa" "durability\xa0";
    static uint64_t producer;
    quoth_batch_header header;
    zmq_msg_t arguments, nothing;
    zmq_msg_init(&arguments);
    zmq_msg_init(&nothing);
    quoth_batch_read_header(payload, PAYLOAD_BYTES, 0, &header);
    header.producer = (uint64_t)time(NULL) << 16 | ++producer;
    for (uint64_t sent = 0, received = 0; received < batches; received++) {
        for (; sent < batches && sent < received + WINDOW; sent++) {
            header.sequence = sent + 1;
            quoth_batch_stamp(&header, 0, payload);
            send_frames(socket, 3, sent, topic, ARGUMENTS, sizeof ARGUMENTS - 1, payload, PAYLOAD_BYTES);
        }
        receive_frames(socket, &arguments, &nothing);
    }
    zmq_msg_close(&arguments);
    zmq_msg_close(&nothing);
}

/* `next` of a fetch's reply, which lies behind its name as an integer of 64 bits. */
static uint64_t next_of(zmq_msg_t *arguments) {
    const uint8_t *at = zmq_msg_data(arguments), *end = at + zmq_msg_size(arguments) - 14;
    uint64_t next = 0;
    while (at < end && memcmp(at, "\xa4next\xcf", 6) != 0) at++;
    for (int i = 0; i < 8; i++) next = next << 8 | at[6 + i];
    return next;
}

static void fetch(void *socket, const char *topic, uint64_t after) {
    uint8_t arguments[16] = {0x81, 0xa5, 'a', 'f', 't', 'e', 'r', 0xcf};
    for (int i = 0; i < 8; i++) arguments[8 + i] = (uint8_t)(after >> (56 - 8 * i));
    send_frames(socket, 4, after, topic, arguments, sizeof arguments, NULL, 0);
}

static void bare_read(void *socket, const char *topic, uint64_t after, uint64_t until) {
    zmq_msg_t arguments, payload;
    zmq_msg_init(&arguments);
    zmq_msg_init(&payload);
    fetch(socket, topic, after);
    while (after < until) {
        receive_frames(socket, &arguments, &payload);
        after = next_of(&arguments);
        if (after < until) fetch(socket, topic, after);
    }
    zmq_msg_close(&arguments);
    zmq_msg_close(&payload);
}

/* ---- the library ---- */

static void library_write(quoth_client *client, const char *topic, uint64_t batches) {
    quoth_producer_options options = QUOTH_PRODUCER_OPTIONS;
    quoth_producer *producer;
    quoth_error error;
    char value[VALUE_BYTES];
    quoth_record record = QUOTH_RECORD;
    record.value = (quoth_bytes){value, sizeof value};
    memset(value, 'x', sizeof value);
    options.batch_records = RECORDS;
    options.window = WINDOW;
    options.buffer_bytes = 2 * WINDOW * PAYLOAD_BYTES;
    if (quoth_producer_open(client, topic, &options, &producer, &error)) stop(error.text);
    for (uint64_t i = 0; i < batches * RECORDS; i++)
        if (quoth_producer_send(producer, &record, &error)) stop(error.text);
    if (quoth_producer_flush(producer, 60000, &error)) stop(error.text);
    quoth_producer_close(producer);
}

static uint64_t library_read(quoth_client *client, const char *topic, uint64_t after, uint64_t until) {
    quoth_reader_options options = QUOTH_READER_OPTIONS;
    quoth_reader *reader;
    quoth_error error;
    quoth_message message;
    uint64_t bytes = 0;
    options.after = after;
    options.until = until;
    if (quoth_reader_open(client, topic, &options, &reader, &error)) stop(error.text);
    while (!quoth_read(reader, 0, &message, &error)) bytes += message.value.size;
    quoth_reader_close(reader);
    return bytes;
}

/* ---- the rounds ---- */

typedef struct bench {
    quoth_client *client;
    void *socket;
    const char *topic;
    uint8_t payload[PAYLOAD_BYTES];
    uint64_t batches;
} bench;

/* What the rounds of one side came to: batches a second, and microseconds of processor time a batch. */
typedef struct figures { double rate[ROUNDS_MAX], processor[ROUNDS_MAX]; } figures;

static uint64_t newest(const bench *of) {
    quoth_topic info;
    quoth_error error;
    if (quoth_describe(of->client, of->topic, &info, &error)) stop(error.text);
    return info.last;
}

static void write_all(bench *of, int side) {
    if (side == BARE)
        bare_write(of->socket, of->topic, of->payload, of->batches);
    else
        library_write(of->client, of->topic, of->batches);
}

static void read_all(bench *of, int side, uint64_t after, uint64_t until) {
    for (int i = 0; i < READS; i++) {
        if (side == BARE)
            bare_read(of->socket, of->topic, after, until);
        else if (library_read(of->client, of->topic, after, until) != of->batches * RECORDS * VALUE_BYTES)
            stop("the library has read other records");
    }
}

static double wall_begin, processor_begin;

static void begin(void) {
    wall_begin = seconds(CLOCK_MONOTONIC);
    processor_begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
}

static void end(figures *of, int round, double batches) {
    of->rate[round] = batches / (seconds(CLOCK_MONOTONIC) - wall_begin);
    of->processor[round] = (seconds(CLOCK_PROCESS_CPUTIME_ID) - processor_begin) / batches * 1e6;
}

static void measure(bench *of, int round, figures writes[SIDES], figures reads[SIDES]) {
    uint64_t places[SIDES + 1] = {newest(of)};
    quoth_error error;
    for (int turn = 0; turn < SIDES; turn++) {
        int side = (turn + round) % SIDES;
        begin();
        write_all(of, side);
        end(&writes[side], round, (double)of->batches);
        places[turn + 1] = newest(of);
    }
    for (int turn = 0; turn < SIDES; turn++) {
        int side = (turn + round) % SIDES;
        begin();
        read_all(of, side, places[turn], places[turn + 1]);
        end(&reads[side], round, (double)of->batches * READS);
    }
    if (quoth_trim(of->client, of->topic, places[SIDES], NULL, &error)) stop(error.text);
}

static void print_list(const char *name, const double *numbers, int count) {
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++) printf("%s%.3f", i ? ", " : "", numbers[i]);
    putchar(']');
}

/* Without the first round, which was for warming up. */
static void print(const char *name, const figures of[SIDES], int rounds) {
    printf("\"%s\": {", name);
    print_list("bare", of[BARE].rate + 1, rounds);
    printf(", ");
    print_list("library", of[LIBRARY].rate + 1, rounds);
    printf(", ");
    print_list("bare_cpu_us", of[BARE].processor + 1, rounds);
    printf(", ");
    print_list("library_cpu_us", of[LIBRARY].processor + 1, rounds);
    putchar('}');
}

static void make_payload(uint8_t *payload) {
    const size_t heaps[QUOTH_COLUMNS] = {RECORDS * VALUE_BYTES, 0, 0};
    quoth_batch_layout layout;
    if (quoth_batch_plan(RECORDS, 0, heaps, &layout) || layout.size != PAYLOAD_BYTES) stop("a batch of another size");
    for (uint32_t i = 0; i <= RECORDS; i++) quoth_write_le32(payload + layout.offsets[0] + 4 * i, i * VALUE_BYTES);
    memset(payload + layout.heaps[0], 'x', RECORDS * VALUE_BYTES);
    quoth_batch_seal(payload, &layout, RECORDS, 0, 0, 0);
}

int main(int count, char **arguments) {
    static figures writes[SIDES], reads[SIDES];
    static bench of;
    int rounds = count > 4 ? atoi(arguments[4]) : 9;
    quoth_error error;
    quoth_options options = QUOTH_OPTIONS;
    if (count < 3 || rounds < 1 || rounds >= ROUNDS_MAX)
        stop("usage: quoth-c-ratio URL TOPIC [BATCHES [ROUNDS [KEYFILE]]]");
    options.key_file = count > 5 ? arguments[5] : NULL;
    of.topic = arguments[2];
    of.batches = count > 3 ? strtoull(arguments[3], NULL, 10) : 4000;
    if (quoth_connect(arguments[1], &options, &of.client, &error)) stop(error.text);
    void *context = zmq_ctx_new();
    of.socket = zmq_socket(context, ZMQ_DEALER);
    if (options.key_file) use_key(of.socket, options.key_file);
    if (zmq_connect(of.socket, arguments[1])) stop("the bare side cannot connect");
    make_payload(of.payload);
    library_write(of.client, of.topic, 1); /* makes the topic */
    for (int round = 0; round <= rounds; round++) measure(&of, round, writes, reads);
    putchar('{');
    print("write", writes, rounds);
    printf(", ");
    print("read", reads, rounds);
    printf("}\n");
    zmq_close(of.socket);
    zmq_ctx_term(context);
    quoth_close(of.client);
    return 0;
}
