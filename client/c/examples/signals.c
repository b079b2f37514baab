/* A signal sets a flag and writes to a pipe, which ends a poll. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

volatile sig_atomic_t end_signal, signals_count;
static int wakeup_pipe[2]; /* for a signal between a check of the flag and the poll */

static void handle_signal(int number) {
    int before = errno;
    if (number != SIGCHLD) {
        end_signal = number;
        signals_count++;
    }
    if (write(wakeup_pipe[1], "", 1) < 0) { /* it is full, and readable */ }
    errno = before;
}

int install_signal_handlers(void) {
    const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction action, found;
    if (pipe(wakeup_pipe) < 0 || fcntl(wakeup_pipe[0], F_SETFL, O_NONBLOCK) < 0
        || fcntl(wakeup_pipe[1], F_SETFL, O_NONBLOCK) < 0)
        return report(QUOTH_SYSTEM, "%s", strerror(errno));
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    action.sa_handler = handle_signal;
    for (size_t row = 0; row < sizeof numbers / sizeof numbers[0]; row++)
        if (sigaction(numbers[row], NULL, &found) == 0 && found.sa_handler != SIG_IGN) /* nohup ignores some */
            sigaction(numbers[row], &action, NULL);
    return DONE;
}

int notice_children(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = handle_signal;
    return sigaction(SIGCHLD, &action, NULL) < 0 ? report(QUOTH_SYSTEM, "%s", strerror(errno)) : DONE;
}

int wakeup(void) { return wakeup_pipe[0]; }

void clear_wakeup(void) {
    char byte;
    while (read(wakeup_pipe[0], &byte, 1) > 0) { /* one for each signal */ }
}
