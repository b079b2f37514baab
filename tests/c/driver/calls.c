/* Makes the calls of the library that it reads, one a line, and prints what they return: see the tests.
 *
 *     calls URL [TIMEOUT_MS [RESEND_MS [KEY_FILE | SERVER_KEY PUBLIC_KEY SECRET_KEY]]]
 *
 * A line with a dot ends what a call prints; the first one says that it is connected.
 * Bytes are hex, "-" for none of them, "~" for absent ones. A call that fails prints "error", the name of its code,
 * whether the outcome is unknown, and the text. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"
#include "records_by_number.h"

enum { WORDS_MAX = 20000, LINE_BYTES_MAX = 40 << 20, PARTS_MAX = 10000 };

char *words[WORDS_MAX + 1];
size_t word_count;
quoth_client *client;
quoth_error error;

uint64_t number(size_t word) { return word < word_count ? strtoull(words[word], NULL, 10) : 0; }

/* A name; %20 stands for a space. */
const char *text(size_t word) {
    for (char *space; (space = strstr(words[word], "%20")); *space = ' ') memmove(space + 1, space + 3, strlen(space + 2));
    return strcmp(words[word], "-") == 0 ? "" : words[word];
}

/* ---- hex ---- */

quoth_bytes from_hex(const char *hex) {
    size_t size = *hex == '-' || *hex == '~' ? 0 : strcspn(hex, ":") / 2;
    uint8_t *bytes = *hex == '~' ? NULL : malloc(size + 1);
    for (size_t i = 0; i < size; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return (quoth_bytes){bytes, size};
}

void release(quoth_bytes bytes) { free((void *)(uintptr_t)bytes.data); }

void print_hex(quoth_bytes bytes) {
    const uint8_t *at = bytes.data;
    if (!at) putchar('~');
    if (at && !bytes.size) putchar('-');
    for (size_t i = 0; i < bytes.size; i++) printf("%02x", at[i]);
}

/* ---- results ---- */

int is_ok(int code) {
    if (code > 0) printf("error %s %d %s\n", error.name, error.outcome_unknown, error.text);
    return !code;
}

static void print_ack(const quoth_ack *ack) {
    printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d\n", ack->first, ack->last, ack->count, ack->durability,
           ack->duplicate);
}

static void print_topic(const quoth_topic *topic) {
    uint64_t producers = 0;
    quoth_counter(topic, "producers", &producers);
    printf("ok %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %.17g %" PRId64 " %" PRId64 " %" PRId64
           " %.17g %" PRIu64 "\n", topic->name, topic->log, topic->first, topic->last, topic->count, topic->segments,
           topic->settings.durability, topic->settings.max_age_s, topic->settings.max_bytes,
           topic->settings.size_limit, topic->settings.count_limit, topic->settings.age_limit_s, producers);
}

/* ---- publishing ---- */

static void publish(void) {
    size_t count = word_count - 3;
    quoth_record *records = calloc(count + 1, sizeof *records);
    quoth_ack ack;
    for (size_t row = 0; row < count; row++) {
        const char *word = words[row + 3];
        records[row].value = from_hex(word);
        word += strcspn(word, ":") + 1;
        records[row].key = from_hex(word);
        word += strcspn(word, ":") + 1;
        records[row].encoded = from_hex(word);
    }
    if (is_ok(quoth_publish(client, text(1), records, count, (int)number(2), &ack, &error))) print_ack(&ack);
    for (size_t row = 0; row < count; row++) {
        release(records[row].value);
        release(records[row].key);
        release(records[row].encoded);
    }
    free(records);
}

/* timeout MS: of the calls from now on */
static void set_timeout(void) { quoth_set_timeout(client, (int64_t)number(1)); }

static uint64_t outcomes_next;

static void take_outcome(void *context, const quoth_outcome *outcome) {
    (void)context;
    if (outcome->number != outcomes_next) printf("outcome of %" PRIu64 " is early\n", outcome->number);
    outcomes_next = outcome->number + outcome->records;
    if (!outcome->ack)
        printf("failed %" PRIu64 " %u %s %d\n", outcome->number, outcome->records, outcome->error->name,
               outcome->error->outcome_unknown);
}

static void print_outcome(void *context, const quoth_outcome *outcome) {
    (void)context;
    if (outcome->ack)
        print_ack(outcome->ack);
    else
        printf("error %s %d %s\n", outcome->error->name, outcome->error->outcome_unknown, outcome->error->text);
}

