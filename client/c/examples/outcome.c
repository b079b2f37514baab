/* The exit status for each code of PROTOCOL.md, and the printing of errors. */

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "quothpipe.h"

static const struct {
    const char *code;
    int status, again;
} CODES[] = {
    {"busy", FAILED, 1},       {"recovering", FAILED, 1},       {"stopping", FAILED, 1},
    {"disk_low", FAILED, 1},   {"bad_request", USAGE, 0},       {"bad_topic", USAGE, 0},
    {"bad_pointer", USAGE, 0}, {"unknown_topic", NOT_FOUND, 0}, {"disconnected", TIMED_OUT, 0},
};
#define CODES_COUNT (sizeof CODES / sizeof CODES[0])

static int status_of(const char *code) {
    for (size_t row = 0; row < CODES_COUNT; row++)
        if (strcmp(CODES[row].code, code) == 0) return CODES[row].status;
    return FAILED;
}

int is_retryable(const char *code) {
    for (size_t row = 0; row < CODES_COUNT; row++)
        if (strcmp(CODES[row].code, code) == 0) return CODES[row].again;
    return 0;
}

int report_error(const char *code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *one = text; *one; one++)
        if (iscntrl((unsigned char)*one)) *one = '?';
    fprintf(stderr, "quothpipe: %s: %s\n", code, text);
    return status_of(code);
}

int out_of_memory(void) { return report_error("os_error", "%s", strerror(ENOMEM)); }
