/* Reads commands, one a line, and prints what the library's codec makes of them, one line each.
 *
 *     decode request|reply FRAME ...            "ok" or "later", operation, correlation, NAME=VALUE ...
 *                                               error: "error" in place of ok; else what is wrong with it
 *     encode request|reply OPERATION CORRELATION NAME=VALUE ...        header and arguments
 *     batch LOG BYTES                           header's numbers, then VALUE:KEY:HEADERS a record
 *     new BYTES                                 as a broker checks a batch that is published
 *     write FLAGS PRODUCER SEQUENCE VALUE:KEY:HEADERS ...              the bytes of a batch
 *     settle KIND:FIRST:LAST:TOKEN:MILLISECONDS ...                    the bytes of these rows
 *     rows COUNT BYTES                          "ok" and such rows, or the code of what is wrong
 *
 * Bytes are hex, "-" for none of them, "~" for an absent key. Numbers are decimals. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"

enum { WORDS_MAX = 200000, LINE_MAX_BYTES = 40 << 20 };

static char *words[WORDS_MAX];
static size_t word_count;

/* ---- hex ---- */

static quoth_span from_hex(char *hex) { /* in place */
    size_t size = strcmp(hex, "-") == 0 || strcmp(hex, "~") == 0 ? 0 : strlen(hex) / 2;
    uint8_t *bytes = malloc(size + !size); /* of its own, so that a read behind it is found */
    for (size_t i = 0; i < size; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return (quoth_span){bytes, size};
}

static void release(quoth_span span) { free((void *)(uintptr_t)span.bytes); }

static void print_hex(const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    if (!size) putchar('-');
    for (size_t i = 0; i < size; i++) printf("%02x", at[i]);
}

/* ---- messages ---- */

static void print_fields(const quoth_shape *shape, const void *message) {
    for (const quoth_field *field = shape->fields; field < shape->fields + shape->count; field++) {
        const char *at = (const char *)message + field->offset;
        uint64_t number;
        double real;
        quoth_span span;
        memcpy(&number, at, sizeof number);
        memcpy(&real, at, sizeof real);
        printf(" %s=", field->name);
        if (field->type == QUOTH_FIELD_FLOAT)
            printf("%.17g", real);
        else if (field->type == QUOTH_FIELD_SIGNED)
            printf("%" PRId64, (int64_t)number);
        else if (field->type <= QUOTH_FIELD_FLAG)
            printf("%" PRIu64, number);
        else {
            memcpy(&span, at, sizeof span);
            print_hex(span.bytes, span.size);
        }
    }
}

static void decode(void) {
    int is_request = strcmp(words[1], "request") == 0;
    size_t frames = word_count - 2;
    quoth_span header_bytes = from_hex(words[2]), topic = {NULL, 0}, arguments = {(const uint8_t *)"\x80", 1};
    quoth_frame_header header;
    quoth_header_problem problem = quoth_header_read(header_bytes.bytes, header_bytes.size, is_request, &header);
    release(header_bytes);
    size_t place = is_request ? 2 : 1; /* of the arguments */
    quoth_span encoded = frames > place ? from_hex(words[2 + place]) : (quoth_span){NULL, 0};
    if (is_request && frames > 1) topic = from_hex(words[3]);
    if (frames > place) arguments = encoded;
    static const char *const PROBLEMS[] = {"", "bad", "version", "operation"};
    if (problem) {
        printf("%s %" PRIu64 "\n", PROBLEMS[problem], header.correlation);
    } else if (is_request && !quoth_call_fits(header.operation, frames, topic.size)) {
        printf("frames\n");
    } else {
        quoth_any_message message;
        const quoth_shape *shape = is_request ? quoth_request_shape(header.operation)
                                   : header.status == QUOTH_STATUS_ERROR ? &quoth_error_shape
                                                                         : quoth_reply_shape(header.operation);
        quoth_decoding decoding = quoth_message_decode(shape, arguments, &message);
        if (decoding == QUOTH_NOT_PLAIN) {
            printf("fields\n");
        } else {
            printf("%s %u %" PRIu64, decoding == QUOTH_DECODED_LATER ? "later" : "ok", header.operation,
                   header.correlation);
            print_fields(shape, &message);
            putchar('\n');
        }
    }
    release(encoded);
    release(topic);
}

static void set_field(const quoth_field *field, char *text, char *at) {
    double real = 0;
    uint64_t number = 0;
    if (field->type == QUOTH_FIELD_FLOAT) {
        real = strtod(text, NULL);
        memcpy(at, &real, sizeof real);
    } else if (field->type <= QUOTH_FIELD_FLAG) {
        number = *text == '-' ? (uint64_t)strtoll(text, NULL, 10) : strtoull(text, NULL, 10);
        memcpy(at, &number, sizeof number);
    } else {
        quoth_span span = from_hex(text);
        memcpy(at, &span, sizeof span);
    }
}

static void encode(void) {
    unsigned operation = (unsigned)strtoul(words[2], NULL, 10);
    int is_request = strcmp(words[1], "request") == 0, is_error = strcmp(words[1], "error") == 0;
    const quoth_shape *shape = is_request ? quoth_request_shape(operation)
                               : is_error ? &quoth_error_shape : quoth_reply_shape(operation);
    uint8_t header[QUOTH_HEADER_BYTES], arguments[QUOTH_REQUEST_BYTES_MAX];
    quoth_any_message message;
    quoth_message_clear(shape, &message);
    for (const quoth_field *field = shape->fields; field < shape->fields + shape->count; field++)
        for (size_t word = 4; word < word_count; word++)
            if (strncmp(words[word], field->name, field->name_bytes) == 0 && words[word][field->name_bytes] == '=')
                set_field(field, words[word] + field->name_bytes + 1, (char *)&message + field->offset);
    quoth_header_write(header, operation, is_request ? QUOTH_STATUS_REQUEST : is_error ? QUOTH_STATUS_ERROR
                       : QUOTH_STATUS_OK, strtoull(words[3], NULL, 10));
    print_hex(header, sizeof header);
    putchar(' ');
    size_t size = quoth_message_encode(shape, &message, arguments, sizeof arguments);
    print_hex(arguments, size);
    for (size_t room = 0; room < size; room++) /* it says where there is no room, and writes nothing behind it */
        if (quoth_message_encode(shape, &message, arguments, room)) printf(" fits into %zu bytes", room);
    putchar('\n');
    for (const quoth_field *field = shape->fields; field < shape->fields + shape->count; field++)
        if (field->type > QUOTH_FIELD_FLOAT) {
            quoth_span span;
            memcpy(&span, (char *)&message + field->offset, sizeof span);
            release(span);
        }
}

/* ---- batches ---- */

static void print_batch(void) {
    quoth_span bytes = from_hex(words[2]);
    quoth_batch batch;
    quoth_batch_problem problem = quoth_batch_parse(bytes.bytes, bytes.size, strtoull(words[1], NULL, 10), &batch);
    if (problem) {
        printf("%s\n", problem == QUOTH_BATCH_RECORDS || problem == QUOTH_BATCH_BYTES ? "too_large" : "bad_batch");
        release(bytes);
        return;
    }
    const quoth_batch_header *header = &batch.header;
    printf("ok %u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, header->kind, header->flags,
           header->body_bytes, header->records, header->base, header->ordinal, header->producer, header->sequence,
           header->body_check);
    for (uint32_t record = 0; record < header->records; record++)
        for (int column = 0; column < QUOTH_COLUMNS; column++) {
            quoth_span found = quoth_batch_record(&batch, column, record);
            putchar(column ? ':' : ' ');
            if (found.bytes)
                print_hex(found.bytes, found.size);
            else
                putchar('~');
        }
    putchar('\n');
    release(bytes);
}

static void check_new(void) {
    quoth_span bytes = from_hex(words[1]);
    quoth_batch batch;
    uint32_t record;
    quoth_batch_problem problem = quoth_batch_parse(bytes.bytes, bytes.size, 0, &batch);
    if (!problem) problem = quoth_batch_check_published(&batch.header);
    if (!problem) problem = quoth_batch_check_new(&batch, &record);
    printf("%s\n", problem ? "bad_batch" : "ok");
    release(bytes);
}

static void write_batch(void) {
    unsigned flags = (unsigned)strtoul(words[1], NULL, 10);
    uint32_t records = (uint32_t)(word_count - 4);
    size_t heaps[QUOTH_COLUMNS] = {0, 0, 0};
    quoth_batch_layout layout;
    for (size_t word = 4; word < word_count; word++) {
        char *part = words[word];
        for (int column = 0; column < QUOTH_COLUMNS; column++, part += strcspn(part, ":") + 1)
            if (*part != '-' && *part != '~') heaps[column] += strcspn(part, ":") / 2;
    }
    if (quoth_batch_plan(records, flags, heaps, &layout)) abort();
    uint8_t *bytes = calloc(1, layout.size);
    size_t ends[QUOTH_COLUMNS] = {0, 0, 0};
    for (size_t word = 4; word < word_count; word++) {
        char *part = words[word];
        for (int column = 0; column < QUOTH_COLUMNS; column++) {
            size_t digits = strcspn(part, ":");
            char *next = part + digits + 1;
            int is_absent = *part == '~';
            part[digits] = 0;
            quoth_span content = from_hex(part);
            if (layout.offsets[column]) {
                memcpy(bytes + layout.heaps[column] + ends[column], content.bytes, content.size);
                ends[column] += content.size;
                uint32_t end = (uint32_t)ends[column];
                memcpy(bytes + layout.offsets[column] + 4 * (word - 3), &end, 4);
                if (column == QUOTH_KEYS && !is_absent)
                    bytes[layout.validity + (word - 4) / 8] |= (uint8_t)(1u << (word - 4) % 8);
            }
            release(content);
            part = next;
        }
    }
    quoth_batch_seal(bytes, &layout, records, flags, strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10));
    print_hex(bytes, layout.size);
    putchar('\n');
    free(bytes);
}