/* send TOPIC BATCH TIMEOUT_MS VALUE ... : prints the outcome of each batch */
static void send_values(void) {
    quoth_producer_options options = QUOTH_PRODUCER_OPTIONS;
    quoth_producer *producer;
    options.batch_records = (uint32_t)number(2);
    options.timeout_ms = (int64_t)number(3);
    options.linger_ms = 60000;
    options.on_outcome = print_outcome;
    if (!is_ok(quoth_producer_open(client, text(1), &options, &producer, &error))) return;
    int code = QUOTH_OK;
    for (size_t word = 4; word < word_count && !code; word++) {
        quoth_record record = QUOTH_RECORD;
        record.value = from_hex(words[word]);
        code = quoth_producer_send(producer, &record, &error);
        release(record.value);
    }
    quoth_producer_flush(producer, (int64_t)number(3) + 1000, &error); /* each batch has printed its outcome */
    quoth_producer_close(producer);
}

/* produce TOPIC BEGIN COUNT [BATCH [WINDOW [TIMEOUT_MS [EACH_US]]]] */
static void produce(void) {
    quoth_producer_options options = QUOTH_PRODUCER_OPTIONS;
    quoth_producer *producer;
    quoth_producer_counts counts;
    numbered one;
    options.batch_records = (uint32_t)number(4);
    options.window = (uint32_t)number(5);
    options.timeout_ms = (int64_t)number(6);
    options.on_outcome = take_outcome;
    outcomes_next = 0;
    if (!is_ok(quoth_producer_open(client, text(1), &options, &producer, &error))) return;
    int code = QUOTH_OK;
    for (uint64_t i = number(2); i < number(2) + number(3) && !code; i++) {
        struct timespec pause = {0, (long)(1000 * number(7))};
        code = quoth_producer_send(producer, make_numbered(&one, i), &error);
        if (number(7)) nanosleep(&pause, NULL);
        if (number(7) && !code) code = quoth_producer_poll(producer, 0, &error);
    }
    if (!code) code = quoth_producer_flush(producer, 240000, &error);
    quoth_producer_count(producer, &counts);
    if (is_ok(code))
        printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", counts.acknowledged, counts.failed, counts.last);
    quoth_producer_close(producer);
}

/* ---- reading ---- */

void print_gap(void *context, const quoth_gap *gap) {
    (void)context;
    printf("gap %d %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 "\n", gap->reason, gap->after, gap->next, gap->records,
           gap->ordinal);
}

static quoth_reader *open_reader(void) {
    quoth_reader_options options = QUOTH_READER_OPTIONS;
    quoth_reader *reader;
    options.after = number(2);
    options.since = number(3);
    options.until = number(4);
    options.limit = number(5);
    options.fetch_bytes = number(7);
    options.log = number(8);
    options.ordinal = (int64_t)number(9);
    options.durability = (int)number(10);
    options.on_gap = print_gap;
    return is_ok(quoth_reader_open(client, text(1), &options, &reader, &error)) ? reader : NULL;
}

void print_content(const quoth_message *message) {
    print_hex(message->value);
    putchar(':');
    print_hex(message->key);
    putchar(':');
    print_hex(message->headers);
    putchar('\n');
}

static void print_message(const quoth_message *message) {
    printf("record %" PRIu64 " ", message->pointer);
    print_content(message);
}

/* read TOPIC AFTER SINCE UNTIL LIMIT WAIT_MS [FETCH_BYTES [LOG ORDINAL [DURABILITY]]]: waits for the first
 * record */
static void read_all(void) {
    quoth_reader *reader = open_reader();
    quoth_message message;
    quoth_position position;
    uint64_t count = 0;
    int code;
    if (!reader) return;
    while (!(code = quoth_read(reader, count++ ? 0 : (int64_t)number(6), &message, &error))) {
        print_message(&message);
        quoth_reader_position(reader, &position);
        if (position.cursor != message.pointer) printf("the cursor is %" PRIu64 "\n", position.cursor);
    }
    quoth_reader_position(reader, &position);
    is_ok(code);
    printf("end %" PRIu64 " %" PRIu64 " %" PRId64 "\n", position.cursor, position.log, position.ordinal);
    quoth_reader_close(reader);
}

/* tail TOPIC AFTER SINCE UNTIL LIMIT WAIT_MS: prints records until there are LIMIT of them, through all outages. */
static void tail(void) {
    quoth_reader *reader = open_reader();
    quoth_message message;
    if (!reader) return;
    for (uint64_t count = 0; count < number(5);) {
        int code = quoth_read(reader, (int64_t)number(6), &message, &error);
        if (!code) {
            print_message(&message);
            count++;
        } else if (code != QUOTH_END && !quoth_is_retryable(code)) {
            is_ok(code);
            break;
        }
        fflush(stdout);
    }
    printf("end\n");
    quoth_reader_close(reader);
}

