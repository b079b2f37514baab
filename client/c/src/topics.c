/* The calls of a client that concern a topic as a whole, and ranges of its records. */

#include <string.h>

#include "client.h"

/* ---- settings ---- */

static const quoth_settings NO_SETTINGS = QUOTH_SETTINGS;

enum { SETTINGS_BYTES = 256, SETTINGS_COUNT = 6 };

/* Encodes the settings that are given. buffer: of SETTINGS_BYTES. */
static quoth_span pack_settings(const quoth_settings *given, uint8_t *buffer) {
    quoth_settings settings = NO_SETTINGS;
    if (given) memcpy(&settings, given, given->size < sizeof settings ? given->size : sizeof settings);
    const struct {
        const char *name;
        int64_t number;
    } numbers[] = {{"max_bytes", settings.max_bytes},
                   {"size_limit", settings.size_limit},
                   {"count_limit", settings.count_limit}};
    const struct {
        const char *name;
        double seconds;
    } spans[] = {{"max_age", settings.max_age_s}, {"age_limit", settings.age_limit_s}};
    quoth_packer packer = {buffer + 1, buffer + SETTINGS_BYTES, 0}; /* behind the head of a map */
    uint8_t pairs = 0;
    if (settings.durability != QUOTH_DEFAULT) {
        pairs++;
        quoth_pack_text(&packer, quoth_span_of("durability"));
        quoth_pack_text(&packer, quoth_durability_text(settings.durability));
    }
    for (int row = 0; row < 3; row++)
        if (numbers[row].number >= 0) {
            pairs++;
            quoth_pack_text(&packer, quoth_span_of(numbers[row].name));
            quoth_pack_signed(&packer, numbers[row].number);
        }
    for (int row = 0; row < 2; row++)
        if (spans[row].seconds >= 0) {
            pairs++;
            quoth_pack_text(&packer, quoth_span_of(spans[row].name));
            quoth_pack_float(&packer, spans[row].seconds);
        }
    buffer[0] = (uint8_t)(0x80 | pairs);
    return (quoth_span){buffer, (size_t)(packer.at - buffer)};
}

static void take_setting(quoth_settings *settings, quoth_span name, const quoth_value *value) {
    int64_t number = value->kind == QUOTH_UNSIGNED ? (int64_t)value->number : -1;
    double seconds = value->kind == QUOTH_FLOAT ? value->real : (double)number;
    if (quoth_is_text(name, "durability")) settings->durability = quoth_durability_of(value->bytes);
    if (quoth_is_text(name, "max_age")) settings->max_age_s = seconds;
    if (quoth_is_text(name, "max_bytes")) settings->max_bytes = number;
    if (quoth_is_text(name, "size_limit")) settings->size_limit = number;
    if (quoth_is_text(name, "count_limit")) settings->count_limit = number;
    if (quoth_is_text(name, "age_limit")) settings->age_limit_s = seconds;
}

/* Reads the settings of a reply. Those of a later broker are ignored. */
static void unpack_settings(quoth_span map, quoth_settings *settings) {
    quoth_value head, value;
    quoth_span name, found;
    *settings = NO_SETTINGS;
    if (!quoth_unpack(&map, &head)) return;
    for (uint64_t left = head.number; left && quoth_pair_next(&map, &name, &found); left--) {
        if (!quoth_unpack(&found, &value)) return;
        if (value.kind != QUOTH_TEXT) value.bytes = (quoth_span){NULL, 0};
        take_setting(settings, name, &value);
    }
}

/* ---- one topic ---- */

static void take_topic(const quoth_msg_topic *found, quoth_topic *info) {
    if (!info) return;
    memset(info, 0, sizeof *info);
    quoth_copy_text(info->name, sizeof info->name, found->name);
    quoth_copy_text(info->problem, sizeof info->problem, found->problem);
    info->log = found->log;
    info->first = found->first;
    info->last = found->last;
    info->count = found->count;
    info->first_ordinal = found->first_ordinal;
    info->bytes = found->bytes;
    info->segments = found->segments;
    info->counters = (quoth_bytes){found->counters.bytes, found->counters.size};
    unpack_settings(found->settings, &info->settings);
}

