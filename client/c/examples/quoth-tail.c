/* quoth-tail: a line for each record of a topic, also for new ones, for ever.

     quoth-tail [-k KEY_FILE] [-t SECONDS] URL TOPIC [AFTER]

   It waits for a topic that does not exist yet and goes on through any outage of the broker; -t says how long it waits
   for the broker at first. It reports records that are missing on stderr and goes on behind them. At its end it prints
   the cursor behind the last line that it has written: give it as AFTER to go on there. AFTER 0, the default, is before
   everything. -k: the key for a broker with keys; else that of the variable QUOTH_KEY_FILE.

   Exit status: 0 the reader of the output is gone, 1 failed, 2 wrong usage, 3 the topic was deleted, 4 no answer,
   128 + N ended by signal N. */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "program.h"

enum { TIMEOUT_S = 10 };
enum { WRITTEN, CLOSED, CUT_SHORT };

const char *program_name = "quoth-tail";

static void report_gap(void *context, const quoth_gap *gap) {
    static const int CODES[] = {QUOTH_OTHER, QUOTH_OK, QUOTH_DAMAGED, QUOTH_OK, QUOTH_OK};
    static const char *const REASONS[] = {"", "removed", "damaged", "of a topic that was deleted", "not there yet"};
    char count[32] = "some";
    (void)context;
    if (gap->records >= 0) snprintf(count, sizeof count, "%" PRId64, gap->records);
    fprintf(stderr, "%s: %s: %s records between %" PRIu64 " and %" PRIu64 " are %s\n", program_name,
            CODES[gap->reason] == QUOTH_DAMAGED ? "damaged" : "gone", count, gap->after, gap->next, REASONS[gap->reason]);
}

/* Writes a value and a newline. */
static int write_line(quoth_bytes value) {
    size_t done = 0;
    char newline[] = "\n";
    while (done <= value.size) {
        struct iovec parts[] = {{(char *)(uintptr_t)value.data + done, value.size - done}, {newline, 1}};
        ssize_t written = writev(STDOUT_FILENO, parts, 2);
        if (written >= 0) {
            done += (size_t)written;
        } else if (errno == EAGAIN) {
            struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
            poll(&output, 1, -1);
        } else if (errno != EINTR) {
            return CLOSED;
        }
        if (end_signal && done <= value.size) return CUT_SHORT;
    }
    return WRITTEN;
}

/* Waits for records, a signal, or the end of the output's reader. Returns 1 for the last. */
static int wait_for_something(quoth_reader *reader) {
    int descriptors[2];
    int64_t wait_ms = quoth_reader_descriptors(reader, descriptors);
    struct pollfd items[] = {{descriptors[0], POLLIN, 0},
                             {descriptors[1], POLLIN, 0},
                             {wakeup(), POLLIN, 0},
                             {STDOUT_FILENO, 0, 0}};
    if (poll(items, 4, wait_ms < 0 || wait_ms > 60000 ? 60000 : (int)wait_ms) <= 0) return 0;
    if (items[2].revents) clear_wakeup();
    return (items[3].revents & (POLLERR | POLLHUP)) != 0;
}

/* Writes all records as they arrive. cursor: behind the last whole line. Returns the exit status, -1 if the reader of
 * the output is gone. */
static int follow(quoth_reader *reader, uint64_t *cursor) {
    quoth_message message;
    quoth_error error;
    while (!end_signal) {
        quoth_position position;
        int code = quoth_read(reader, QUOTH_NOWAIT, &message, &error);
        if (code == QUOTH_OK) {
            int outcome = write_line(message.value);
            if (outcome == CUT_SHORT) break;
            if (outcome == CLOSED) return errno == EPIPE ? -1 : report(QUOTH_SYSTEM, "output: %s", strerror(errno));
            *cursor = message.pointer;
            continue;
        }
        if (code != QUOTH_END && !quoth_is_retryable(code)) return report_error(&error);
        quoth_reader_position(reader, &position); /* behind damage, too */
        *cursor = position.cursor;
        if (wait_for_something(reader)) return -1;
    }
    return 128 + end_signal;
}

static int usage(const char *what) {
    fprintf(stderr, "quoth-tail: usage: %s\nusage: quoth-tail [-k KEY_FILE] [-t SECONDS] URL TOPIC [AFTER]\n",
            what);
    return USAGE;
}

static int run(const char *url, const char *topic, const char *key, uint64_t after, uint64_t timeout_s) {
    quoth_options options = QUOTH_OPTIONS;
    quoth_reader_options how = QUOTH_READER_OPTIONS;
    quoth_client *client;
    quoth_reader *reader;
    quoth_error error;
    options.timeout_ms = (int64_t)timeout_s * 1000;
    options.name = program_name;
    options.key_file = key_file(key);
    how.after = after;
    how.on_gap = report_gap;
    if (quoth_connect(url, &options, &client, &error)) return report_error(&error);
    int code = quoth_reader_open(client, topic, &how, &reader, &error);
    quoth_close(client);
    if (code) return report_error(&error);
    int status = follow(reader, &after);
    quoth_reader_close(reader);
    if (status < 0) return DONE; /* the reader's position is unknown, so there is no cursor to print */
    fprintf(stderr, "quoth-tail: cursor %" PRIu64 "\n", after);
    return status;
}

int main(int count, char **arguments) {
    uint64_t timeout_s = TIMEOUT_S, after = 0;
    const char *key = NULL;
    int option, status;
    opterr = 0;
    while ((option = getopt(count, arguments, "+k:t:")) != -1) {
        if (option == 'k') key = optarg;
        if (option == 't' && (!parse_number(optarg, &timeout_s) || timeout_s < 1 || timeout_s > 86400))
            return usage("-t takes 1 to 86400 seconds");
        if (option == '?') return usage("no such option, or no value behind it");
    }
    count -= optind;
    arguments += optind;
    if (count < 2 || count > 3) return usage("URL and TOPIC");
    if (count == 3 && !parse_number(arguments[2], &after))
        return report(QUOTH_BAD_POINTER, "%s is no pointer (decimals, as it prints its cursor)", arguments[2]);
    if ((status = install_signal_handlers()) != DONE) return status;
    return run(arguments[0], arguments[1], key, after, timeout_s);
}
