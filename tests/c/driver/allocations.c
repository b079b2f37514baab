/* Makes the same calls again and again, of whose allocations the first, the second, ... fails, until none does.
 *
 *     allocations URL TOPIC [KEY_FILE]
 *
 * Prints how many there are. Each call has to succeed or to be out of memory. Built with --wrap for the functions. */

#include <stdio.h>
#include <stdlib.h>

#include "quoth.h"
#include "records_by_number.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

enum { RECORDS = 300, BATCH = 50, LEASED = 20 };

static long allocations, failing;

static int fails(void) { return ++allocations == failing; }

void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }

void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }

void *__wrap_realloc(void *memory, size_t size) { return fails() ? NULL : __real_realloc(memory, size); }

static void check(const char *what, int code, const quoth_error *error) {
    if (code <= 0 || code == QUOTH_OUT_OF_MEMORY) return;
    printf("%s: %s: %s, allocation %ld\n", what, error->name, error->text, failing);
    exit(1);
}

static void publish(quoth_client *client, const char *topic) {
    quoth_record records[BATCH];
    static numbered ones[BATCH];
    quoth_error error;
    for (uint64_t i = 0; i < BATCH; i++) records[i] = *make_numbered(&ones[i], i);
    check("publish", quoth_publish(client, topic, records, BATCH, QUOTH_DEFAULT, NULL, &error), &error);
}

static void produce(quoth_client *client, const char *topic) {
    quoth_producer_options options = QUOTH_PRODUCER_OPTIONS;
    quoth_producer *producer;
    quoth_error error;
    numbered one;
    options.batch_records = BATCH;
    int code = quoth_producer_open(client, topic, &options, &producer, &error);
    check("open", code, &error);
    if (code) return;
    for (uint64_t i = 0; i < RECORDS; i++)
        check("send", quoth_producer_send(producer, make_numbered(&one, i), &error), &error);
    while ((code = quoth_producer_flush(producer, 10000, &error)) == QUOTH_OUT_OF_MEMORY) continue;
    check("flush", code, &error);
    quoth_producer_close(producer);
}

static void read_all(quoth_client *client, const char *topic) {
    quoth_reader *reader;
    quoth_message message;
    quoth_error error;
    int code = quoth_reader_open(client, topic, NULL, &reader, &error);
    check("open", code, &error);
    if (code) return;
    for (int count = 0; count < RECORDS && !(code = quoth_read(reader, 0, &message, &error)); count++) continue;
    check("read", code, &error);
    quoth_reader_close(reader);
}

static void stage(quoth_client *client, const char *topic) {
    quoth_part *part;
    quoth_staged staged;
    quoth_error error;
    numbered one;
    int code = quoth_part_open(client, topic, "allocations", 1, 0, &part, &error);
    check("part", code, &error);
    if (code) return;
    for (uint64_t i = 0; i < BATCH; i++) {
        check("write", quoth_part_write(part, make_numbered(&one, i), &error), &error);
        if (i % 10 == 0) check("flush", quoth_part_flush(part, &error), &error);
    }
    check("finish", quoth_part_finish(part, &staged, &error), &error);
    quoth_part_close(part);
}

static void consume(quoth_client *client, const char *topic) {
    quoth_group *member;
    quoth_group_options options = QUOTH_GROUP_OPTIONS;
    quoth_leased leased;
    quoth_error error;
    int left = LEASED, code;
    options.fetch_records = 10;
    code = quoth_group_open(client, topic, "allocations", &options, &member, &error);
    check("join", code, &error);
    if (code) return;
    while (left > 0 && (!(code = quoth_group_fetch(member, 0, &error)) || code == QUOTH_OUT_OF_MEMORY))
        for (; !quoth_group_next(member, &leased); left--) {
            check("extend", quoth_group_extend(member, &leased.lease, 1000, &error), &error);
            if (left % 10 == 5)
                check("release", quoth_group_release(member, &leased.lease, &error), &error);
            else
                check("ack", quoth_group_ack(member, &leased.lease, &error), &error);
        }
    check("group fetch", code, &error);
    check("fetch to release", quoth_group_fetch(member, 0, &error), &error);
    check("leave", quoth_group_leave(member, 10000, &error), &error);
    quoth_group_close(member);
}

int main(int count, char **arguments) {
    quoth_client *client;
    quoth_options options = QUOTH_OPTIONS;
    quoth_error error;
    if (count != 3 && count != 4) return 2;
    options.key_file = count == 4 ? arguments[3] : NULL;
    do {
        failing++;
        allocations = 0;
        int code = quoth_connect(arguments[1], &options, &client, &error);
        check("connect", code, &error);
        if (code) continue;
        publish(client, arguments[2]);
        produce(client, arguments[2]);
        read_all(client, arguments[2]);
        stage(client, arguments[2]);
        consume(client, arguments[2]);
        quoth_close(client);
    } while (allocations >= failing);
    printf("%ld allocations\n", failing - 1);
    return 0;
}
