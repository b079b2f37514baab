/* Turns lines into requests. Many are in flight; each is kept until its answer. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quothpipe.h"

#define VALUES_MAX 1000     /* lines in one request; the limit is 10,000 */
#define REQUEST_BYTES 65536 /* a request of this size gets no further line */
#define UNANSWERED_BYTES (32 * 1024 * 1024)
#define LINE_BYTES_MAX (16 * 1024 * 1024 - 1024)

/* The lines of a request. It is sent when `due`, which is NEVER while its answer is expected. */
struct request {
    uint64_t number; /* its id; 0: the row is free */
    char *lines;     /* each with its newline, except perhaps the last one */
    size_t size, count;
    int64_t due, pause;
    int resent;
};

struct publish_state {
    struct broker *broker;
    const char *topic;
    struct request requests[WINDOW_MAX];
    size_t window, unanswered_bytes;
    uint64_t numbers, acknowledged, acknowledged_resent, lines;
    int64_t heard_at; /* the time of the last answer, or of the first request that is in flight */
    char *input;   /* bytes that are in no request yet */
    size_t input_size, input_room, searched;
    int input_ended, line_is_too_long, status, reported;
};

/* Return the end of a line, its newline included. */
static const char *line_end(const char *line, const char *end) {
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    return newline ? newline + 1 : end;
}

static void fail(struct publish_state *state, int status) {
    if (state->status == DONE) state->status = status;
    state->input_ended = 1;
    state->input_size = 0;
}

static void read_input(struct publish_state *state) {
    if (state->input_room - state->input_size < REQUEST_BYTES) {
        size_t room = state->input_room * 2 + REQUEST_BYTES;
        char *larger = realloc(state->input, room);
        if (!larger) {
            fail(state, out_of_memory());
            return;
        }
        state->input = larger;
        state->input_room = room;
    }
    ssize_t got = read(STDIN_FILENO, state->input + state->input_size, REQUEST_BYTES);
    if (got > 0)
        state->input_size += (size_t)got;
    else if (got == 0)
        state->input_ended = 1;
    else if (errno != EINTR && errno != EAGAIN)
        fail(state, report_error("os_error", "standard input: %s", strerror(errno)));
}

/* Return the bytes of whole lines for one request, and count them; 0 if no line is complete. */
static size_t whole_lines(struct publish_state *state, size_t *count) {
    const char *begin = state->input, *end = begin + state->input_size, *line = begin;
    for (*count = 0; line < end && *count < VALUES_MAX && line - begin < REQUEST_BYTES; ++*count) {
        const char *next = line_end(begin + state->searched > line ? begin + state->searched : line, end);
        state->line_is_too_long = next - line > LINE_BYTES_MAX + 1;
        if (state->line_is_too_long || (next[-1] != '\n' && !state->input_ended)) {
            state->searched = state->input_size;
            break;
        }
        line = next;
    }
    return (size_t)(line - begin);
}

/* Make requests of the lines that were read, while the window has room. */
static void make_requests(struct publish_state *state) {
    for (size_t row = 0; row < state->window && state->unanswered_bytes < UNANSWERED_BYTES; row++) {
        struct request *request = &state->requests[row];
        size_t count, size;
        if (request->number) continue;
        size = whole_lines(state, &count);
        if (size == 0) break;
        char *lines = malloc(size);
        if (!lines) {
            fail(state, out_of_memory());
            return;
        }
        memcpy(lines, state->input, size);
        *request = (struct request){.number = ++state->numbers, .lines = lines, .size = size, .count = count};
        state->input_size -= size;
        memmove(state->input, state->input + size, state->input_size);
        state->searched = 0;
        state->unanswered_bytes += size;
        state->lines += count;
    }
    if (state->line_is_too_long) {
        state->line_is_too_long = 0;
        fail(state, report_error("too_large", "line %" PRIu64 " has more than %d bytes: it and later ones are not"
                           " published", state->lines + 1, LINE_BYTES_MAX));
    }
}

static void send_request(const struct publish_state *state, const struct request *request) {
    const char *line = request->lines, *end = line + request->size;
    start_request(state->broker, request->number, "publish", 1);
    send_text(state->broker, state->topic, 1);
    while (line < end) {
        const char *next = line_end(line, end);
        send_frame(state->broker, line, (size_t)(next - line) - (next[-1] == '\n'), next < end);
        line = next;
    }
}