/* Sends a request that a description answers. */
static int ask_topic(quoth_client *client, unsigned operation, const char *topic, const quoth_settings *settings,
                     quoth_topic *info, quoth_error *error) {
    uint8_t buffer[SETTINGS_BYTES];
    int code = quoth_client_begin_topic(client, operation, topic, error);
    if (code) return code;
    if (operation == QUOTH_OP_CREATE || operation == QUOTH_OP_UPDATE)
        client->request.message.settings.settings = pack_settings(settings, buffer);
    code = quoth_client_settle(client, error);
    if (!code) take_topic(&client->request.message.topic, info);
    return code;
}

int quoth_describe(quoth_client *client, const char *topic, quoth_topic *info, quoth_error *error) {
    return ask_topic(client, QUOTH_OP_DESCRIBE, topic, NULL, info, error);
}

int quoth_roll(quoth_client *client, const char *topic, quoth_topic *info, quoth_error *error) {
    return ask_topic(client, QUOTH_OP_ROLL, topic, NULL, info, error);
}

int quoth_update(quoth_client *client, const char *topic, const quoth_settings *settings, quoth_topic *info,
                 quoth_error *error) {
    return ask_topic(client, QUOTH_OP_UPDATE, topic, settings, info, error);
}

static int is_given(const quoth_settings *given, const quoth_settings *found) {
    quoth_settings settings = NO_SETTINGS;
    if (given) memcpy(&settings, given, given->size < sizeof settings ? given->size : sizeof settings);
    return (settings.durability == QUOTH_DEFAULT || settings.durability == found->durability)
           && (settings.max_bytes < 0 || settings.max_bytes == found->max_bytes)
           && (settings.size_limit < 0 || settings.size_limit == found->size_limit)
           && (settings.count_limit < 0 || settings.count_limit == found->count_limit)
           && (settings.max_age_s < 0 || !(settings.max_age_s < found->max_age_s || settings.max_age_s > found->max_age_s))
           && (settings.age_limit_s < 0
               || !(settings.age_limit_s < found->age_limit_s || settings.age_limit_s > found->age_limit_s));
}

int quoth_create(quoth_client *client, const char *topic, const quoth_settings *settings, quoth_topic *info,
                 quoth_error *error) {
    quoth_topic found;
    int code = ask_topic(client, QUOTH_OP_CREATE, topic, settings, info, error);
    if (code != QUOTH_TOPIC_EXISTS || client->request.unanswered <= 0) return code;
    /* A copy without an answer may have created it: then the topic has the given settings. */
    quoth_error ignored;
    if (quoth_describe(client, topic, &found, &ignored) || !is_given(settings, &found.settings)) return code;
    if (info) *info = found;
    quoth_no_error(error);
    return QUOTH_OK;
}

static void take_removed(const quoth_msg_trimmed *found, quoth_removed *removed) {
    if (removed) *removed = (quoth_removed){found->records, found->bytes, found->first};
}

int quoth_delete(quoth_client *client, const char *topic, quoth_removed *removed, quoth_error *error) {
    static const quoth_msg_trimmed NOTHING = {0, 0, 0};
    quoth_topic found;
    int code = quoth_describe(client, topic, &found, error);
    if (code) return code;
    quoth_client_begin(client, QUOTH_OP_DELETE, topic);
    client->request.message.delete_topic.log = found.log;
    code = quoth_client_settle(client, error);
    if (code == QUOTH_UNKNOWN_TOPIC && client->request.unanswered > 0) { /* a request without an answer did it */
        quoth_no_error(error);
        take_removed(&NOTHING, removed);
        return QUOTH_OK;
    }
    if (!code) take_removed(&client->request.message.trimmed, removed);
    return code;
}

int quoth_trim(quoth_client *client, const char *topic, uint64_t before, quoth_removed *removed, quoth_error *error) {
    int code = quoth_client_begin_topic(client, QUOTH_OP_TRIM, topic, error);
    if (code) return code;
    client->request.message.trim.before = before;
    code = quoth_client_settle(client, error);
    if (!code) take_removed(&client->request.message.trimmed, removed);
    return code;
}

/* ---- the list of topics ---- */

/* Hands out the names of one reply. Returns how many; `last` is the last one. ends: 1 if the caller wants no more. */
static uint64_t hand_out(quoth_span names, quoth_on_topic on_topic, void *context, char *last, int *ends) {
    quoth_value head, name;
    quoth_unpack(&names, &head);
    for (uint64_t left = head.number; left && !*ends; left--) {
        quoth_unpack(&names, &name);
        quoth_copy_text(last, QUOTH_NAME_BYTES_MAX + 1, name.bytes);
        *ends = on_topic(context, last);
    }
    return head.number;
}

