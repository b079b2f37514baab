/* Implements key_file.h. */

#include "key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch.h"

enum { FILE_BYTES_MAX = 64 << 10, GROUP_AND_OTHERS = 077 };

typedef enum table { NO_TABLE, METADATA, CURVE } table;

static const struct field {
    table table;
    const char *name;
    size_t offset; /* in quoth_key */
    int is_key;    /* else it is the name */
} FIELDS[] = {{METADATA, "name", offsetof(quoth_key, name), 0},
              {METADATA, "server-key", offsetof(quoth_key, server_keys[0]), 1},
              {METADATA, "server-key-next", offsetof(quoth_key, server_keys[1]), 1},
              {CURVE, "public-key", offsetof(quoth_key, public_key), 1},
              {CURVE, "secret-key", offsetof(quoth_key, secret_key), 1}};

enum { FIELDS_COUNT = sizeof FIELDS / sizeof FIELDS[0] };

typedef struct key_parser {
    const char *path;
    unsigned line;
    table table;
    quoth_key *key;
    quoth_error *error;
} key_parser;

void quoth_wipe(void *secret, size_t size) {
    volatile uint8_t *at = secret;
    while (size--) *at++ = 0;
}

int quoth_is_key(quoth_span text) {
    static const char Z85[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    uint64_t number = 0;
    if (text.size != QUOTH_KEY_CHARACTERS) return 0;
    for (size_t at = 0; at < text.size; at++) {
        const char *digit = memchr(Z85, text.bytes[at], sizeof Z85 - 1);
        if (!digit) return 0;
        number = (at % 5 ? 85 * number : 0) + (uint64_t)(digit - Z85); /* five of them are four bytes */
        if (number > UINT32_MAX) return 0;
    }
    return 1;
}

/* ---- lines ---- */

static int is_space(uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }

static quoth_span trimmed(quoth_span text) {
    while (text.size && is_space(text.bytes[0])) text = (quoth_span){text.bytes + 1, text.size - 1};
    while (text.size && is_space(text.bytes[text.size - 1])) text.size--;
    return text;
}

static int is_text(quoth_span text, const char *other) {
    return text.size == strlen(other) && memcmp(text.bytes, other, text.size) == 0;
}

/* The text up to the first such byte. Returns 0 if there is none. */
static int cut(quoth_span text, uint8_t byte, quoth_span *before, quoth_span *behind) {
    const uint8_t *found = text.size ? memchr(text.bytes, byte, text.size) : NULL;
    if (!found) return 0;
    *before = (quoth_span){text.bytes, (size_t)(found - text.bytes)};
    *behind = (quoth_span){found + 1, text.size - before->size - 1};
    return 1;
}

/* Takes the quotes off a value, with which the line or a comment ends. Keys have no escapes, and in names they stay. */
static int unquote(quoth_span text, quoth_span *value) {
    uint8_t quote = text.size ? text.bytes[0] : 0;
    size_t at = 1;
    if (quote != '"' && quote != '\'') return 0;
    while (at < text.size && text.bytes[at] != quote) at += quote == '"' && text.bytes[at] == '\\' ? 2 : 1;
    if (at >= text.size) return 0;
    *value = (quoth_span){text.bytes + 1, at - 1};
    quoth_span rest = trimmed((quoth_span){text.bytes + at + 1, text.size - at - 1});
    return !rest.size || rest.bytes[0] == '#';
}

static int is_printable(quoth_span text) {
    for (size_t at = 0; at < text.size; at++)
        if (text.bytes[at] < 0x20 || text.bytes[at] == 0x7f) return 0;
    return quoth_is_utf8(text);
}

static int take_value(key_parser *parser, const struct field *field, quoth_span text) {
    char *to = (char *)parser->key + field->offset;
    quoth_span value;
    if (!unquote(text, &value))
        return quoth_fail(parser->error, QUOTH_BAD_SETTING, "like name = \"alice\"",
                          "the key file %s, line %u: %s is no text in quotes", parser->path, parser->line, field->name);
    if (*to)
        return quoth_fail(parser->error, QUOTH_BAD_SETTING, "keep one of them", "the key file %s, line %u: another %s",
                          parser->path, parser->line, field->name);
    if (field->is_key && !quoth_is_key(value))
        return quoth_fail(parser->error, QUOTH_BAD_SETTING, "copy the whole key, in quotes",
                          "the key file %s, line %u: %s is no key, which is %d characters of Z85 (%zu characters)",
                          parser->path, parser->line, field->name, QUOTH_KEY_CHARACTERS, value.size);
    if (!is_printable(value))
        return quoth_fail(parser->error, QUOTH_BAD_SETTING, "choose another name",
                          "the key file %s, line %u: a name that is no printable UTF-8", parser->path, parser->line);
    quoth_copy_text(to, field->is_key ? QUOTH_KEY_CHARACTERS + 1 : sizeof parser->key->name, value);
    return QUOTH_OK;
}

static int take_line(key_parser *parser, quoth_span line) {
    quoth_span name, value;
    line = trimmed(line);
    if (!line.size || line.bytes[0] == '#') return QUOTH_OK;
    if (line.bytes[0] == '[') {
        quoth_span inner = {line.bytes + 1, line.size - 1};
        if (!cut(inner, ']', &name, &value)) name = (quoth_span){line.bytes, 0};
        name = trimmed(name);
        parser->table = is_text(name, "metadata") ? METADATA : is_text(name, "curve") ? CURVE : NO_TABLE;
        return QUOTH_OK;
    }
    if (!cut(line, '=', &name, &value)) return QUOTH_OK;
    for (int row = 0; row < FIELDS_COUNT; row++)
        if (FIELDS[row].table == parser->table && is_text(trimmed(name), FIELDS[row].name))
            return take_value(parser, &FIELDS[row], trimmed(value));
    return QUOTH_OK;
}

static int check_whole(const key_parser *parser) {
    const quoth_key *key = parser->key;
    if (!*key->public_key)
        return quoth_fail(parser->error, QUOTH_BAD_SETTING, "is it a key file?",
                          "the key file %s has no public-key in a table [curve]", parser->path);
    if (*key->server_keys[1] && !*key->server_keys[0])
        return quoth_fail(parser->error, QUOTH_BAD_SETTING, "the broker's present key comes first",
                          "the key file %s has a server-key-next and no server-key", parser->path);
    return QUOTH_OK;
}

int quoth_key_parse(const char *path, quoth_span text, quoth_key *key, quoth_error *error) {
    key_parser parser = {path, 0, NO_TABLE, key, error};
    quoth_span line, rest = text;
    int code = QUOTH_OK;
    memset(key, 0, sizeof *key);
    while (!code && rest.size) {
        if (!cut(rest, '\n', &line, &rest)) {
            line = rest;
            rest.size = 0;
        }
        parser.line++;
        code = take_line(&parser, line);
    }
    if (!code) code = check_whole(&parser);
    if (code) quoth_wipe(key, sizeof *key);
    return code;
}

/* ---- files ---- */

static int fail_file(const char *path, const char *problem, quoth_error *error) {
    return quoth_fail(error, QUOTH_BAD_SETTING, "is it the right path?", "the key file %s: %s", path, problem);
}

/* Reads up to `size` bytes. Returns -1 with errno after an error. */
static ssize_t read_whole(int descriptor, uint8_t *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t count = read(descriptor, bytes + done, size - done);
        if (count > 0)
            done += (size_t)count;
        else if (count == 0)
            break;
        else if (errno != EINTR)
            return -1;
    }
    return (ssize_t)done;
}

