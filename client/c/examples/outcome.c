/* The exit status for each code of PROTOCOL.md, and the printing of errors. */

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "program.h"

static int status_of(int code) {
    switch (code) {
    case QUOTH_OK: return DONE;
    case QUOTH_BAD_REQUEST:
    case QUOTH_BAD_SETTING:
    case QUOTH_BAD_TOPIC:
    case QUOTH_BAD_GROUP:
    case QUOTH_BAD_POINTER: return USAGE;
    case QUOTH_UNKNOWN_TOPIC:
    case QUOTH_UNKNOWN_GROUP: return NOT_FOUND;
    case QUOTH_TIMED_OUT:
    case QUOTH_DISCONNECTED: return TIMED_OUT;
    }
    return FAILED;
}

static void print(const char *name, const char *text) {
    fprintf(stderr, "%s: %s: ", program_name, name);
    for (; *text; text++) fputc(iscntrl((unsigned char)*text) ? '?' : *text, stderr);
    fputc('\n', stderr);
}

int report(int code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print(quoth_code_name(code), text);
    return status_of(code);
}

int report_error(const quoth_error *error) {
    print(error->name, error->text);
    return status_of(error->code);
}

const char *key_file(const char *given) {
    const char *found = getenv("QUOTH_KEY_FILE");
    if (given) return given;
    return found && *found ? found : NULL;
}

int parse_number(const char *digits, uint64_t *number) {
    *number = 0;
    const char *at = digits;
    for (; *at >= '0' && *at <= '9'; at++) *number = *number * 10 + (uint64_t)(*at - '0');
    return at > digits && !*at && at - digits < 19;
}