/* ---- settlements ---- */

static void write_rows(void) {
    uint8_t bytes[QUOTH_SETTLEMENT_BYTES];
    if (word_count < 2) putchar('-');
    for (size_t word = 1; word < word_count; word++) {
        quoth_settlement row;
        if (sscanf(words[word], "%" SCNu8 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64, &row.kind, &row.first,
                   &row.last, &row.token, &row.milliseconds) != 5)
            abort();
        quoth_settlement_write(bytes, &row);
        print_hex(bytes, sizeof bytes);
    }
    putchar('\n');
}

/* The code of the first row that is wrong; "ok" for none. */
static const char *judge_rows(quoth_span bytes, uint64_t count) {
    static const char *const CODES[] = {"ok", "bad_request", "bad_pointer", "too_large"};
    uint64_t before = 0;
    if (bytes.size != count * QUOTH_SETTLEMENT_BYTES) return "bad_request";
    if (count > QUOTH_SETTLEMENTS_MAX) return "too_large";
    for (size_t at = 0; at < bytes.size; at += QUOTH_SETTLEMENT_BYTES) {
        quoth_settlement row;
        int is_row = quoth_settlement_read(bytes.bytes + at, &row);
        quoth_settlement_problem problem = quoth_settlement_check(&row);
        if (!is_row || problem) return CODES[is_row ? problem : QUOTH_SETTLEMENT_BAD];
        if (row.first <= before) return "bad_request";
        before = row.last;
    }
    return "ok";
}

