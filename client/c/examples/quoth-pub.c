/* quoth-pub: a record for each line of the standard input.

     quoth-pub [-k KEY_FILE] [-t SECONDS] [-w BATCHES] URL TOPIC < lines

   Lines are collected into batches, several of which are in flight. Each line is stored once and in order, through
   busy brokers, lost connections and restarts. At the end it prints how many lines were acknowledged. A batch that is
   not acknowledged within -t seconds has failed, and ends the program; of its lines it is not known whether they are
   stored. -w 1 has one batch in flight. -k: the key for a broker with keys; else that of the variable QUOTH_KEY_FILE.

   After the first SIGINT or SIGTERM it takes no more lines and waits for acknowledgements, after the second for
   nothing.

   Exit status: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 no answer, 128 + N ended by signal N. */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

enum { TIMEOUT_S = 10, WINDOW_MAX = 32, READ_BYTES = 1 << 16 };

#define LINE_BYTES_MAX ((16u << 20) - 1024u)

const char *program_name = "quoth-pub";

typedef struct publisher {
    quoth_producer *producer;
    char *input; /* what was read and is not sent: lines, and the beginning of one */
    size_t size, room;
    uint64_t lines, acknowledged, unknown;
    int has_ended, has_room; /* the input; the producer, as far as is known */
    int status;
} publisher;

/* The first status counts, and nothing more is read. */
static void fail(publisher *state, int status) {
    if (!state->status) state->status = status;
    state->has_ended = 1;
    state->size = 0;
}

static void take_outcome(void *context, const quoth_outcome *outcome) {
    publisher *state = context;
    if (outcome->ack) {
        state->acknowledged += outcome->records;
        return;
    }
    if (outcome->error->outcome_unknown) state->unknown += outcome->records;
    if (!state->status && outcome->error->code != QUOTH_CLOSED) fail(state, report_error(outcome->error));
}

/* Sends the line of so many bytes at the beginning of the input. Returns 0 if the producer has no room. */
static int send_line(publisher *state, const char *line, size_t size) {
    quoth_record record = QUOTH_RECORD;
    quoth_error error;
    record.value = (quoth_bytes){line, size};
    int code = size > LINE_BYTES_MAX ? QUOTH_TOO_LARGE : quoth_producer_try_send(state->producer, &record, &error);
    if (code == QUOTH_BUSY) return 0;
    state->lines++;
    if (size > LINE_BYTES_MAX)
        fail(state, report(QUOTH_TOO_LARGE, "line %" PRIu64 " has more than %u bytes", state->lines, LINE_BYTES_MAX));
    else if (code == QUOTH_TOO_LARGE)
        fail(state, report(code, "line %" PRIu64 ": %s", state->lines, error.text));
    else if (code)
        fail(state, report_error(&error));
    return 1;
}

/* Sends the lines that are whole, and at the end of the input the last one. */
static void send_lines(publisher *state) {
    size_t begin = 0;
    state->has_room = 1;
    while (begin < state->size && state->has_room) {
        const char *line = state->input + begin, *end = memchr(line, '\n', state->size - begin);
        size_t size = end ? (size_t)(end - line) : state->size - begin;
        if (!end && !state->has_ended && size <= LINE_BYTES_MAX) break;
        state->has_room = send_line(state, line, size);
        if (state->has_room) begin += size + (end != NULL);
    }
    if (begin > state->size) begin = state->size; /* it has failed, and the input is dropped */
    state->size -= begin;
    if (state->size && begin) memmove(state->input, state->input + begin, state->size);
}

static void read_input(publisher *state) {
    if (state->room - state->size < READ_BYTES) {
        size_t room = 2 * (state->room + READ_BYTES);
        char *input = realloc(state->input, room);
        if (!input) {
            fail(state, report(QUOTH_OUT_OF_MEMORY, "a line of more than %zu bytes", state->size));
            return;
        }
        state->input = input;
        state->room = room;
    }
    ssize_t count = read(STDIN_FILENO, state->input + state->size, READ_BYTES);
    if (count > 0)
        state->size += (size_t)count;
    else if (count == 0)
        state->has_ended = 1;
    else if (errno != EAGAIN && errno != EINTR)
        fail(state, report(QUOTH_SYSTEM, "input: %s", strerror(errno)));
}