/* consume TOPIC BEGIN COUNT: checks numbered records in their order, also new ones, through all outages. */
static void consume(void) {
    quoth_reader_options options = QUOTH_READER_OPTIONS;
    quoth_reader *reader;
    quoth_message message;
    uint64_t next = number(2), end = next + number(3);
    options.on_gap = print_gap;
    if (!is_ok(quoth_reader_open(client, text(1), &options, &reader, &error))) return;
    while (next < end) {
        int code = quoth_read(reader, 1000, &message, &error);
        if (code == QUOTH_END || quoth_is_retryable(code)) continue;
        if (!is_ok(code)) break;
        if (!is_numbered(&message, next)) {
            printf("another record in place of %" PRIu64 " at %" PRIu64 "\n", next, message.pointer);
            break;
        }
        next++;
    }
    printf("ok %" PRIu64 "\n", next);
    quoth_reader_close(reader);
}

/* ---- the broker, topics, ranges ---- */

static void ping(void) {
    uint64_t time;
    if (is_ok(quoth_ping(client, &time, &error))) printf("ok %" PRIu64 "\n", time);
}

static void hello(void) {
    quoth_broker broker;
    if (is_ok(quoth_hello(client, &broker, &error)))
        printf("ok %s %" PRIu64 " %" PRIu64 "\n", broker.server, broker.batch_bytes_max, broker.frame_bytes_max);
}

static void status(void) {
    quoth_status found;
    if (is_ok(quoth_get_status(client, &found, &error)))
        printf("ok %" PRIu64 " %" PRIu64 " %d %s\n", found.pid, found.topics, found.uptime_s > 0, found.directory);
}

static int print_states(void *context, const char *name, quoth_bytes found) {
    (void)context;
    printf("%s %.*s\n", name, (int)found.size, (const char *)found.data);
    return 0;
}

static void states(void) {
    quoth_broker broker;
    if (!is_ok(quoth_hello(client, &broker, &error))) return;
    printf("%s\n", broker.server);
    is_ok(quoth_list_states(client, print_states, NULL, &error));
}

/* SETTINGS: durability max_age max_bytes size_limit count_limit age_limit */
static void change(int (*call)(quoth_client *, const char *, const quoth_settings *, quoth_topic *, quoth_error *)) {
    quoth_settings settings = QUOTH_SETTINGS;
    quoth_topic topic;
    if (word_count > 2) settings.durability = (int)number(2);
    if (word_count > 3) settings.max_age_s = strtod(words[3], NULL);
    if (word_count > 4) settings.max_bytes = strtoll(words[4], NULL, 10);
    if (word_count > 5) settings.size_limit = strtoll(words[5], NULL, 10);
    if (word_count > 6) settings.count_limit = strtoll(words[6], NULL, 10);
    if (word_count > 7) settings.age_limit_s = strtod(words[7], NULL);
    if (is_ok(call(client, text(1), &settings, &topic, &error))) print_topic(&topic);
}

static void create(void) { change(quoth_create); }

static void update(void) { change(quoth_update); }

static void describe(void) {
    quoth_topic topic;
    if (is_ok(quoth_describe(client, text(1), &topic, &error))) print_topic(&topic);
}

static void roll(void) {
    quoth_topic topic;
    if (is_ok(quoth_roll(client, text(1), &topic, &error))) print_topic(&topic);
}

static int print_name(void *context, const char *name) {
    int *count = context;
    printf("topic %s\n", name);
    return word_count > 1 && ++*count >= (int)number(1);
}

static void list(void) {
    int count = 0;
    if (is_ok(quoth_list(client, print_name, &count, &error))) printf("ok\n");
}

static void print_removed(int code, const quoth_removed *removed) {
    if (is_ok(code)) printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", removed->records, removed->bytes, removed->first);
}

static void delete_topic(void) {
    quoth_removed removed;
    print_removed(quoth_delete(client, text(1), &removed, &error), &removed);
}

static void trim(void) {
    quoth_removed removed;
    print_removed(quoth_trim(client, text(1), number(2), &removed, &error), &removed);
}

static void print_range(const quoth_range *range) {
    printf("range %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", range->after, range->until, range->records,
           range->bytes);
}

static void advance(void) {
    quoth_advanced found;
    if (is_ok(quoth_advance(client, text(1), number(2), number(3), number(4), &found, &error)))
        printf("range %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", found.range.after,
               found.range.until, found.range.records, found.range.bytes, found.newest, found.end);
}

static void split(void) {
    quoth_range *ranges = calloc(PARTS_MAX, sizeof *ranges);
    size_t count = number(4);
    if (is_ok(quoth_split(client, text(1), number(2), number(3), ranges, &count, &error)))
        for (size_t row = 0; row < count; row++) print_range(&ranges[row]);
    printf("end %zu\n", count);
    free(ranges);
}

static void count_records(void) {
    quoth_counted found;
    if (is_ok(quoth_count(client, text(1), number(2), number(3), &found, &error)))
        printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", found.records, found.bytes,
               found.first, found.last, found.newest, found.end);
}

