/* Signals only take note; whoever waits is woken by a pipe. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "quothpipe.h"

volatile sig_atomic_t ended_by, times_asked;
static int ends[2]; /* a signal between a look at the flag and the wait would be missed: it writes here, too */

static void hear(int number) {
    int before = errno;
    ended_by = number;
    times_asked++;
    if (write(ends[1], "", 1) < 0) { /* it is full, so it rings anyway */ }
    errno = before;
}

int listen_to_signals(void) {
    const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction chosen, found;
    if (pipe(ends) < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0)
        return complain("os_error", "%s", strerror(errno));
    memset(&chosen, 0, sizeof chosen);
    sigemptyset(&chosen.sa_mask);
    chosen.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &chosen, NULL);
    chosen.sa_handler = hear;
    for (size_t row = 0; row < sizeof numbers / sizeof numbers[0]; row++)
        if (sigaction(numbers[row], NULL, &found) == 0 && found.sa_handler != SIG_IGN) /* nohup has */
            sigaction(numbers[row], &chosen, NULL);
    return DONE;
}

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int bell(void) { return ends[0]; }

void quiet_bell(void) {
    char rung;
    while (read(ends[0], &rung, 1) > 0) { /* one for each signal */ }
}