/* Waits for the broker, the input, or a signal. */
static void wait_for_something(publisher *state) {
    int descriptors[2];
    int64_t wait_ms = quoth_producer_descriptors(state->producer, descriptors);
    int takes_input = !state->has_ended && state->has_room;
    struct pollfd items[] = {{descriptors[0], POLLIN, 0},
                             {descriptors[1], POLLIN, 0},
                             {wakeup(), POLLIN, 0},
                             {takes_input ? STDIN_FILENO : -1, POLLIN, 0}};
    if (poll(items, 4, wait_ms < 0 || wait_ms > 60000 ? 60000 : (int)wait_ms) <= 0) return;
    if (items[2].revents) clear_wakeup();
    if (items[3].revents && !end_signal) read_input(state);
}

static int is_settled(const publisher *state) {
    quoth_producer_counts counts;
    quoth_producer_count(state->producer, &counts);
    return counts.acknowledged + counts.failed == counts.sent;
}

static void publish(publisher *state) {
    quoth_error error;
    while (signals_count < 2) {
        if (end_signal && !state->has_ended) { /* the beginning of a line is no line */
            while (state->size && state->input[state->size - 1] != '\n') state->size--;
            state->has_ended = 1;
        }
        send_lines(state);
        if (state->has_ended && !state->size) {
            if (quoth_producer_flush(state->producer, 0, &error) == QUOTH_OK || is_settled(state)) break;
        } else if (quoth_producer_poll(state->producer, 0, &error)) {
            fail(state, report_error(&error));
        }
        if (!state->status || !is_settled(state)) wait_for_something(state);
    }
}

static int usage(const char *what) {
    fprintf(stderr, "quoth-pub: usage: %s\n"
                    "usage: quoth-pub [-k KEY_FILE] [-t SECONDS] [-w BATCHES] URL TOPIC < lines\n", what);
    return USAGE;
}

static int run(const char *url, const char *topic, const char *key, uint64_t timeout_s, uint64_t window) {
    quoth_options options = QUOTH_OPTIONS;
    quoth_producer_options how = QUOTH_PRODUCER_OPTIONS;
    publisher state = {NULL, NULL, 0, 0, 0, 0, 0, 0, 1, DONE};
    quoth_client *client;
    quoth_error error;
    options.timeout_ms = how.timeout_ms = (int64_t)timeout_s * 1000;
    options.name = program_name;
    options.key_file = key_file(key);
    how.window = (uint32_t)window;
    how.on_outcome = take_outcome;
    how.context = &state;
    if (quoth_connect(url, &options, &client, &error)) return report_error(&error);
    int code = quoth_producer_open(client, topic, &how, &state.producer, &error);
    quoth_close(client);
    if (code) return report_error(&error);
    publish(&state);
    quoth_producer_close(state.producer); /* now everything has an outcome */
    fprintf(stderr, "quoth-pub: %" PRIu64 " acknowledged", state.acknowledged);
    if (state.unknown) fprintf(stderr, "; of %" PRIu64 " more it is not known", state.unknown);
    fputc('\n', stderr);
    free(state.input);
    return state.status ? state.status : end_signal ? 128 + end_signal : DONE;
}

int main(int count, char **arguments) {
    uint64_t timeout_s = TIMEOUT_S, window = WINDOW_MAX;
    const char *key = NULL;
    int option, status;
    opterr = 0;
    while ((option = getopt(count, arguments, "+k:t:w:")) != -1) {
        if (option == 'k') key = optarg;
        if (option == 't' && (!parse_number(optarg, &timeout_s) || timeout_s < 1 || timeout_s > 86400))
            return usage("-t takes 1 to 86400 seconds");
        if (option == 'w' && (!parse_number(optarg, &window) || window < 1 || window > WINDOW_MAX))
            return usage("-w takes 1 to 32 batches");
        if (option == '?') return usage("no such option, or no value behind it");
    }
    if (count - optind != 2) return usage("URL and TOPIC");
    if ((status = install_signal_handlers()) != DONE) return status;
    return run(arguments[optind], arguments[optind + 1], key, timeout_s, window);
}