static int read_text(int descriptor, const char *path, quoth_key *key, quoth_error *error) {
    uint8_t *bytes = malloc(FILE_BYTES_MAX + 1);
    int code;
    if (!bytes) return quoth_fail_memory(error);
    ssize_t size = read_whole(descriptor, bytes, FILE_BYTES_MAX + 1);
    if (size < 0)
        code = fail_file(path, strerror(errno), error);
    else if (size > FILE_BYTES_MAX)
        code = fail_file(path, "it has more than 64 KiB", error);
    else
        code = quoth_key_parse(path, (quoth_span){bytes, (size_t)size}, key, error);
    quoth_wipe(bytes, FILE_BYTES_MAX + 1);
    free(bytes);
    return code;
}

/* Checks what the key of a client has to have. mode: of its file. */
static int check_client(const char *path, unsigned mode, const quoth_key *key, quoth_error *error) {
    if (!*key->secret_key)
        return quoth_fail(error, QUOTH_BAD_SETTING, "a client needs the file with its secret key",
                          "the key file %s has no secret-key in a table [curve]", path);
    if (mode & GROUP_AND_OTHERS)
        return quoth_fail(error, QUOTH_BAD_SETTING, "replace the key if another user may have read it",
                          "the key file %s has the mode %04o, and its secret is for the owner alone: chmod 600 %s",
                          path, mode, path);
    if (!*key->server_keys[0])
        return quoth_fail(error, QUOTH_BAD_SETTING, "is it the key file of a client?",
                          "the key file %s has no server-key, the broker's public key, in a table [metadata]", path);
    return QUOTH_OK;
}

int quoth_key_read(const char *path, quoth_key *key, quoth_error *error) {
    struct stat found;
    int code;
    memset(key, 0, sizeof *key);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO without a writer does not hold it up */
    if (descriptor < 0) return fail_file(path, strerror(errno), error);
    if (fstat(descriptor, &found) < 0)
        code = fail_file(path, strerror(errno), error);
    else if (!S_ISREG(found.st_mode))
        code = fail_file(path, "it is no regular file", error);
    else
        code = read_text(descriptor, path, key, error);
    close(descriptor);
    if (!code) code = check_client(path, (unsigned)found.st_mode & 07777u, key, error);
    if (code) quoth_wipe(key, sizeof *key);
    return code;
}
