/* The client: one channel for its own calls, and the producer ids of its publishes. */

#ifndef QUOTH_CLIENT_H
#define QUOTH_CLIENT_H

#include "channel.h"
#include "records.h"

#define QUOTH_TOPICS_KNOWN 64 /* topics whose producer id a client keeps; one more takes the place of the oldest */

/* The producer id of a client for a topic, and the sequence of its last stored batch. */
typedef struct quoth_sequence {
    char topic[QUOTH_NAME_BYTES_MAX + 1];
    uint64_t producer, stored;
} quoth_sequence;

struct quoth_client {
    quoth_channel channel;
    quoth_request request;
    char name[64];
    quoth_records records; /* of the batch that is being published */
    quoth_sequence *sequences;
    unsigned sequences_count, sequences_next;
};

/* Checks the name of a topic, as far as its length. */
int quoth_check_topic(const char *topic, quoth_error *error);

/* The levels of durability on the wire; -1 for one that there is not. */
quoth_span quoth_durability_text(int durability);
int quoth_durability_of(quoth_span text);

void quoth_ack_of(const quoth_msg_published *published, quoth_ack *ack);

/* A text of the caller's as a span; an empty one for NULL. */
quoth_span quoth_span_of(const char *text);

/* 1 if the bytes are this text. */
int quoth_is_text(quoth_span span, const char *text);

/* Begins the client's request. Settles it, and frees what the caller does not look at any more with the next one. */
void quoth_client_begin(quoth_client *client, unsigned operation, const char *topic);
int quoth_client_settle(quoth_client *client, quoth_error *error);

/* Begins a request about a topic, whose name is checked. */
int quoth_client_begin_topic(quoth_client *client, unsigned operation, const char *topic, quoth_error *error);

/* ---- group_calls.c, for members of groups ---- */

/* Checks the name of a group, as far as its length. */
int quoth_check_group(const char *group, quoth_error *error);

#define QUOTH_GROUP_SETTINGS_BYTES 768

/* Encodes the settings that are given; NULL for none. buffer: of QUOTH_GROUP_SETTINGS_BYTES. */
int quoth_pack_group_settings(const quoth_group_settings *given, uint8_t *buffer, quoth_span *settings,
                              quoth_error *error);

/* A place above which a group goes on, as the wire has it. */
int quoth_group_place(uint64_t pointer, int64_t *place, quoth_error *error);

#endif
