/* quothpipe: from a pipe to a Quoth broker and back, by the simple protocol of client/PROTOCOL.md.

     quothpipe publish [-t SECONDS] [-w REQUESTS] URL TOPIC < lines    a line becomes a record
     quothpipe tail    [-t SECONDS] URL TOPIC [AFTER]                  a record becomes a line, for ever

   C99, on libzmq alone. Both commands hold one DEALER. An id stands before the empty frame of each request and comes
   back with its answer, so many can be on their way.

   The connection. DEALER reconnects by itself and keeps what it has not sent, but what the broker had taken when it
   died is answered by nobody. A monitor tells when the connection breaks, heartbeats see to it that it breaks if the
   other side is silent. Then the answers that have come are taken, the socket is made anew, and everything that is
   not answered is sent again.

   What this cannot promise. The simple protocol knows no sequence numbers, so the broker cannot know a request that
   is sent again: if its records were stored and only the answer was lost, they are stored twice. And of requests that
   are on their way together one can be refused as `busy` while the next is stored, so lines can change places when
   something goes wrong; with -w 1 they do not. Neither ever loses a line. Who needs each record once and in order uses
   the fast protocol, which recognises retries. publish tells at its end how many lines were acknowledged, and how many
   of these it had sent more than once.

   tail goes on with the NEXT of each answer, whatever happens to the broker, and tells at its end the cursor behind
   the last line that it has written: give it as AFTER to go on there. AFTER 0, the default, is before everything.

   Exit status: 0 done (tail: nobody reads the output any more), 1 it failed, 2 typed wrongly, 3 there is no such
   thing, 4 nobody answered, 128 + N ended by signal N. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "quothpipe.h"

#define TIMEOUT_S 10

/* To ask once more costs a tail nothing. What publish sends may have to wait for a broker that reads nothing for a
   while, and its host then looks like one that is gone: to give that up early would store lines twice. */
#define UNACKNOWLEDGED_TAIL_MS 2500
#define UNACKNOWLEDGED_PUBLISH_MS 15000

static int usage(const char *what) {
    fprintf(stderr, "quothpipe: usage: %s\n"
                    "usage: quothpipe publish [-t SECONDS] [-w REQUESTS] URL TOPIC < lines\n"
                    "       quothpipe tail [-t SECONDS] URL TOPIC [AFTER]\n", what);
    return USAGE;
}

int main(int count, char **arguments) {
    struct broker broker = {.timeout_ms = TIMEOUT_S * 1000};
    const char *command = count > 1 ? arguments[1] : "";
    int publishes = strcmp(command, "publish") == 0, tails = strcmp(command, "tail") == 0, option, status;
    uint64_t after = 0, window = WINDOW, seconds;
    if (!publishes && !tails) return usage("publish or tail?");
    optind = 2;
    opterr = 0;
    while ((option = getopt(count, arguments, publishes ? "+t:w:" : "+t:")) != -1) {
        if (option == 't' && parse_number(optarg, strlen(optarg), &seconds) && seconds >= 1 && seconds <= 86400)
            broker.timeout_ms = (int64_t)seconds * 1000;
        else if (option == 'w' && parse_number(optarg, strlen(optarg), &window) && window >= 1
                 && window <= WINDOW_MAX)
            continue;
        else
            return usage(option == 't' ? "-t takes 1 to 86400 seconds"
                         : option == 'w' ? "-w takes 1 to 1000 requests" : "no such option, or nothing behind it");
    }
    count -= optind;
    arguments += optind;
    if (count < 2 || count > 2 + tails) return usage("URL and TOPIC");
    if (count == 3 && !parse_number(arguments[2], strlen(arguments[2]), &after))
        return complain("bad_pointer", "%s is no pointer (decimals, as tail tells its cursor)", arguments[2]);
    if ((status = listen_to_signals()) != DONE) return status;
    broker.url = arguments[0];
    broker.unacknowledged_ms = publishes ? UNACKNOWLEDGED_PUBLISH_MS : UNACKNOWLEDGED_TAIL_MS;
    broker.context = zmq_ctx_new();
    zmq_msg_init(&broker.frame);
    if (!broker.context) return out_of_memory();
    status = greet(&broker);
    if (status == DONE)
        status = publishes ? publish(&broker, arguments[1], window) : tail(&broker, arguments[1], after);
    disconnect(&broker);
    return status;
}
