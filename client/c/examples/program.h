/* What the example programs share: exit statuses, errors, signals, numbers. */

#ifndef PROGRAM_H
#define PROGRAM_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "quoth.h"

/* ---- outcome.c ---- */

enum { DONE = 0, FAILED = 1, USAGE = 2, NOT_FOUND = 3, TIMED_OUT = 4 };

extern const char *program_name;

/* Prints an error in one line without control characters, and returns the exit status for its code. */
int report(int code, const char *format, ...);
int report_error(const quoth_error *error);

/* The key file that was given, even if its path is empty, or that of the variable QUOTH_KEY_FILE; NULL for none. */
const char *key_file(const char *given);

/* Reads decimal digits; 0 if there are others, or none. */
int parse_number(const char *digits, uint64_t *number);

/* ---- signals.c: SIGINT and SIGTERM end a program in order ---- */

extern volatile sig_atomic_t end_signal, signals_count;

/* Returns an exit status. */
int install_signal_handlers(void);

/* Lets the end of a child be a signal, too, which ends nothing. Returns an exit status. */
int notice_children(void);

/* A descriptor that is readable after a signal. */
int wakeup(void);
void clear_wakeup(void);

#endif
