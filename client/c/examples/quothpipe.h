/* What the parts of quothpipe share. */

#ifndef QUOTHPIPE_H
#define QUOTHPIPE_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

/* ---- outcome.c: how it ends, and what is said of it ---- */

enum { DONE = 0, FAILED = 1, USAGE = 2, NOT_FOUND = 3, TIMED_OUT = 4 };

/* Say what went wrong, in one line that does no harm to a terminal; returns the exit status for the code. */
int complain(const char *code, const char *format, ...);
int out_of_memory(void);
int may_be_tried_again(const char *code);

/* ---- signals.c: being asked to end, and the time ---- */

#define NEVER INT64_MAX

extern volatile sig_atomic_t ended_by, times_asked;

int listen_to_signals(void);
int bell(void); /* a descriptor that can be read once there was a signal */
void quiet_bell(void);
int64_t now_ms(void);

/* ---- broker.c: the connection, requests and answers ---- */

struct broker {
    const char *url;
    int64_t timeout_ms;
    int unacknowledged_ms; /* how long a host may acknowledge nothing before the connection is given up */
    void *context, *socket, *monitor;
    int connections; /* how many there were */
    zmq_msg_t frame; /* the one that was taken last */
    int more;        /* are there further frames of this answer? */
};

struct answer {
    uint64_t number; /* the id of its request */
    int ok;          /* then its frames are to be taken with next_frame, else: */
    char code[64], text[768];
};

enum { ANSWER = 1, BROKEN = 2, STREAM = 4 };

/* Connect, and wait until the broker has said that it is there. Returns an exit status, as connect_socket does. */
int greet(struct broker *broker);
/* Make the socket, or make it anew: what it was to send is forgotten then. */
int connect_socket(struct broker *broker);
void disconnect(struct broker *broker);
int nobody_there(const struct broker *broker);

/* Wait for an answer, for the connection to break, for a stream (-1: none), for a signal, until a time. */
int wait_for(const struct broker *broker, int stream, short events, int64_t until);

/* Begin a request: id, empty frame, what is asked. Then put its other frames, the last one without more. */
void begin_request(const struct broker *broker, uint64_t number, const char *operation, int more);
void put(const struct broker *broker, const void *bytes, size_t size, int more);
void put_text(const struct broker *broker, const char *text, int more);

/* Take the beginning of an answer that is there; 0 if there is none. */
int take_answer(struct broker *broker, struct answer *answer);
/* Take the next frame of the answer; 0 if there is no more. */
int next_frame(struct broker *broker);
/* Read the frame, or a text, as decimals; 0 if it is none. */
int frame_number(struct broker *broker, uint64_t *number);
int parse_number(const char *digits, size_t size, uint64_t *number);

#define RECONNECT_PAUSE_MS 200 /* before a request goes to a socket that was made anew */
/* How long to pause before the next attempt, after this pause (0: none yet). */
int64_t longer(int64_t pause);

/* ---- publish.c, tail.c: the commands; they return an exit status ---- */

#define WINDOW 64       /* requests on their way; the broker queues 64 answers for one client */
#define WINDOW_MAX 1000 /* of one topic it takes 1,024 */

int publish(struct broker *broker, const char *topic, size_t window);
int tail(struct broker *broker, const char *topic, uint64_t after);

#endif
