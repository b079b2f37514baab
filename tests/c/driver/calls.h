/* What the files of the driver that makes calls share. */

#ifndef CALLS_H
#define CALLS_H

#include "quoth.h"

extern char *words[];
extern size_t word_count;
extern quoth_client *client;
extern quoth_error error;

/* A number; 0 for a word that is not there. A name; %20 stands for a space, and "-" for no bytes. */
uint64_t number(size_t word);
const char *text(size_t word);

/* Hex, "-" for none of it, "~" for what is absent. */
quoth_bytes from_hex(const char *hex);
void release(quoth_bytes bytes);
void print_hex(quoth_bytes bytes);

/* 1 for success; prints the error else. */
int is_ok(int code);
void print_content(const quoth_message *message);
void print_gap(void *context, const quoth_gap *gap);

/* ---- group_calls.c ---- */

void make_group_call(void);
void end_group_calls(void);

#endif
