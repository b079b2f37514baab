/* One read after the other, each from the NEXT of the one before. The broker waits if there is no record. */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "quothpipe.h"

#define READ_LIMIT "1000"
#define WAIT_MS "10000"

enum { WRITTEN, CLOSED, CUT_SHORT };

/* Write a value and a newline. */
static int write_line(const char *value, size_t size) {
    size_t done = 0;
    while (done <= size) {
        struct iovec parts[] = {{(char *)value + done, size - done}, {"\n", 1}};
        ssize_t written = writev(STDOUT_FILENO, parts, 2);
        if (written >= 0) {
            done += (size_t)written;
        } else if (errno == EAGAIN) {
            struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
            poll(&output, 1, -1);
        } else if (errno != EINTR) {
            return CLOSED;
        }
        if (end_signal && done <= size) return CUT_SHORT;
    }
    return WRITTEN;
}

/* Write the records of an answer. The cursor advances with each line, finally to NEXT. */
static int write_records(struct broker *broker, uint64_t *cursor) {
    uint64_t next, pointer;
    if (!next_frame(broker) || !frame_number(broker, &next))
        return report_error("unsupported_version", "an answer without NEXT");
    while (next_frame(broker)) {
        if (!frame_number(broker, &pointer) || !next_frame(broker))
            return report_error("unsupported_version", "an answer with a pointer and no value");
        switch (write_line(zmq_msg_data(&broker->frame), zmq_msg_size(&broker->frame))) {
            case CUT_SHORT: return DONE;
            case CLOSED: return errno == EPIPE ? -1 : report_error("os_error", "output: %s", strerror(errno));
        }
        *cursor = pointer;
    }
    *cursor = next;
    return DONE;
}

/* Read the next frame as a number; 0 if there is none. */
static int next_number(struct broker *broker, uint64_t *number) {
    return next_frame(broker) && frame_number(broker, number);
}

static void send_read(struct broker *broker, uint64_t number, const char *topic, uint64_t cursor) {
    char after[24];
    snprintf(after, sizeof after, "%" PRIu64, cursor);
    start_request(broker, number, "read", 1);
    send_text(broker, topic, 1);
    send_text(broker, after, 1);
    send_text(broker, READ_LIMIT, 1);
    send_text(broker, WAIT_MS, 0);
}

/* Write all records as they arrive. Returns the exit status, -1 if the reader of the output is gone. */
static int follow(struct broker *broker, const char *topic, uint64_t *cursor) {
    uint64_t number = 0, next;
    int64_t due = 0, timeout_at = NEVER, pause = 0;
    struct answer answer;
    while (!end_signal) {
        int status = DONE;
        if (now_ms() >= due) {
            send_read(broker, ++number, topic, *cursor);
            due = NEVER;
            timeout_at = now_ms() + atoi(WAIT_MS) + broker->timeout_ms;
        }
        int found = wait_for_events(broker, STDOUT_FILENO, ZMQ_POLLERR, due < timeout_at ? due : timeout_at);
        if (found & STREAM) return -1;
        if (take_answer(broker, &answer)) {
            if (answer.number != number) continue;
            if (answer.ok) {
                status = write_records(broker, cursor);
                due = pause = 0;
            } else if (is_retryable(answer.code) || strcmp(answer.code, "unknown_topic") == 0) {
                pause = next_pause(pause);
                due = now_ms() + pause;
            } else if (strcmp(answer.code, "damaged") == 0 && next_number(broker, &next)) {
                report_error(answer.code, "%s", answer.text);
                *cursor = next; /* behind the damage */
                due = pause = 0;
            } else {
                status = report_error(answer.code, "%s", answer.text);
            }
        } else if (found & BROKEN || now_ms() >= timeout_at) {
            status = connect_socket(broker);
            due = now_ms() + RECONNECT_PAUSE_MS; /* never longer: the broker may be back by then */
            pause = 0;
        }
        if (status != DONE) return status;
    }
    return 128 + end_signal;
}

int tail(struct broker *broker, const char *topic, uint64_t after) {
    uint64_t cursor = after;
    int status = follow(broker, topic, &cursor);
    if (status < 0) return DONE; /* the reader's position is unknown, so there is no cursor to print */
    fprintf(stderr, "quothpipe: cursor %" PRIu64 "\n", cursor);
    return status;
}