static void read_rows(void) {
    quoth_span bytes = from_hex(words[2]);
    const char *code = judge_rows(bytes, strtoull(words[1], NULL, 10));
    printf("%s", code);
    for (size_t at = 0; strcmp(code, "ok") == 0 && at < bytes.size; at += QUOTH_SETTLEMENT_BYTES) {
        quoth_settlement row;
        quoth_settlement_read(bytes.bytes + at, &row);
        printf(" %u:%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64, row.kind, row.first, row.last, row.token,
               row.milliseconds);
    }
    putchar('\n');
    release(bytes);
}

int main(void) {
    char *line = malloc(LINE_MAX_BYTES);
    static const struct {
        const char *name;
        void (*run)(void);
    } COMMANDS[] = {{"decode", decode}, {"encode", encode}, {"batch", print_batch}, {"new", check_new},
                    {"write", write_batch}, {"settle", write_rows}, {"rows", read_rows}};
    while (line && fgets(line, LINE_MAX_BYTES, stdin)) {
        word_count = 0;
        for (char *word = strtok(line, " \n"); word && word_count < WORDS_MAX; word = strtok(NULL, " \n"))
            words[word_count++] = word;
        for (size_t row = 0; row < sizeof COMMANDS / sizeof COMMANDS[0]; row++)
            if (strcmp(COMMANDS[row].name, words[0]) == 0) COMMANDS[row].run();
        fflush(stdout);
    }
    free(line);
    return 0;
}
