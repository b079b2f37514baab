/* Ends a TCP connection whose other host acknowledges nothing any more.
 *
 * The limit of the operating system does not distinguish a network that drops packets from a broker that reads
 * nothing for a while, whose host acknowledges that its window is closed. In the first case the connection has to
 * end soon, because TCP doubles its pauses between attempts; in the second it has to be kept. The kernel's counters
 * of a connection distinguish them. On systems other than Linux nothing is ended here. */

#ifndef QUOTH_TCP_WATCH_H
#define QUOTH_TCP_WATCH_H

#include <stdint.h>

/* descriptor: the socket, from a monitor's event. port: that of its peer. Returns 1 if the connection was ended;
 * libzmq makes another one. */
int quoth_end_if_dead(int descriptor, unsigned port, int64_t unacknowledged_ms);

#endif