int quoth_list(quoth_client *client, quoth_on_topic on_topic, void *context, quoth_error *error) {
    char last[QUOTH_NAME_BYTES_MAX + 1] = "";
    int ends = 0;
    int64_t deadline = quoth_later(quoth_now(), client->channel.link.shared->timeout_ms);
    for (;;) {
        quoth_client_begin(client, QUOTH_OP_LIST, NULL);
        client->request.deadline = deadline;
        client->request.message.list.after = quoth_span_of(last);
        int code = quoth_client_settle(client, error);
        if (code) return code;
        if (!hand_out(client->request.message.topics.names, on_topic, context, last, &ends) || ends) return QUOTH_OK;
    }
}

/* Hands out the states of one reply, as hand_out does names. */
static uint64_t hand_out_states(quoth_span states, quoth_on_states on_states, void *context, char *last, int *ends) {
    quoth_value head, name, letters;
    quoth_unpack(&states, &head);
    for (uint64_t left = head.number; left && !*ends; left--) {
        if (!quoth_unpack(&states, &name) || !quoth_unpack(&states, &letters) || letters.kind != QUOTH_TEXT) return 0;
        quoth_copy_text(last, QUOTH_NAME_BYTES_MAX + 1, name.bytes);
        *ends = on_states(context, last, (quoth_bytes){letters.bytes.bytes, letters.bytes.size});
    }
    return head.number;
}

int quoth_list_states(quoth_client *client, quoth_on_states on_states, void *context, quoth_error *error) {
    char last[QUOTH_NAME_BYTES_MAX + 1] = "";
    int ends = 0;
    int64_t deadline = quoth_later(quoth_now(), client->channel.link.shared->timeout_ms);
    for (;;) {
        quoth_client_begin(client, QUOTH_OP_STATUS, NULL);
        client->request.deadline = deadline;
        client->request.message.list.after = quoth_span_of(last);
        int code = quoth_client_settle(client, error);
        if (code) return code;
        if (!hand_out_states(client->request.message.status.states, on_states, context, last, &ends) || ends)
            return QUOTH_OK;
    }
}

/* ---- ranges ---- */

int quoth_advance(quoth_client *client, const char *topic, uint64_t after, uint64_t records_max, uint64_t bytes_max,
                  quoth_advanced *advanced, quoth_error *error) {
    int code = quoth_client_begin_topic(client, QUOTH_OP_ADVANCE, topic, error);
    if (code) return code;
    quoth_msg_advance *advance = &client->request.message.advance;
    advance->after = after;
    if (records_max) advance->records_max = records_max;
    if (bytes_max) advance->bytes_max = bytes_max;
    code = quoth_client_settle(client, error);
    const quoth_msg_advanced *found = &client->request.message.advanced;
    if (!code)
        *advanced = (quoth_advanced){{found->after, found->until, found->records, found->bytes},
                                     found->gone, found->newest, found->end};
    return code;
}

int quoth_split(quoth_client *client, const char *topic, uint64_t after, uint64_t until, quoth_range *ranges,
                size_t *count, quoth_error *error) {
    size_t room = *count;
    *count = 0;
    int code = quoth_client_begin_topic(client, QUOTH_OP_SPLIT, topic, error);
    if (code) return code;
    quoth_msg_split *split = &client->request.message.split;
    split->after = after;
    split->until = until;
    split->parts = room;
    code = quoth_client_settle(client, error);
    if (code) return code;
    quoth_span bounds = client->request.message.parts.bounds;
    quoth_value head;
    uint64_t numbers[4];
    quoth_unpack(&bounds, &head);
    for (uint64_t left = head.number; left && *count < room && quoth_row_next(&bounds, 4, numbers); left--)
        ranges[(*count)++] = (quoth_range){numbers[0], numbers[1], numbers[2], numbers[3]};
    return QUOTH_OK;
}

int quoth_count(quoth_client *client, const char *topic, uint64_t after, uint64_t until, quoth_counted *counted,
                quoth_error *error) {
    int code = quoth_client_begin_topic(client, QUOTH_OP_COUNT, topic, error);
    if (code) return code;
    client->request.message.count.after = after;
    client->request.message.count.until = until;
    code = quoth_client_settle(client, error);
    const quoth_msg_counted *found = &client->request.message.counted;
    if (!code)
        *counted = (quoth_counted){found->records, found->bytes,  found->gone, found->first,
                                   found->last,    found->newest, found->end};
    return code;
}
