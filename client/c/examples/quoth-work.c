/* quoth-work: a worker of a consumer group, which runs a command for each record.

     quoth-work [-e] [-k KEY_FILE] [-l SECONDS] [-t SECONDS] URL TOPIC GROUP COMMAND [ARGUMENT ...]

   The command has the value as its input, and the record in QUOTH_TOPIC, QUOTH_GROUP, QUOTH_POINTER and QUOTH_ATTEMPTS.
   Its exit status 0 acknowledges the record, 65 makes a dead letter of it, any other one gives it back. If the command
   cannot be started, the record is released, and the worker ends. Its lease (-l, default 30 s) is extended while it
   runs. Start as many workers as you like: each record goes to one of them. A group that does not exist is created at
   the beginning of the topic. The worker goes on through any outage of the broker; -t says how long it waits for the
   broker at first. A signal ends it behind the command that runs. -e: it ends when there is nothing to hand out.
   -k: the key for a broker with keys; else that of the variable QUOTH_KEY_FILE, which the command has, too.

   Exit status: 0 nothing is left, 1 failed, 2 wrong usage, 3 the topic or the group is gone, 4 no answer, 128 + N ended
   by signal N. */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

enum { TIMEOUT_S = 10, LEASE_S = 30, SECONDS_MAX = 43200, REJECTED = 65, BACKOFF = -1 };

extern char **environ;

const char *program_name = "quoth-work";

struct worker {
    quoth_group *member;
    char **command;
    const char *key; /* the path of a key file, NULL for none */
    int64_t lease_ms, timeout_ms;
    int ends; /* when there is nothing to hand out */
};

static void report_gap(void *context, const quoth_gap *gap) {
    (void)context;
    fprintf(stderr, "%s: %s: %" PRId64 " records between %" PRIu64 " and %" PRIu64 "\n", program_name,
            gap->reason == QUOTH_GAP_DAMAGED ? "damaged" : "gone", gap->records, gap->after, gap->next);
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the command ---- */

/* A file with the value, from which the command reads. */
static FILE *input_of(quoth_bytes value) {
    FILE *input = tmpfile();
    if (input && fwrite(value.data, 1, value.size, input) == value.size && fflush(input) == 0) {
        rewind(input);
        return input;
    }
    if (input) fclose(input);
    return NULL;
}

static void set_number(const char *name, uint64_t number) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, number);
    setenv(name, digits, 1);
}

/* Starts the command for a record; returns 0, or the number of an error. */
static int start(char **command, const quoth_leased *leased, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t ignored;
    FILE *input = input_of(leased->message.value);
    if (!input) return errno;
    set_number("QUOTH_POINTER", leased->message.pointer);
    set_number("QUOTH_ATTEMPTS", leased->attempts);
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, fileno(input), STDIN_FILENO);
    posix_spawnattr_setsigdefault(&attributes, &ignored);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP); /* Ctrl-C lets it finish */
    int problem = posix_spawnp(pid, command[0], &actions, &attributes, command, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    fclose(input);
    return problem;
}

/* Waits until the command has ended, and keeps the lease of its record meanwhile. Returns its status. */
static int wait_for(struct worker *worker, pid_t pid, const quoth_lease *lease) {
    int64_t period_ms = worker->lease_ms / 3, due = now_ms() + period_ms;
    struct pollfd signals = {wakeup(), POLLIN, 0};
    int status;
    quoth_error error;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        int64_t left = due - now_ms();
        if (left > 0) {
            if (poll(&signals, 1, (int)left) > 0) clear_wakeup();
            continue;
        }
        int code = quoth_group_extend(worker->member, lease, worker->lease_ms, &error);
        if (!code) code = quoth_group_flush(worker->member, period_ms, &error);
        if (code) report_error(&error);
        due = now_ms() + period_ms;
    }
    return status;
}

