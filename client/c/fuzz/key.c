/* Fuzzes key_file.c: a key that is read can be written as a key file, and read again it is the same. */

#include "key_file.h"

#include "fuzz.h"

enum { WRITTEN_BYTES_MAX = 1024 };

static int is_empty(const quoth_key *key) {
    static const quoth_key nothing;
    return memcmp(key, &nothing, sizeof nothing) == 0;
}

static quoth_span span_of(const char *text) { return (quoth_span){(const uint8_t *)text, strlen(text)}; }

static void check_key(const char *key, size_t room) {
    PROMISE(memchr(key, 0, room));
    PROMISE(!*key || quoth_is_key(span_of(key)));
}

static int write_line(char *to, int room, const char *name, const char *value) {
    return *value ? snprintf(to, (size_t)room, "%s = \"%s\"\n", name, value) : 0;
}

/* Names can have a quote, or an escape that was cut: those are left out. */
static int write_key(char *to, int room, const quoth_key *key) {
    int size = snprintf(to, (size_t)room, "[metadata]\n");
    if (!strpbrk(key->name, "\"\\")) size += write_line(to + size, room - size, "name", key->name);
    size += write_line(to + size, room - size, "server-key", key->server_keys[0]);
    size += write_line(to + size, room - size, "server-key-next", key->server_keys[1]);
    size += snprintf(to + size, (size_t)(room - size), "[curve]\n");
    size += write_line(to + size, room - size, "public-key", key->public_key);
    return size + write_line(to + size, room - size, "secret-key", key->secret_key);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    uint8_t *copy = copy_of(bytes, size);
    char written[WRITTEN_BYTES_MAX];
    quoth_key key, again;
    quoth_error error;
    int code = quoth_key_parse("FILE", (quoth_span){copy, size}, &key, &error);
    free(copy);
    if (code) {
        PROMISE(code == QUOTH_BAD_SETTING && error.code == code && is_empty(&key));
        return 0;
    }
    PROMISE(memchr(key.name, 0, sizeof key.name) && *key.public_key);
    check_key(key.public_key, sizeof key.public_key);
    check_key(key.secret_key, sizeof key.secret_key);
    for (int row = 0; row < QUOTH_SERVER_KEYS_MAX; row++) check_key(key.server_keys[row], sizeof key.server_keys[row]);
    PROMISE(*key.server_keys[0] || !*key.server_keys[1]);
    int count = write_key(written, sizeof written, &key);
    PROMISE(count < WRITTEN_BYTES_MAX);
    PROMISE(!quoth_key_parse("FILE", (quoth_span){(uint8_t *)written, (size_t)count}, &again, &error));
    if (strpbrk(key.name, "\"\\")) memset(key.name, 0, sizeof key.name);
    PROMISE(memcmp(&key, &again, sizeof key) == 0);
    return 0;
}