/* Send the requests that are due, and return the time of the next one. */
static int64_t send_due(struct publish_state *state) {
    int64_t now = now_ms(), next = NEVER;
    int in_flight = 0;
    for (size_t row = 0; row < state->window; row++) in_flight += state->requests[row].due == NEVER;
    for (size_t row = 0; row < state->window; row++) {
        struct request *request = &state->requests[row];
        if (!request->number) continue;
        if (request->due <= now) {
            if (!in_flight++ && !request->resent) state->heard_at = now;
            send_request(state, request);
            request->due = NEVER;
        }
        if (request->due < next) next = request->due;
    }
    int64_t timeout_at = state->heard_at + state->broker->timeout_ms;
    if (in_flight && timeout_at < next) next = timeout_at;
    return next;
}

static void remove_request(struct publish_state *state, struct request *request) {
    state->unanswered_bytes -= request->size;
    free(request->lines);
    memset(request, 0, sizeof *request);
}

static void take_outcome(struct publish_state *state, const struct answer *answer) {
    struct request *request = NULL;
    for (size_t row = 0; row < state->window && answer->number; row++)
        if (state->requests[row].number == answer->number) request = &state->requests[row];
    state->heard_at = now_ms();
    if (!request) return; /* a second answer, or the one to the greeting */
    if (answer->ok) {
        state->acknowledged += request->count;
        if (request->resent) state->acknowledged_resent += request->count;
        remove_request(state, request);
    } else if (is_retryable(answer->code)) {
        if (!state->reported++) report_error(answer->code, "%s (trying again)", answer->text);
        request->pause = next_pause(request->pause);
        request->due = now_ms() + request->pause;
    } else {
        remove_request(state, request);
        fail(state, report_error(answer->code, "%s", answer->text));
    }
}

/* All answers that arrived have been handled; send the requests in flight again. */
static void resend_all(struct publish_state *state) {
    for (size_t row = 0; row < state->window; row++) {
        struct request *request = &state->requests[row];
        if (request->number && request->due == NEVER) {
            request->due = 0;
            request->resent = 1;
        }
    }
}

static int has_room(const struct publish_state *state) {
    size_t row = 0;
    while (row < state->window && state->requests[row].number) row++;
    return row < state->window && state->unanswered_bytes < UNANSWERED_BYTES;
}

static size_t unanswered_lines(const struct publish_state *state) {
    size_t lines = 0;
    for (size_t row = 0; row < state->window; row++) lines += state->requests[row].count;
    return lines;
}

static int is_timed_out(const struct publish_state *state) {
    for (size_t row = 0; row < state->window; row++)
        if (state->requests[row].due == NEVER) return now_ms() >= state->heard_at + state->broker->timeout_ms;
    return 0;
}

static void print_outcome(struct publish_state *state) {
    fprintf(stderr, "quothpipe: %" PRIu64 " acknowledged", state->acknowledged);
    if (state->acknowledged_resent)
        fprintf(stderr, ", %" PRIu64 " of them sent again (they may be stored twice)", state->acknowledged_resent);
    if (unanswered_lines(state)) fprintf(stderr, "; of %zu more it is not known", unanswered_lines(state));
    fprintf(stderr, "\n");
}

int publish(struct broker *broker, const char *topic, size_t window) {
    struct publish_state *state = calloc(1, sizeof *state);
    struct answer answer;
    if (!state) return out_of_memory();
    state->broker = broker;
    state->topic = topic;
    state->window = window;
    while (signals_count < 2) { /* after the first signal it waits for answers */
        if (end_signal) fail(state, 128 + end_signal);
        make_requests(state);
        int64_t until = send_due(state);
        if (state->input_ended && !state->input_size && !state->unanswered_bytes) break;
        int stream = !state->input_ended && has_room(state) ? STDIN_FILENO : -1;
        int found = wait_for_events(broker, stream, ZMQ_POLLIN, until);
        while (take_answer(broker, &answer)) take_outcome(state, &answer);
        if (found & STREAM) read_input(state);
        int status = found & BROKEN ? connect_socket(broker) : is_timed_out(state) ? report_silence(broker) : DONE;
        if (found & BROKEN) resend_all(state);
        if (status != DONE) {
            fail(state, status);
            break;
        }
    }
    print_outcome(state);
    int status = state->status;
    for (size_t row = 0; row < window; row++) free(state->requests[row].lines);
    free(state->input);
    free(state);
    return status;
}