/* Settles a record by the status of its command. */
static int settle(struct worker *worker, const quoth_lease *lease, int status, quoth_error *error) {
    char reason[64];
    if (WIFEXITED(status))
        snprintf(reason, sizeof reason, "exit status %d", WEXITSTATUS(status));
    else
        snprintf(reason, sizeof reason, "signal %d", WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return quoth_group_ack(worker->member, lease, error);
    if (WIFEXITED(status) && WEXITSTATUS(status) == REJECTED)
        return quoth_group_term(worker->member, lease, reason, error);
    return quoth_group_nack(worker->member, lease, BACKOFF, reason, error);
}

/* Runs the command for a record and settles it. Returns an exit status: DONE to go on. */
static int handle(struct worker *worker, const quoth_leased *leased) {
    quoth_error error;
    pid_t pid;
    int problem = start(worker->command, leased, &pid);
    if (problem) {
        quoth_group_release(worker->member, &leased->lease, NULL);
        return report(QUOTH_SYSTEM, "%s: %s", worker->command[0], strerror(problem));
    }
    int code = settle(worker, &leased->lease, wait_for(worker, pid, &leased->lease), &error);
    if (!code) code = quoth_group_flush(worker->member, worker->timeout_ms, &error);
    int status = code ? report_error(&error) : DONE;
    return code == QUOTH_AUTH_FAILED || code == QUOTH_DENIED ? status : DONE; /* else the record is handed out again */
}

/* ---- the group ---- */

/* Waits until a record or a signal may be there. */
static void wait_for_something(quoth_group *member) {
    int descriptors[2];
    int64_t wait_ms = quoth_group_descriptors(member, descriptors);
    struct pollfd items[] = {{descriptors[0], POLLIN, 0}, {descriptors[1], POLLIN, 0}, {wakeup(), POLLIN, 0}};
    if (poll(items, 3, wait_ms < 0 || wait_ms > 60000 ? 60000 : (int)wait_ms) > 0 && items[2].revents) clear_wakeup();
}

static int work(struct worker *worker) {
    quoth_leased leased;
    quoth_error error;
    while (!end_signal) {
        int code = quoth_group_fetch(worker->member, worker->ends ? 0 : QUOTH_NOWAIT, &error);
        if (code == QUOTH_END && worker->ends) return DONE;
        if (code > 0 && !quoth_is_retryable(code)) return report_error(&error);
        if (code) wait_for_something(worker->member);
        while (!code && !end_signal && quoth_group_next(worker->member, &leased) == QUOTH_OK) {
            int status = handle(worker, &leased);
            if (status != DONE) return status;
        }
    }
    return 128 + end_signal;
}

static int run(struct worker *worker, const char *url, const char *topic, const char *group) {
    quoth_options options = QUOTH_OPTIONS;
    quoth_group_options how = QUOTH_GROUP_OPTIONS;
    quoth_client *client;
    quoth_error error;
    options.timeout_ms = worker->timeout_ms;
    options.name = program_name;
    options.key_file = key_file(worker->key);
    how.fetch_records = 1;
    how.lease_ms = worker->lease_ms;
    how.on_gap = report_gap;
    if (quoth_connect(url, &options, &client, &error)) return report_error(&error);
    int code = quoth_group_open(client, topic, group, &how, &worker->member, &error);
    quoth_close(client);
    if (code) return report_error(&error);
    setenv("QUOTH_TOPIC", topic, 1);
    setenv("QUOTH_GROUP", group, 1);
    int status = work(worker);
    int has_failed = status != DONE && !end_signal; /* then it was reported, and this fails for the same reason */
    if (quoth_group_leave(worker->member, worker->timeout_ms, &error) && !has_failed) report_error(&error);
    quoth_group_close(worker->member);
    return status;
}

static int usage(const char *what) {
    fprintf(stderr, "quoth-work: usage: %s\n"
                    "usage: quoth-work [-e] [-k KEY_FILE] [-l SECONDS] [-t SECONDS] URL TOPIC GROUP COMMAND "
                    "[ARGUMENT ...]\n", what);
    return USAGE;
}

int main(int count, char **arguments) {
    struct worker worker = {NULL, NULL, NULL, LEASE_S * 1000, TIMEOUT_S * 1000, 0};
    uint64_t seconds;
    int option, status;
    opterr = 0;
    while ((option = getopt(count, arguments, "+ek:l:t:")) != -1) {
        if (option == '?') return usage("no such option, or no value behind it");
        if (option == 'k') worker.key = optarg;
        int takes_seconds = option == 'l' || option == 't';
        if (takes_seconds && (!parse_number(optarg, &seconds) || seconds < 1 || seconds > SECONDS_MAX))
            return usage("-l and -t take 1 to 43200 seconds");
        if (option == 'e') worker.ends = 1;
        if (option == 'l') worker.lease_ms = (int64_t)seconds * 1000;
        if (option == 't') worker.timeout_ms = (int64_t)seconds * 1000;
    }
    arguments += optind;
    if (count - optind < 4) return usage("URL, TOPIC, GROUP and COMMAND");
    worker.command = arguments + 3;
    if ((status = install_signal_handlers()) != DONE || (status = notice_children()) != DONE) return status;
    return run(&worker, arguments[0], arguments[1], arguments[2]);
}
