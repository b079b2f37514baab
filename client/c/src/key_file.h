/* Key files: the CURVE keys of a client, and the public keys of its broker. A key is 32 bytes, as 40 characters of Z85.
 *
 *     # The key of alice. A program that can read this file is alice: keep it secret.
 *     [metadata]
 *     name = "alice"
 *     server-key = "..."          the public key of the broker
 *     server-key-next = "..."     the one that it will have, while it is replaced
 *     [curve]
 *     public-key = "..."
 *     secret-key = "..."
 *
 * Such a file is TOML. Of TOML this reads tables and lines NAME = "VALUE", and skips every other line. Without ZeroMQ.
 * Errors are QUOTH_BAD_SETTING and quote no value, since it may be a secret. */

#ifndef QUOTH_KEY_FILE_H
#define QUOTH_KEY_FILE_H

#include "errors.h"

#define QUOTH_KEY_CHARACTERS 40
#define QUOTH_SERVER_KEYS_MAX 2

/* Texts that end with a 0 byte; empty: none. A name is cut to whole characters. */
typedef struct quoth_key {
    char name[64];
    char public_key[QUOTH_KEY_CHARACTERS + 1], secret_key[QUOTH_KEY_CHARACTERS + 1];
    char server_keys[QUOTH_SERVER_KEYS_MAX][QUOTH_KEY_CHARACTERS + 1];
} quoth_key;

/* 1 for 40 characters of Z85 that are 32 bytes. */
int quoth_is_key(quoth_span text);

/* Reads the text of a key file. path: for errors. After an error the key is all zeros. */
int quoth_key_parse(const char *path, quoth_span text, quoth_key *key, quoth_error *error);

/* Reads the key file of a client: with a secret key, which neither group nor others may read, and a key of its broker.
 * The mode is that of the file that was opened. After an error the key is all zeros. */
int quoth_key_read(const char *path, quoth_key *key, quoth_error *error);

/* Overwrites a secret with zeros, also where a compiler sees that it is not read again. */
void quoth_wipe(void *secret, size_t size);

#endif
