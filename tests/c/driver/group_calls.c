/* The calls of consumer groups, for calls.c. One member is kept open between the calls. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

enum { LEASES_MAX = 10000, FLUSH_MS = 20000 };

static quoth_group *member;
static quoth_lease leases[LEASES_MAX];
static size_t leases_count;

/* ---- the whole group ---- */

static void print_info(int code, const quoth_group_info *info) {
    const quoth_group_settings *settings = &info->settings;
    quoth_bytes members = info->members;
    quoth_member one;
    uint32_t left = UINT32_MAX;
    if (!is_ok(code)) return;
    printf("ok %" PRIu64 " %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
           " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", info->generation, info->paused, info->after, info->cursor, info->lag,
           info->oldest, info->newest, info->in_flight, info->pending, info->redelivered, info->dead, info->gone,
           info->log);
    printf("settings %d %.17g %" PRId64 " %" PRId64 " %d %d %.*s", settings->mode, settings->lease_s,
           settings->max_in_flight, settings->max_attempts, settings->key_order, settings->durability,
           (int)settings->dead_letter.size, (const char *)settings->dead_letter.data);
    for (size_t step = 0; step < settings->backoff_count; step++) printf(" %.17g", settings->backoff_s[step]);
    printf("\nproblem %s\n", info->problem);
    while (quoth_next_member(&members, &left, &one))
        printf("member %.*s %" PRIu64 " %d\n", (int)one.name.size, (const char *)one.name.data, one.in_flight,
               one.idle_s >= 0);
}

/* NAME=VALUE of a setting. */
static void take_setting(quoth_group_settings *settings, char *word) {
    static const char *const MODES[] = {"", "at_least_once", "at_most_once", "cursor"};
    char *value = strchr(word, '=');
    *value++ = 0;
    if (strcmp(word, "lease") == 0) settings->lease_s = strtod(value, NULL);
    if (strcmp(word, "max_in_flight") == 0) settings->max_in_flight = strtoll(value, NULL, 10);
    if (strcmp(word, "max_attempts") == 0) settings->max_attempts = strtoll(value, NULL, 10);
    if (strcmp(word, "key_order") == 0) settings->key_order = atoi(value);
    if (strcmp(word, "durability") == 0) settings->durability = atoi(value);
    if (strcmp(word, "dead_letter") == 0) settings->dead_letter = quoth_text(value);
    for (int mode = 1; mode < 4; mode++)
        if (strcmp(word, "mode") == 0 && strcmp(value, MODES[mode]) == 0) settings->mode = mode;
    for (char *step = strcmp(word, "backoff") ? NULL : value; step; step = strchr(step, ',') ? strchr(step, ',') + 1 : NULL)
        if (++settings->backoff_count <= QUOTH_BACKOFF_MAX)
            settings->backoff_s[settings->backoff_count - 1] = strtod(step, NULL);
}

static quoth_group_settings settings_from(size_t word) {
    quoth_group_settings settings = QUOTH_GROUP_SETTINGS;
    for (; word < word_count; word++) take_setting(&settings, words[word]);
    return settings;
}

static uint64_t place(size_t word) { return strcmp(words[word], "end") ? number(word) : QUOTH_NEWEST; }

/* group TOPIC GROUP START NAME=VALUE ... */
static void create(void) {
    quoth_group_settings settings = settings_from(4);
    quoth_group_info info;
    print_info(quoth_group_create(client, text(1), text(2), place(3), &settings, &info, &error), &info);
}

/* group_update TOPIC GROUP NAME=VALUE ... */
static void update(void) {
    quoth_group_settings settings = settings_from(3);
    quoth_group_info info;
    print_info(quoth_group_update(client, text(1), text(2), &settings, &info, &error), &info);
}

static void describe(void) {
    quoth_group_info info;
    print_info(quoth_group_describe(client, text(1), text(2), &info, &error), &info);
}

static void pause_group(void) {
    quoth_group_info info;
    print_info(quoth_group_pause(client, text(1), text(2), &info, &error), &info);
}

static void resume(void) {
    quoth_group_info info;
    print_info(quoth_group_resume(client, text(1), text(2), &info, &error), &info);
}

static void delete_group(void) {
    quoth_group_info info;
    print_info(quoth_group_delete(client, text(1), text(2), &info, &error), &info);
}

static void seek(void) {
    quoth_group_info info;
    print_info(quoth_group_seek(client, text(1), text(2), place(3), &info, &error), &info);
}

/* group_commit TOPIC GROUP POINTER [GENERATION] */
static void commit(void) {
    quoth_group_info info;
    print_info(quoth_group_commit(client, text(1), text(2), number(3), number(4), &info, &error), &info);
}

static int print_name(void *context, const char *name) {
    (void)context;
    printf("group %s\n", name);
    return 0;
}

static void list(void) { is_ok(quoth_group_list(client, text(1), print_name, NULL, &error)); }

static int print_pending(void *context, const quoth_pending *pending) {
    (void)context;
    printf("range %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %.*s\n", pending->first, pending->last,
           pending->attempts, pending->milliseconds, (int)pending->member.size, (const char *)pending->member.data);
    return 0;
}

static void list_pending(void) {
    is_ok(quoth_group_list_pending(client, text(1), text(2), print_pending, NULL, &error));
}

/* ---- the member ---- */

