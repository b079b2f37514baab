/* Implements errors.h, and the errors of quoth.h. */

#include "errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RETRYABLE 1u /* the same request may succeed later */
#define UNKNOWN 2u   /* the request may have had its effect */
#define PASSING 4u   /* the broker did not look at the request */

static const struct {
    const char *name;
    unsigned kind;
    const char *hint;
} CODES[] = {
    [QUOTH_OK] = {"ok", 0, ""},
    [QUOTH_BAD_REQUEST] = {"bad_request", 0, "client/PROTOCOL.md has the shape of every request"},
    [QUOTH_UNSUPPORTED_VERSION] = {"unsupported_version", 0, "is this a Quoth broker of version 1?"},
    [QUOTH_UNKNOWN_OPERATION] = {"unknown_operation", 0, "the broker is older than this library"},
    [QUOTH_BAD_TOPIC] = {"bad_topic", 0,
                         "1 to 200 bytes of UTF-8, no control characters, no '/', not '.' or '..'"},
    [QUOTH_BAD_POINTER] = {"bad_pointer", 0, "a pointer is an integer from 0 to 2^56 - 1"},
    [QUOTH_BAD_BATCH] = {"bad_batch", 0, "nothing of it was stored"},
    [QUOTH_BAD_SETTING] = {"bad_setting", 0, "correct what the text names; nothing was done"},
    [QUOTH_TOO_LARGE] = {"too_large", 0, "nothing of it was stored"},
    [QUOTH_UNKNOWN_TOPIC] = {"unknown_topic", 0, "the first publish makes a topic"},
    [QUOTH_UNKNOWN_RECORD] = {"unknown_record", 0, "retention or trim may have removed it"},
    [QUOTH_TOPIC_EXISTS] = {"topic_exists", 0, ""},
    [QUOTH_TOPICS_MAX] = {"topics_max", 0, "delete topics, or raise topics_max"},
    [QUOTH_UNKNOWN_PRODUCER] = {"unknown_producer", 0, ""},
    [QUOTH_OUT_OF_SEQUENCE] = {"out_of_sequence", RETRYABLE, "nothing was stored"},
    [QUOTH_SEQUENCE_REUSED] = {"sequence_reused", 0, ""},
    [QUOTH_FORGOTTEN_SEQUENCE] = {"forgotten_sequence", 0, "stored before, too long ago to tell its pointers"},
    [QUOTH_NOT_STAGED] = {"not_staged", 0, "nothing was published; write the missing parts again, or abort"},
    [QUOTH_ALREADY_PUBLISHED] = {"already_published", 0, "nothing was staged"},
    [QUOTH_NEWEST_DIFFERS] = {"newest_differs", 0, "nothing was published; see what was published meanwhile"},
    [QUOTH_STAGED_MAX] = {"staged_max", 0, "publish or abort what is staged on this topic"},
    [QUOTH_LOCKED] = {"locked", 0, ""},
    [QUOTH_POINTERS_EXHAUSTED] = {"pointers_exhausted", 0, ""},
    [QUOTH_BUSY] = {"busy", RETRYABLE | PASSING, "nothing was stored; try again in a moment"},
    [QUOTH_RECOVERING] = {"recovering", RETRYABLE | PASSING, "the topic is being opened; try again in a moment"},
    [QUOTH_STOPPING] = {"stopping", RETRYABLE | PASSING, "the broker is shutting down; nothing was stored"},
    [QUOTH_DISK_LOW] = {"disk_low", RETRYABLE, "free some space or trim; reads go on"},
    [QUOTH_STORAGE_FAILED] = {"storage_failed", UNKNOWN, "the topic takes no writes until the broker is restarted"},
    [QUOTH_UNUSABLE_SYSTEM] = {"unusable_system", UNKNOWN, ""},
    [QUOTH_INTERNAL] = {"internal", UNKNOWN, "the broker's log has the traceback"},
    [QUOTH_DAMAGED] = {"damaged", 0, ""},
    [QUOTH_TIMED_OUT] = {"timed_out", RETRYABLE | UNKNOWN, "whether it took effect is not known"},
    [QUOTH_DISCONNECTED] = {"disconnected", RETRYABLE | UNKNOWN, "is a broker running there?"},
    [QUOTH_CLOSED] = {"closed", 0, ""},
    [QUOTH_OTHER] = {"other", UNKNOWN, "of a newer broker: whether it was done is not known"},
    [QUOTH_OUT_OF_MEMORY] = {"out_of_memory", 0, ""},
    [QUOTH_SYSTEM] = {"system", 0, ""},
    [QUOTH_BAD_GROUP] = {"bad_group", 0, "1 to 100 bytes of UTF-8, else as a topic's name"},
    [QUOTH_UNKNOWN_GROUP] = {"unknown_group", 0, "nothing was done"},
    [QUOTH_GROUP_EXISTS] = {"group_exists", 0, "it has other settings"},
    [QUOTH_GROUPS_MAX] = {"groups_max", 0, "delete groups, or raise groups_max"},
    [QUOTH_LEASE_LOST] = {"lease_lost", 0, "another member may have the record now"},
    [QUOTH_QUOTA_EXCEEDED] = {"quota_exceeded", 0, "nothing was done; the text names the quota"},
    [QUOTH_AUTH_FAILED] = {"auth_failed", 0, "is it the right key file, and the right broker?"},
    [QUOTH_DENIED] = {"denied", 0, "nothing was done; the broker's clients file grants rights"}};

