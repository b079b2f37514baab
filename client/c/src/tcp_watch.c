/* Implements tcp_watch.h. */

#include "tcp_watch.h"

#if defined(__linux__)

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum { ATTEMPTS_LEAST = 2 }; /* a single one may be in flight now, or be lost as packets are */

/* 1 if the descriptor is a connection to this port: libzmq may have closed it, and its number be another file's. */
static int is_connection(int descriptor, unsigned port) {
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (getpeername(descriptor, (struct sockaddr *)&peer, &size) < 0) return 0;
    memcpy(&four, &peer, sizeof four);
    memcpy(&six, &peer, sizeof six);
    return (peer.ss_family == AF_INET && ntohs(four.sin_port) == port)
           || (peer.ss_family == AF_INET6 && ntohs(six.sin6_port) == port);
}

/* Milliseconds for which bytes have not been acknowledged, 0 if that may change at once. Any packet ends the
 * silence, also one that the other host sends again. Then the pause shows it, which has doubled with each attempt:
 * the pauses so far are together almost as long as the present one. */
static int64_t unacknowledged(const struct tcp_info *info) {
    if (info->tcpi_retransmits < ATTEMPTS_LEAST && info->tcpi_probes < ATTEMPTS_LEAST) return 0;
    int64_t silent = info->tcpi_last_ack_recv, pause = info->tcpi_rto / 1000;
    unsigned attempts = info->tcpi_retransmits < 30 ? info->tcpi_retransmits : 30;
    pause -= pause >> attempts;
    return silent > pause ? silent : pause;
}

int quoth_end_if_dead(int descriptor, unsigned port, int64_t unacknowledged_ms) {
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    if (!is_connection(descriptor, port)
        || getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) < 0
        || unacknowledged(&info) <= unacknowledged_ms)
        return 0;
    struct linger abort_it = {1, 0}; /* what it has queued is not sent: the next connection sends it again */
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &abort_it, sizeof abort_it);
    return shutdown(descriptor, SHUT_RDWR) == 0;
}

#else

int quoth_end_if_dead(int descriptor, unsigned port, int64_t unacknowledged_ms) {
    (void)descriptor, (void)port, (void)unacknowledged_ms;
    return 0;
}

#endif
