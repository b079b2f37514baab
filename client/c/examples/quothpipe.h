/* The functions that the parts of quothpipe share. */

#ifndef QUOTHPIPE_H
#define QUOTHPIPE_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

/* ---- outcome.c: exit statuses and errors ---- */

enum { DONE = 0, FAILED = 1, USAGE = 2, NOT_FOUND = 3, TIMED_OUT = 4 };

/* Print an error in one line without control characters, and return the exit status for its code. */
int report_error(const char *code, const char *format, ...);
int out_of_memory(void);
int is_retryable(const char *code);

/* ---- signals.c: signals that end the program, and the time ---- */

#define NEVER INT64_MAX

extern volatile sig_atomic_t end_signal, signals_count;

int install_signal_handlers(void);
int wakeup(void); /* a descriptor that is readable after a signal */
void clear_wakeup(void);
int64_t now_ms(void);

/* ---- broker.c: the connection, requests and answers ---- */

struct broker {
    const char *url;
    int64_t timeout_ms;
    int unacknowledged_ms; /* time without an acknowledgement after which the connection is closed */
    void *context, *socket, *monitor;
    int connections; /* how many were made */
    zmq_msg_t frame; /* the last one that was received */
    int more;        /* 1 if this answer has further frames */
};

struct answer {
    uint64_t number; /* the id of its request */
    int ok;          /* 1: read its frames with next_frame; 0: see code and text */
    char code[64], text[768];
};

enum { ANSWER = 1, BROKEN = 2, STREAM = 4 };

/* Connect, and wait for the answer to a ping. Returns an exit status, as connect_socket does. */
int greet(struct broker *broker);
/* Create the socket, or replace it, which drops everything that it has not sent. */
int connect_socket(struct broker *broker);
void disconnect(struct broker *broker);
int report_silence(const struct broker *broker);

/* Wait until a time for an answer, a broken connection, a stream (-1: none) or a signal. */
int wait_for_events(const struct broker *broker, int stream, short events, int64_t until);

/* Send the first frames of a request: id, empty frame, operation. Then send the others, the last one without more. */
void start_request(const struct broker *broker, uint64_t number, const char *operation, int more);
void send_frame(const struct broker *broker, const void *bytes, size_t size, int more);
void send_text(const struct broker *broker, const char *text, int more);

/* Receive the first frames of an answer; 0 if there is none. */
int take_answer(struct broker *broker, struct answer *answer);
/* Receive the next frame of the answer; 0 if there is no more. */
int next_frame(struct broker *broker);
/* Parse the frame, or a text, as decimal digits; 0 if it has others. */
int frame_number(struct broker *broker, uint64_t *number);
int parse_number(const char *digits, size_t size, uint64_t *number);

#define RECONNECT_PAUSE_MS 200 /* before a request is sent on a new socket */
/* Return the pause before the next attempt, after this pause (0: none yet). */
int64_t next_pause(int64_t pause);

/* ---- publish.c, tail.c: the commands, which return an exit status ---- */

#define WINDOW 64       /* requests in flight; the broker queues 64 answers for one client */
#define WINDOW_MAX 1000 /* the broker accepts 1,024 for a topic */

int publish(struct broker *broker, const char *topic, size_t window);
int tail(struct broker *broker, const char *topic, uint64_t after);

#endif