/* ---- transactions ---- */

/* stage TOPIC APPLICATION VERSION PART BEGIN COUNT */
static void stage(void) {
    quoth_part *part;
    quoth_staged staged;
    numbered one;
    if (!is_ok(quoth_part_open(client, text(1), text(2), number(3), number(4), &part, &error))) return;
    int code = QUOTH_OK;
    for (uint64_t i = number(5); i < number(5) + number(6) && !code; i++)
        code = quoth_part_write(part, make_numbered(&one, i), &error);
    if (!code) code = quoth_part_finish(part, &staged, &error);
    if (is_ok(code))
        printf("ok %" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", staged.part, staged.attempt, staged.batches,
               staged.records);
    quoth_part_close(part);
}

/* batches TOPIC APPLICATION VERSION PART VALUE,VALUE ... : stages a batch for each word */
static void batches(void) {
    quoth_part *part;
    quoth_staged staged;
    if (!is_ok(quoth_part_open(client, text(1), text(2), number(3), number(4), &part, &error))) return;
    int code = QUOTH_OK;
    for (size_t word = 5; word < word_count && !code; word++) {
        for (char *value = words[word], *next; value && !code; value = next) {
            quoth_record record = QUOTH_RECORD;
            next = strchr(value, ',');
            if (next) *next++ = 0;
            record.value = from_hex(value);
            code = quoth_part_write(part, &record, &error);
            release(record.value);
        }
        if (!code) code = quoth_part_flush(part, &error);
    }
    if (!code) code = quoth_part_finish(part, &staged, &error);
    if (is_ok(code))
        printf("ok %" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", staged.part, staged.attempt, staged.batches,
               staged.records);
    quoth_part_close(part);
}

/* commit TOPIC APPLICATION VERSION NEWEST PART ... */
static void commit(void) {
    quoth_staged parts[64];
    quoth_ack ack;
    size_t count = 0;
    for (size_t word = 5; word < word_count; word++, count++)
        if (sscanf(words[word], "%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64, &parts[count].part,
                   &parts[count].attempt, &parts[count].batches, &parts[count].records) != 4)
            abort();
    if (is_ok(quoth_publish_staged(client, text(1), text(2), number(3), parts, count, strtoll(words[4], NULL, 10), 0,
                                   &ack, &error)))
        print_ack(&ack);
}

static void print_transaction(int code, const quoth_transaction *found) {
    if (is_ok(code))
        printf("ok %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64 "\n", found->state, found->first,
               found->last, found->count, found->parts, found->records, found->newest_version);
}

static void inspect(void) {
    quoth_transaction found;
    print_transaction(quoth_inspect(client, text(1), text(2), number(3), &found, &error), &found);
}

static void abort_transaction(void) {
    quoth_transaction found;
    print_transaction(quoth_abort(client, text(1), text(2), number(3), &found, &error), &found);
}

/* ---- */

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } CALLS[] = {{"publish", publish}, {"produce", produce}, {"read", read_all}, {"tail", tail}, {"consume", consume},
                 {"ping", ping}, {"hello", hello}, {"status", status}, {"states", states}, {"create", create}, {"update", update},
                 {"describe", describe}, {"roll", roll}, {"list", list}, {"delete", delete_topic}, {"trim", trim},
                 {"advance", advance}, {"split", split}, {"count", count_records}, {"stage", stage},
                 {"commit", commit}, {"batches", batches}, {"timeout", set_timeout}, {"send", send_values}, {"inspect", inspect}, {"abort", abort_transaction}};
    quoth_options options = QUOTH_OPTIONS;
    char *line = malloc(LINE_BYTES_MAX);
    options.timeout_ms = count > 2 ? atoi(arguments[2]) : 0;
    options.resend_ms = count > 3 ? atoi(arguments[3]) : 0;
    options.key_file = count == 5 ? arguments[4] : NULL;
    options.server_key = count > 6 ? arguments[4] : NULL;
    options.public_key = count > 6 ? arguments[5] : NULL;
    options.secret_key = count > 6 ? arguments[6] : NULL;
    if (is_ok(quoth_connect(arguments[1], &options, &client, &error))) {
        printf(".\n");
        fflush(stdout);
        while (fgets(line, LINE_BYTES_MAX, stdin)) {
            word_count = 0;
            for (char *word = strtok(line, " \n"); word && word_count < WORDS_MAX; word = strtok(NULL, " \n"))
                words[word_count++] = word;
            for (size_t row = 0; row < sizeof CALLS / sizeof CALLS[0]; row++)
                if (strcmp(CALLS[row].name, words[0]) == 0) CALLS[row].run();
            make_group_call();
            printf(".\n");
            fflush(stdout);
        }
        end_group_calls();
        quoth_close(client);
    }
    free(line);
    return 0;
}