enum { CODES_COUNT = sizeof CODES / sizeof CODES[0] };

static int known(int code) { return code >= 0 && code < CODES_COUNT ? code : QUOTH_OTHER; }

const char *quoth_version(void) { return QUOTH_VERSION; }

const char *quoth_code_name(int code) { return CODES[known(code)].name; }

int quoth_is_retryable(int code) { return (CODES[known(code)].kind & RETRYABLE) != 0; }

int quoth_is_passing(int code) { return (CODES[known(code)].kind & PASSING) != 0; }

int quoth_is_broker_failure(int code) {
    return CODES[known(code)].kind == UNKNOWN; /* not those of this side, which are retryable */
}

void quoth_copy_text(char *to, size_t size, quoth_span from) {
    size_t length = from.size < size ? from.size : size - 1;
    while (length && length < from.size && (from.bytes[length] & 0xc0) == 0x80) length--;
    if (length) memcpy(to, from.bytes, length);
    to[length] = 0;
}

void quoth_no_error(quoth_error *error) {
    if (error) memset(error, 0, sizeof *error);
}

static void set_code(quoth_error *error, int code, const char *hint) {
    error->code = code;
    error->outcome_unknown = (CODES[code].kind & UNKNOWN) != 0;
    snprintf(error->name, sizeof error->name, "%s", CODES[code].name);
    snprintf(error->hint, sizeof error->hint, "%s", hint ? hint : CODES[code].hint);
}

int quoth_fail(quoth_error *error, int code, const char *hint, const char *format, ...) {
    if (!error) return code;
    va_list arguments;
    va_start(arguments, format);
    set_code(error, code, hint);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return code;
}

int quoth_fail_as(quoth_error *error, const quoth_msg_error *answer) {
    int code = QUOTH_OTHER;
    for (int row = QUOTH_BAD_REQUEST; row < CODES_COUNT; row++)
        if ((row < QUOTH_OTHER || row > QUOTH_SYSTEM) && strlen(CODES[row].name) == answer->code.size
            && memcmp(CODES[row].name, answer->code.bytes, answer->code.size) == 0)
            code = row;
    if (!error) return code;
    set_code(error, code, NULL);
    quoth_copy_text(error->name, sizeof error->name, answer->code);
    quoth_copy_text(error->text, sizeof error->text, answer->text);
    quoth_copy_text(error->hint, sizeof error->hint, answer->hint);
    return code;
}

int quoth_fail_memory(quoth_error *error) { return quoth_fail(error, QUOTH_OUT_OF_MEMORY, NULL, "no memory is left"); }

int quoth_pass_error(const quoth_error *from, quoth_error *error) {
    if (error) *error = *from;
    return from->code;
}
