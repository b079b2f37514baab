/* Lines become requests, many of which are on their way; each is kept until it is answered. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quothpipe.h"

#define VALUES_MAX 1000     /* lines in one request; 10,000 may be */
#define REQUEST_BYTES 65536 /* no further line goes into a request of this size */
#define UNANSWERED_BYTES (32 * 1024 * 1024)
#define LINE_BYTES_MAX (16 * 1024 * 1024 - 1024)

/* Lines on their way: they are sent when `due`, and at NEVER again while an answer may come. */
struct request {
    uint64_t number; /* its id; 0: nothing is here */
    char *lines;     /* with the newline that ends each, but perhaps not the last one */
    size_t size, count;
    int64_t due, pause;
    int sent_again;
};

struct publishing {
    struct broker *broker;
    const char *topic;
    struct request requests[WINDOW_MAX];
    size_t window, unanswered_bytes;
    uint64_t numbers, acknowledged, acknowledged_again, lines;
    int64_t heard; /* when the last answer came, or the first request of all that are on their way was sent */
    char *input;   /* what was read and is in no request yet */
    size_t input_size, input_room, searched;
    int input_ended, line_is_too_long, status, told;
};

/* The end of the line that begins here, its newline included. */
static const char *line_end(const char *line, const char *end) {
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    return newline ? newline + 1 : end;
}

static void fail(struct publishing *all, int status) {
    if (all->status == DONE) all->status = status;
    all->input_ended = 1;
    all->input_size = 0;
}

static void read_input(struct publishing *all) {
    if (all->input_room - all->input_size < REQUEST_BYTES) {
        size_t room = all->input_room * 2 + REQUEST_BYTES;
        char *larger = realloc(all->input, room);
        if (!larger) {
            fail(all, out_of_memory());
            return;
        }
        all->input = larger;
        all->input_room = room;
    }
    ssize_t got = read(STDIN_FILENO, all->input + all->input_size, REQUEST_BYTES);
    if (got > 0)
        all->input_size += (size_t)got;
    else if (got == 0)
        all->input_ended = 1;
    else if (errno != EINTR && errno != EAGAIN)
        fail(all, complain("os_error", "standard input: %s", strerror(errno)));
}

/* How many bytes of the input are whole lines that make a request, and how many lines; 0 if more has to come. */
static size_t whole_lines(struct publishing *all, size_t *count) {
    const char *begin = all->input, *end = begin + all->input_size, *line = begin;
    for (*count = 0; line < end && *count < VALUES_MAX && line - begin < REQUEST_BYTES; ++*count) {
        const char *next = line_end(begin + all->searched > line ? begin + all->searched : line, end);
        all->line_is_too_long = next - line > LINE_BYTES_MAX + 1;
        if (all->line_is_too_long || (next[-1] != '\n' && !all->input_ended)) {
            all->searched = all->input_size;
            break;
        }
        line = next;
    }
    return (size_t)(line - begin);
}

/* Make requests of the lines that are there, as long as the window has room. */
static void cut_input(struct publishing *all) {
    for (size_t row = 0; row < all->window && all->unanswered_bytes < UNANSWERED_BYTES; row++) {
        struct request *request = &all->requests[row];
        size_t count, size;
        if (request->number) continue;
        size = whole_lines(all, &count);
        if (size == 0) break;
        char *lines = malloc(size);
        if (!lines) {
            fail(all, out_of_memory());
            return;
        }
        memcpy(lines, all->input, size);
        *request = (struct request){.number = ++all->numbers, .lines = lines, .size = size, .count = count};
        all->input_size -= size;
        memmove(all->input, all->input + size, all->input_size);
        all->searched = 0;
        all->unanswered_bytes += size;
        all->lines += count;
    }
    if (all->line_is_too_long) {
        all->line_is_too_long = 0;
        fail(all, complain("too_large", "line %" PRIu64 " has more than %d bytes: it and those behind it are not"
                           " published", all->lines + 1, LINE_BYTES_MAX));
    }
}

static void send_request(const struct publishing *all, const struct request *request) {
    const char *line = request->lines, *end = line + request->size;
    begin_request(all->broker, request->number, "publish", 1);
    put_text(all->broker, all->topic, 1);
    while (line < end) {
        const char *next = line_end(line, end);
        put(all->broker, line, (size_t)(next - line) - (next[-1] == '\n'), next < end);
        line = next;
    }
}

