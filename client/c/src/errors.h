/* Errors: one table of codes, and the functions that fill in a quoth_error. */

#ifndef QUOTH_ERRORS_H
#define QUOTH_ERRORS_H

#include "codec.h"
#include "quoth.h"

/* Fills in an error, which may be NULL, and returns its code. hint: NULL for that of the code. */
int quoth_fail(quoth_error *error, int code, const char *hint, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

/* Fills in an error that a broker has answered. */
int quoth_fail_as(quoth_error *error, const quoth_msg_error *answer);

int quoth_fail_memory(quoth_error *error);

/* Copies an error to a caller's, which may be NULL, and returns its code. */
int quoth_pass_error(const quoth_error *from, quoth_error *error);

/* Sets an error to QUOTH_OK. */
void quoth_no_error(quoth_error *error);

/* 1 for a code after which the broker did not look at the request: busy, recovering, stopping. */
int quoth_is_passing(int code);

/* 1 for a code after which the outcome is unknown although the broker has answered. */
int quoth_is_broker_failure(int code);

/* Copies bytes into a text of `size`, cut to whole characters. */
void quoth_copy_text(char *to, size_t size, quoth_span from);

#endif