/* join TOPIC GROUP RECORDS LEASE_MS MEMBER NAME=VALUE ... : in place of the member that is open */
static void join(void) {
    quoth_group_options options = QUOTH_GROUP_OPTIONS;
    quoth_group_settings settings = settings_from(6);
    end_group_calls();
    options.fetch_records = number(3);
    options.lease_ms = (int64_t)number(4);
    options.member = word_count > 5 ? text(5) : NULL;
    options.settings = &settings;
    options.on_gap = print_gap;
    if (is_ok(quoth_group_open(client, text(1), text(2), &options, &member, &error))) printf("ok\n");
}

/* group_fetch WAIT_MS [COUNT]: hands out all that one fetch brings, or so many records of it */
static void fetch(void) {
    quoth_leased leased;
    uint64_t left = word_count > 2 ? number(2) : UINT64_MAX;
    if (!is_ok(quoth_group_fetch(member, strtoll(words[1], NULL, 10), &error))) return;
    while (left-- && !quoth_group_next(member, &leased)) {
        printf("leased %" PRIu64 " %" PRIu64 " ", leased.message.pointer, leased.attempts);
        print_content(&leased.message);
        leases[leases_count++ % LEASES_MAX] = leased.lease;
    }
}

/* The lease of a range of records that were fetched. */
static quoth_lease lease_of(uint64_t first, uint64_t last) {
    quoth_lease found = {first, last, 0, 0};
    for (size_t row = 0; row < leases_count && row < LEASES_MAX; row++) {
        if (leases[row].last == first) found.first = leases[row].first;
        if (leases[row].last != last) continue;
        found.token = leases[row].token;
        found.generation = leases[row].generation;
    }
    return found;
}

static void flush(void) {
    if (is_ok(quoth_group_flush(member, word_count > 1 && strcmp(words[0], "group_flush") == 0 ? (int64_t)number(1)
                                                                                                 : FLUSH_MS, &error)))
        printf("ok\n");
}

/* group_ack FIRST [LAST], group_nack POINTER DELAY_MS REASON, group_release POINTER, group_extend POINTER LEASE_MS,
 * group_term POINTER REASON. Waits for the answer; with a name that ends in "_only" it does not. */
static void settle(void) {
    quoth_lease lease = lease_of(number(1), number(1));
    size_t reason_at = strncmp(words[0], "group_nack", 10) == 0 ? 3 : 2;
    quoth_bytes reason = word_count > reason_at && strncmp(words[0], "group_ack", 9) ? from_hex(words[reason_at])
                                                                                   : (quoth_bytes){NULL, 0};
    char *given = reason.data ? calloc(1, reason.size + 1) : NULL;
    int code;
    if (given) memcpy(given, reason.data, reason.size);
    if (strncmp(words[0], "group_ack", 9) == 0) {
        if (word_count > 2) lease = lease_of(number(1), number(2));
        code = quoth_group_ack(member, &lease, &error);
    } else if (reason_at == 3) {
        code = quoth_group_nack(member, &lease, strtoll(words[2], NULL, 10), given, &error);
    } else if (strncmp(words[0], "group_release", 13) == 0) {
        code = quoth_group_release(member, &lease, &error);
    } else if (strncmp(words[0], "group_extend", 12) == 0) {
        code = quoth_group_extend(member, &lease, (int64_t)number(2), &error);
    } else {
        code = quoth_group_term(member, &lease, given, &error);
    }
    free(given);
    release(reason);
    if (is_ok(code) && !strstr(words[0], "_only")) flush();
}

static void count(void) {
    quoth_group_counts counts;
    quoth_group_count(member, &counts);
    printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", counts.fetched, counts.finished, counts.late,
           counts.lost);
}

static void leave(void) {
    if (is_ok(quoth_group_leave(member, FLUSH_MS, &error))) printf("ok\n");
}

/* work COUNT WAIT_MS: prints and acknowledges records until there were so many, or none comes for so long, through all
 * outages. */
static void work(void) {
    quoth_leased leased;
    uint64_t left = number(1);
    int code = QUOTH_OK;
    while (left && (!code || quoth_is_retryable(code))) {
        code = quoth_group_fetch(member, (int64_t)number(2), &error);
        if (code) continue;
        while (left && !quoth_group_next(member, &leased)) {
            printf("leased %" PRIu64 " %" PRIu64 "\n", leased.message.pointer, leased.attempts);
            fflush(stdout);
            code = quoth_group_ack(member, &leased.lease, &error);
            left--;
        }
    }
    if (is_ok(code) || code == QUOTH_END) flush();
}

void make_group_call(void) {
    static const struct {
        const char *name;
        void (*run)(void);
    } CALLS[] = {{"group", create}, {"group_update", update}, {"group_info", describe}, {"group_pause", pause_group},
                 {"group_resume", resume}, {"group_delete", delete_group}, {"group_seek", seek},
                 {"group_commit", commit}, {"groups", list}, {"group_pending", list_pending}, {"group_join", join},
                 {"group_fetch", fetch}, {"group_flush", flush}, {"group_ack", settle}, {"group_nack", settle},
                 {"group_release", settle}, {"group_extend", settle}, {"group_term", settle},
                 {"group_ack_only", settle}, {"group_nack_only", settle}, {"group_release_only", settle},
                 {"group_extend_only", settle}, {"group_term_only", settle},
                 {"group_count", count}, {"group_leave", leave}, {"group_work", work}};
    for (size_t row = 0; row < sizeof CALLS / sizeof CALLS[0]; row++)
        if (strcmp(CALLS[row].name, words[0]) == 0) CALLS[row].run();
}

void end_group_calls(void) {
    quoth_group_close(member);
    member = NULL;
    leases_count = 0;
}
