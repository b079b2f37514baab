/* quoth-copy: copies one topic to another, also new records, in one loop around poll().

     quoth-copy [-k KEY_FILE] URL FROM TO

   A reader and a producer share a loop, as they share it with any other descriptors of a program. Nothing here waits
   but poll(). While the producer has no room, the reader is not asked, and a record that was refused is sent first.
   -k: the key for a broker with keys; else that of the variable QUOTH_KEY_FILE.

   Exit status as quoth-tail. */

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

const char *program_name = "quoth-copy";

/* Keeps the first error of a batch, after which nothing more is copied. */
static void take_outcome(void *context, const quoth_outcome *outcome) {
    quoth_error *failure = context;
    if (outcome->error && !failure->code && outcome->error->code != QUOTH_CLOSED) *failure = *outcome->error;
}

/* Copies what has arrived. message: a record that is not sent yet, if `*is_held`. */
static int copy(quoth_reader *reader, quoth_producer *producer, quoth_message *message, int *is_held,
                quoth_error *error) {
    for (;;) {
        int code = *is_held ? QUOTH_OK : quoth_read(reader, QUOTH_NOWAIT, message, error);
        if (code == QUOTH_END || quoth_is_retryable(code)) return QUOTH_OK;
        if (code) return code;
        quoth_record record = {message->value, message->key, NULL, 0, message->headers};
        code = quoth_producer_try_send(producer, &record, error);
        *is_held = code == QUOTH_BUSY;
        if (code) return *is_held ? QUOTH_OK : code;
    }
}

static int sooner(int64_t one, int64_t other) {
    if (one < 0 || (other >= 0 && other < one)) one = other;
    return one < 0 || one > 60000 ? 60000 : (int)one;
}

/* failure: of a batch, with the code QUOTH_OK for none. */
static int loop(quoth_reader *reader, quoth_producer *producer, const quoth_error *failure, quoth_error *error) {
    quoth_message message;
    int is_held = 0, code = QUOTH_OK;
    while (!code && !failure->code && !end_signal) {
        int reads[2], writes[2];
        code = copy(reader, producer, &message, &is_held, error);
        if (!code) code = quoth_producer_poll(producer, 0, error);
        int64_t read_ms = is_held ? -1 : quoth_reader_descriptors(reader, reads);
        int64_t write_ms = quoth_producer_descriptors(producer, writes);
        struct pollfd items[] = {{is_held ? -1 : reads[0], POLLIN, 0},
                                 {is_held ? -1 : reads[1], POLLIN, 0},
                                 {writes[0], POLLIN, 0},
                                 {writes[1], POLLIN, 0},
                                 {wakeup(), POLLIN, 0}};
        if (!code && !failure->code) poll(items, 5, sooner(read_ms, write_ms));
    }
    return code ? code : quoth_producer_flush(producer, 10000, error);
}

static int run(const char *url, const char *from, const char *to, const char *key) {
    quoth_options options = QUOTH_OPTIONS;
    quoth_producer_options how = QUOTH_PRODUCER_OPTIONS;
    quoth_client *client;
    quoth_reader *reader = NULL;
    quoth_producer *producer = NULL;
    quoth_error error, failure;
    memset(&failure, 0, sizeof failure);
    options.key_file = key_file(key);
    how.on_outcome = take_outcome;
    how.context = &failure;
    if (quoth_connect(url, &options, &client, &error)) return report_error(&error);
    int code = quoth_reader_open(client, from, NULL, &reader, &error);
    if (!code) code = quoth_producer_open(client, to, &how, &producer, &error);
    quoth_close(client);
    if (!code) code = loop(reader, producer, &failure, &error);
    quoth_producer_close(producer);
    quoth_reader_close(reader);
    return code ? report_error(&error) : end_signal ? 128 + end_signal : DONE;
}

int main(int count, char **arguments) {
    const char *key = NULL;
    int option;
    opterr = 0;
    while ((option = getopt(count, arguments, "+k:")) == 'k') key = optarg;
    if (option != -1 || count - optind != 3) {
        fprintf(stderr, "quoth-copy: usage: quoth-copy [-k KEY_FILE] URL FROM TO\n");
        return USAGE;
    }
    if (install_signal_handlers() != DONE) return FAILED;
    return run(arguments[optind], arguments[optind + 1], arguments[optind + 2], key);
}
