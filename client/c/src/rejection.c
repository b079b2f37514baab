/* Implements rejection.h. */

#include "rejection.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum { GREETING_MS = 300, STATUS_REFUSED = 400, ID_BYTES_MAX = 255, MECHANISM_AT = 12, GREETING_BYTES = 32 };

const int QUOTH_REJECTIONS =
    ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

quoth_rejection quoth_judge(unsigned event, unsigned value, const quoth_key *key) {
    int has_key = *key->secret_key != 0;
    switch (event) {
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: return value == STATUS_REFUSED ? QUOTH_KEY_REFUSED : QUOTH_KEY_UNCHECKED;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
            return has_key ? QUOTH_KEY_UNEXPECTED : QUOTH_KEY_MISSING;
        return value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC ? QUOTH_SERVER_KEY : QUOTH_NOT_REFUSED;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL: /* other errors are of a broker that is stopped, or of its network */
        return has_key && (value == EPIPE || value == ECONNRESET) ? QUOTH_SERVER_KEY : QUOTH_NOT_REFUSED;
    default: return QUOTH_NOT_REFUSED;
    }
}

/* Exchanges greetings over a socket of raw bytes, as far as the mechanism. Returns the bytes of the peer's greeting. */
static size_t exchange_greetings(void *socket, char greeting[GREETING_BYTES]) {
    static const char SIGNATURE_AND_VERSION[] = "\xff\0\0\0\0\0\0\0\1\x7f\3";
    char id[ID_BYTES_MAX];
    size_t done = 0;
    int is_connected = 0;
    while (done < GREETING_BYTES) {
        int id_size = zmq_recv(socket, id, sizeof id, 0);
        int size = id_size < 0 ? -1 : zmq_recv(socket, greeting + done, GREETING_BYTES - done, 0);
        if (size < 0 || (size == 0 && is_connected)) break; /* bytes of none: it is connected, or was closed */
        done += (size_t)size < GREETING_BYTES - done ? (size_t)size : GREETING_BYTES - done;
        if (is_connected) continue;
        is_connected = 1;
        zmq_send(socket, id, (size_t)id_size, ZMQ_SNDMORE);
        zmq_send(socket, SIGNATURE_AND_VERSION, sizeof SIGNATURE_AND_VERSION - 1, 0);
    }
    return done;
}

quoth_rejection quoth_ask_mechanism(void *context, const char *url) {
    void *socket = strncmp(url, "tcp://", 6) == 0 ? zmq_socket(context, ZMQ_STREAM) : NULL;
    int zero = 0, wait_ms = GREETING_MS;
    char greeting[GREETING_BYTES];
    size_t size = 0;
    if (!socket) return QUOTH_SERVER_KEY;
    zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
    zmq_setsockopt(socket, ZMQ_SNDTIMEO, &zero, sizeof zero);
    int has_ipv6 = strchr(url, '[') != NULL;
    zmq_setsockopt(socket, ZMQ_IPV6, &has_ipv6, sizeof has_ipv6);
    if (zmq_connect(socket, url) == 0) size = exchange_greetings(socket, greeting);
    zmq_close(socket);
    if (size < GREETING_BYTES || greeting[0] != '\xff') return QUOTH_NOT_REFUSED;
    return memcmp(greeting + MECHANISM_AT, "CURVE", sizeof "CURVE") == 0 ? QUOTH_SERVER_KEY : QUOTH_KEY_UNEXPECTED;
}

int quoth_fail_refused(quoth_rejection rejection, const char *url, const quoth_key *key, const char *path,
                       quoth_error *error) {
    const char *named = *key->name ? key->name : key->public_key;
    switch (rejection) {
    case QUOTH_KEY_REFUSED:
        quoth_fail(error, QUOTH_AUTH_FAILED, NULL, "the broker at %s does not know the key of %s, or has revoked it",
                   url, named);
        if (error) snprintf(error->hint, sizeof error->hint, "its clients file needs the key %s", key->public_key);
        return QUOTH_AUTH_FAILED;
    case QUOTH_KEY_UNCHECKED:
        return quoth_fail(error, QUOTH_AUTH_FAILED, "its log says why",
                          "the broker at %s failed to check the key of %s", url, named);
    case QUOTH_KEY_MISSING:
        return quoth_fail(error, QUOTH_AUTH_FAILED, "give a key file: the option key_file, -k or QUOTH_KEY_FILE",
                          "the broker at %s wants a key, and none was given", url);
    case QUOTH_KEY_UNEXPECTED:
        return quoth_fail(error, QUOTH_AUTH_FAILED, "without a key nothing is encrypted: is it the right broker?",
                          "the broker at %s takes no keys, and one was given", url);
    case QUOTH_NOT_REFUSED:
    case QUOTH_SERVER_KEY: break;
    }
    return quoth_fail(error, QUOTH_AUTH_FAILED, "compare server-key with the broker's public key; then see its log",
                      "the broker at %s has another key than the server-key in %s, or it cannot check keys now", url,
                      path ? path : "the options");
}