/* Send what is due; returns when the next is. */
static int64_t send_due(struct publishing *all) {
    int64_t now = now_ms(), next = NEVER;
    int on_their_way = 0;
    for (size_t row = 0; row < all->window; row++) on_their_way += all->requests[row].due == NEVER;
    for (size_t row = 0; row < all->window; row++) {
        struct request *request = &all->requests[row];
        if (!request->number) continue;
        if (request->due <= now) {
            if (!on_their_way++ && !request->sent_again) all->heard = now;
            send_request(all, request);
            request->due = NEVER;
        }
        if (request->due < next) next = request->due;
    }
    if (on_their_way && all->heard + all->broker->timeout_ms < next) next = all->heard + all->broker->timeout_ms;
    return next;
}

static void forget(struct publishing *all, struct request *request) {
    all->unanswered_bytes -= request->size;
    free(request->lines);
    memset(request, 0, sizeof *request);
}

static void take_outcome(struct publishing *all, const struct answer *answer) {
    struct request *request = NULL;
    for (size_t row = 0; row < all->window && answer->number; row++)
        if (all->requests[row].number == answer->number) request = &all->requests[row];
    all->heard = now_ms();
    if (!request) return; /* answered before it was sent again, or the greeting was */
    if (answer->ok) {
        all->acknowledged += request->count;
        if (request->sent_again) all->acknowledged_again += request->count;
        forget(all, request);
    } else if (may_be_tried_again(answer->code)) {
        if (!all->told++) complain(answer->code, "%s (trying again)", answer->text);
        request->pause = longer(request->pause);
        request->due = now_ms() + request->pause;
    } else {
        forget(all, request);
        fail(all, complain(answer->code, "%s", answer->text));
    }
}

/* All answers that came have been taken; whatever else was on its way is sent again. */
static void send_all_again(struct publishing *all) {
    for (size_t row = 0; row < all->window; row++) {
        struct request *request = &all->requests[row];
        if (request->number && request->due == NEVER) {
            request->due = 0;
            request->sent_again = 1;
        }
    }
}

static int has_room(const struct publishing *all) {
    size_t row = 0;
    while (row < all->window && all->requests[row].number) row++;
    return row < all->window && all->unanswered_bytes < UNANSWERED_BYTES;
}

static size_t unanswered_lines(const struct publishing *all) {
    size_t lines = 0;
    for (size_t row = 0; row < all->window; row++) lines += all->requests[row].count;
    return lines;
}

static int is_silent(const struct publishing *all) {
    for (size_t row = 0; row < all->window; row++)
        if (all->requests[row].due == NEVER) return now_ms() >= all->heard + all->broker->timeout_ms;
    return 0;
}

static void tell_outcome(struct publishing *all) {
    fprintf(stderr, "quothpipe: %" PRIu64 " acknowledged", all->acknowledged);
    if (all->acknowledged_again)
        fprintf(stderr, ", %" PRIu64 " of them sent again (they may be stored twice)", all->acknowledged_again);
    if (unanswered_lines(all)) fprintf(stderr, "; of %zu more it is not known", unanswered_lines(all));
    fprintf(stderr, "\n");
}

int publish(struct broker *broker, const char *topic, size_t window) {
    struct publishing *all = calloc(1, sizeof *all);
    struct answer answer;
    if (!all) return out_of_memory();
    all->broker = broker;
    all->topic = topic;
    all->window = window;
    while (times_asked < 2) { /* asked to end once, it waits for the answers that are due */
        if (ended_by) fail(all, 128 + ended_by);
        cut_input(all);
        int64_t until = send_due(all);
        if (all->input_ended && !all->input_size && !all->unanswered_bytes) break;
        int stream = !all->input_ended && has_room(all) ? STDIN_FILENO : -1;
        int found = wait_for(broker, stream, ZMQ_POLLIN, until);
        while (take_answer(broker, &answer)) take_outcome(all, &answer);
        if (found & STREAM) read_input(all);
        int status = found & BROKEN ? connect_socket(broker) : is_silent(all) ? nobody_there(broker) : DONE;
        if (found & BROKEN) send_all_again(all);
        if (status != DONE) {
            fail(all, status);
            break;
        }
    }
    tell_outcome(all);
    int status = all->status;
    for (size_t row = 0; row < window; row++) free(all->requests[row].lines);
    free(all->input);
    free(all);
    return status;
}
