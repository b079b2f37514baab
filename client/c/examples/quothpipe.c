/* quothpipe: from a pipe to a Quoth broker and back, with the simple protocol of client/PROTOCOL.md.

     quothpipe publish [-t SECONDS] [-w REQUESTS] URL TOPIC < lines    a line becomes a record
     quothpipe tail    [-t SECONDS] URL TOPIC [AFTER]                  a record becomes a line, for ever

   C99, on libzmq alone. Both commands have one DEALER. Each request has an id before the empty frame, and its answer
   repeats the id, so many requests can be in flight.

   The connection. DEALER reconnects by itself and keeps requests that it has not sent, but a broker that dies does not
   answer the requests that it had received. A monitor reports that the connection broke, and heartbeats break it if
   the other side is silent. Then the program handles the answers that have arrived, creates a new socket, and sends
   everything again that has no answer.

   Limits. The simple protocol has no sequence numbers, so the broker does not recognise a request that is sent again:
   if its records were stored and only the answer was lost, they are stored twice. And one of several requests in flight
   can be refused as `busy` while the next one is stored, so lines can change places after an error; with -w 1 they do
   not. No line is ever lost. An application that needs each record once and in order uses the fast protocol, which
   recognises retries. publish prints at its end how many lines were acknowledged, and how many of these it had sent
   more than once.

   tail goes on with the NEXT of each answer through any outage, and prints at its end the cursor behind the last line
   that it has written: give it as AFTER to go on there. AFTER 0, the default, is before everything.

   Exit status: 0 done (tail: the reader of the output is gone), 1 failed, 2 wrong usage, 3 not found, 4 no answer,
   128 + N ended by signal N. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "quothpipe.h"

#define TIMEOUT_S 10

/* A tail can repeat a read at no cost. What publish sends may wait for a broker that reads nothing for a while; its
   host then looks like one that is gone, and to reconnect early would store lines twice. */
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
                         : option == 'w' ? "-w takes 1 to 1000 requests" : "no such option, or no value behind it");
    }
    count -= optind;
    arguments += optind;
    if (count < 2 || count > 2 + tails) return usage("URL and TOPIC");
    if (count == 3 && !parse_number(arguments[2], strlen(arguments[2]), &after))
        return report_error("bad_pointer", "%s is no pointer (decimals, as tail prints its cursor)", arguments[2]);
    if ((status = install_signal_handlers()) != DONE) return status;
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
