/* The calls of a client that concern a group as a whole. */

#include <string.h>

#include "client.h"

/* ---- names and places ---- */

int quoth_check_group(const char *group, quoth_error *error) {
    size_t size = group ? strlen(group) : 0;
    if (size >= 1 && size <= QUOTH_GROUP_BYTES_MAX) return QUOTH_OK;
    return quoth_fail(error, QUOTH_BAD_GROUP, NULL, "a group's name of %zu bytes", size);
}

int quoth_group_place(uint64_t pointer, int64_t *place, quoth_error *error) {
    *place = pointer == QUOTH_NEWEST ? -1 : (int64_t)pointer;
    if (pointer == QUOTH_NEWEST || pointer <= QUOTH_BATCH_POINTER_MAX) return QUOTH_OK;
    return quoth_fail(error, QUOTH_BAD_POINTER, NULL, "a pointer above 2^56 - 1");
}

/* ---- settings ---- */

static const quoth_group_settings NO_SETTINGS = QUOTH_GROUP_SETTINGS;
static const char *const MODES[] = {"", "at_least_once", "at_most_once", "cursor"};

enum { MODES_COUNT = sizeof MODES / sizeof MODES[0] };

static void pack_words(quoth_packer *packer, const quoth_group_settings *settings, uint8_t *pairs) {
    if (settings->mode) {
        ++*pairs;
        quoth_pack_text(packer, quoth_span_of("mode"));
        quoth_pack_text(packer, quoth_span_of(settings->mode > 0 && settings->mode < MODES_COUNT ? MODES[settings->mode]
                                                                                                 : "?"));
    }
    if (settings->durability != QUOTH_DEFAULT) {
        ++*pairs;
        quoth_pack_text(packer, quoth_span_of("durability"));
        quoth_pack_text(packer, quoth_durability_text(settings->durability));
    }
    if (settings->dead_letter.data) {
        ++*pairs;
        quoth_pack_text(packer, quoth_span_of("dead_letter"));
        quoth_pack_text(packer, (quoth_span){settings->dead_letter.data, settings->dead_letter.size});
    }
}

static void pack_numbers(quoth_packer *packer, const quoth_group_settings *settings, uint8_t *pairs) {
    if (settings->lease_s >= 0) {
        ++*pairs;
        quoth_pack_text(packer, quoth_span_of("lease"));
        quoth_pack_float(packer, settings->lease_s);
    }
    if (settings->max_in_flight >= 0) {
        ++*pairs;
        quoth_pack_text(packer, quoth_span_of("max_in_flight"));
        quoth_pack_signed(packer, settings->max_in_flight);
    }
    if (settings->max_attempts >= 0) {
        ++*pairs;
        quoth_pack_text(packer, quoth_span_of("max_attempts"));
        quoth_pack_signed(packer, settings->max_attempts);
    }
    if (settings->key_order >= 0) {
        ++*pairs;
        quoth_pack_text(packer, quoth_span_of("key_order"));
        quoth_pack_flag(packer, settings->key_order);
    }
    if (settings->backoff_count) {
        ++*pairs;
        quoth_pack_text(packer, quoth_span_of("backoff"));
        quoth_pack_list(packer, (uint32_t)settings->backoff_count);
        for (size_t step = 0; step < settings->backoff_count; step++)
            quoth_pack_float(packer, settings->backoff_s[step]);
    }
}

int quoth_pack_group_settings(const quoth_group_settings *given, uint8_t *buffer, quoth_span *packed,
                              quoth_error *error) {
    quoth_group_settings settings = NO_SETTINGS;
    quoth_packer packer = {buffer + 1, buffer + QUOTH_GROUP_SETTINGS_BYTES, 0}; /* behind the head of a map */
    uint8_t pairs = 0;
    if (given) memcpy(&settings, given, given->size < sizeof settings ? given->size : sizeof settings);
    if (settings.backoff_count > QUOTH_BACKOFF_MAX)
        return quoth_fail(error, QUOTH_BAD_SETTING, NULL, "backoff of %zu steps, at most %d", settings.backoff_count,
                          QUOTH_BACKOFF_MAX);
    if (settings.dead_letter.size > QUOTH_NAME_BYTES_MAX)
        return quoth_fail(error, QUOTH_BAD_SETTING, NULL, "dead_letter of %zu bytes, at most %u",
                          settings.dead_letter.size, QUOTH_NAME_BYTES_MAX);
    pack_words(&packer, &settings, &pairs);
    pack_numbers(&packer, &settings, &pairs);
    buffer[0] = (uint8_t)(0x80 | pairs);
    *packed = (quoth_span){buffer, (size_t)(packer.at - buffer)};
    return QUOTH_OK;
}

static double real_of(const quoth_value *value) {
    return value->kind == QUOTH_FLOAT ? value->real : value->kind == QUOTH_UNSIGNED ? (double)value->number : -1;
}

static void take_backoff(quoth_group_settings *settings, quoth_span found) {
    quoth_value head, step;
    if (!quoth_unpack(&found, &head) || head.kind != QUOTH_LIST) return;
    for (uint64_t left = head.number; left && settings->backoff_count < QUOTH_BACKOFF_MAX; left--)
        if (quoth_unpack(&found, &step)) settings->backoff_s[settings->backoff_count++] = real_of(&step);
}

static void take_setting(quoth_group_settings *settings, quoth_span name, quoth_span found) {
    quoth_span whole = found;
    quoth_value value;
    if (!quoth_unpack(&found, &value)) return;
    int64_t number = value.kind == QUOTH_UNSIGNED ? (int64_t)value.number : -1;
    quoth_span text = value.kind == QUOTH_TEXT ? value.bytes : (quoth_span){NULL, 0};
    if (quoth_is_text(name, "backoff")) take_backoff(settings, whole);
    if (quoth_is_text(name, "lease")) settings->lease_s = real_of(&value);
    if (quoth_is_text(name, "max_in_flight")) settings->max_in_flight = number;
    if (quoth_is_text(name, "max_attempts")) settings->max_attempts = number;
    if (quoth_is_text(name, "key_order")) settings->key_order = value.kind == QUOTH_FLAG && value.number;
    if (quoth_is_text(name, "durability")) settings->durability = quoth_durability_of(text);
    if (quoth_is_text(name, "dead_letter")) settings->dead_letter = (quoth_bytes){text.bytes, text.size};
    for (int mode = 1; mode < MODES_COUNT; mode++)
        if (quoth_is_text(name, "mode") && quoth_is_text(text, MODES[mode])) settings->mode = mode;
}

/* ---- one group ---- */

static void take_info(const quoth_msg_group_info *found, quoth_group_info *info) {
    quoth_span settings = found->settings, name, value;
    quoth_value head;
    memset(info, 0, sizeof *info);
    quoth_copy_text(info->name, sizeof info->name, found->group);
    quoth_copy_text(info->problem, sizeof info->problem, found->problem);
    info->log = found->log;
    info->generation = found->generation;
    info->paused = found->paused != 0;
    info->after = found->after;
    info->cursor = found->cursor;
    info->lag = found->lag;
    info->oldest = found->oldest;
    info->newest = found->newest;
    info->in_flight = found->in_flight;
    info->pending = found->pending;
    info->redelivered = found->redelivered;
    info->dead = found->dead;
    info->gone = found->gone;
    info->idle_s = found->idle;
    info->members = (quoth_bytes){found->members.bytes, found->members.size};
    info->settings = NO_SETTINGS;
    if (!quoth_unpack(&settings, &head)) return;
    while (quoth_pair_next(&settings, &name, &value)) take_setting(&info->settings, name, value);
}

int quoth_next_member(quoth_bytes *members, uint32_t *left, quoth_member *member) {
    quoth_span rest = {members->data, members->size}, name, found;
    quoth_value head, value;
    *member = (quoth_member){{NULL, 0}, 0, 0};
    if (*left == UINT32_MAX) *left = quoth_unpack(&rest, &head) ? (uint32_t)head.number : 0;
    if (!*left || !quoth_unpack(&rest, &head)) return 0;
    for (uint64_t pairs = head.number; pairs && quoth_pair_next(&rest, &name, &found); pairs--) {
        if (!quoth_unpack(&found, &value)) return 0;
        if (quoth_is_text(name, "name") && value.kind == QUOTH_TEXT)
            member->name = (quoth_bytes){value.bytes.bytes, value.bytes.size};
        if (quoth_is_text(name, "in_flight") && value.kind == QUOTH_UNSIGNED) member->in_flight = value.number;
        if (quoth_is_text(name, "idle")) member->idle_s = real_of(&value);
    }
    --*left;
    *members = (quoth_bytes){rest.bytes, rest.size};
    return 1;
}

static int begin(quoth_client *client, unsigned operation, const char *topic, const char *group, quoth_error *error) {
    int code = quoth_check_group(group, error);
    if (!code) code = quoth_client_begin_topic(client, operation, topic, error);
    if (!code) client->request.message.group_name.group = quoth_span_of(group); /* the first field of all of them */
    return code;
}

/* Settles a request that the state of a group answers. */
static int settle(quoth_client *client, quoth_group_info *info, quoth_error *error) {
    int code = quoth_client_settle(client, error);
    if (!code && info) take_info(&client->request.message.group_info, info);
    return code;
}

int quoth_group_create(quoth_client *client, const char *topic, const char *group, uint64_t start,
                       const quoth_group_settings *settings, quoth_group_info *info, quoth_error *error) {
    uint8_t buffer[QUOTH_GROUP_SETTINGS_BYTES];
    int code = begin(client, QUOTH_OP_OPEN_GROUP, topic, group, error);
    if (code) return code;
    quoth_msg_open_group *open = &client->request.message.open_group;
    code = quoth_group_place(start, &open->start, error);
    if (!code) code = quoth_pack_group_settings(settings, buffer, &open->settings, error);
    return code ? code : settle(client, info, error);
}

int quoth_group_describe(quoth_client *client, const char *topic, const char *group, quoth_group_info *info,
                         quoth_error *error) {
    int code = begin(client, QUOTH_OP_DESCRIBE_GROUP, topic, group, error);
    return code ? code : settle(client, info, error);
}

static int update(quoth_client *client, const char *topic, const char *group, const quoth_group_settings *settings,
                  int64_t paused, quoth_group_info *info, quoth_error *error) {
    uint8_t buffer[QUOTH_GROUP_SETTINGS_BYTES];
    int code = begin(client, QUOTH_OP_UPDATE_GROUP, topic, group, error);
    if (code) return code;
    quoth_msg_update_group *message = &client->request.message.update_group;
    message->paused = paused;
    code = quoth_pack_group_settings(settings, buffer, &message->settings, error);
    return code ? code : settle(client, info, error);
}

int quoth_group_update(quoth_client *client, const char *topic, const char *group, const quoth_group_settings *settings,
                       quoth_group_info *info, quoth_error *error) {
    return update(client, topic, group, settings, -1, info, error);
}

int quoth_group_pause(quoth_client *client, const char *topic, const char *group, quoth_group_info *info,
                      quoth_error *error) {
    return update(client, topic, group, NULL, 1, info, error);
}

int quoth_group_resume(quoth_client *client, const char *topic, const char *group, quoth_group_info *info,
                       quoth_error *error) {
    return update(client, topic, group, NULL, 0, info, error);
}

int quoth_group_seek(quoth_client *client, const char *topic, const char *group, uint64_t after, quoth_group_info *info,
                     quoth_error *error) {
    int code = begin(client, QUOTH_OP_SEEK_GROUP, topic, group, error);
    if (!code) code = quoth_group_place(after, &client->request.message.seek_group.after, error);
    return code ? code : settle(client, info, error);
}

int quoth_group_delete(quoth_client *client, const char *topic, const char *group, quoth_group_info *info,
                       quoth_error *error) {
    int code = quoth_group_describe(client, topic, group, info, error);
    if (code) return code;
    code = begin(client, QUOTH_OP_DELETE_GROUP, topic, group, error);
    if (!code) code = settle(client, info, error);
    if (code != QUOTH_UNKNOWN_GROUP || client->request.unanswered <= 0) return code;
    if (info) info->members = info->settings.dead_letter = (quoth_bytes){NULL, 0}; /* they are not there any more */
    quoth_no_error(error); /* a request without an answer did it */
    return QUOTH_OK;
}

int quoth_group_commit(quoth_client *client, const char *topic, const char *group, uint64_t pointer, uint64_t generation,
                       quoth_group_info *info, quoth_error *error) {
    int code = begin(client, QUOTH_OP_COMMIT_CURSOR, topic, group, error);
    if (code) return code;
    client->request.message.commit_cursor.pointer = pointer;
    client->request.message.commit_cursor.generation = generation;
    return settle(client, info, error);
}

/* ---- lists ---- */

/* Copies the name of the next group in a list of maps. */
static int next_name(quoth_span *groups, char *to) {
    quoth_value head, value;
    quoth_span name, found;
    if (!quoth_unpack(groups, &head)) return 0;
    int is_named = 0;
    for (uint64_t pairs = head.number; pairs; pairs--) {
        if (!quoth_pair_next(groups, &name, &found) || !quoth_unpack(&found, &value)) return 0;
        if (!quoth_is_text(name, "group") || value.kind != QUOTH_TEXT) continue;
        quoth_copy_text(to, QUOTH_NAME_BYTES_MAX + 1, value.bytes);
        is_named = 1;
    }
    return is_named;
}

int quoth_group_list(quoth_client *client, const char *topic, quoth_on_topic on_group, void *context,
                     quoth_error *error) {
    char last[QUOTH_NAME_BYTES_MAX + 1] = "";
    int64_t deadline = quoth_later(quoth_now(), client->channel.link.shared->timeout_ms);
    for (;;) {
        quoth_value head;
        int code = quoth_client_begin_topic(client, QUOTH_OP_LIST_GROUPS, topic, error);
        if (code) return code;
        client->request.deadline = deadline;
        client->request.message.list.after = quoth_span_of(last);
        code = quoth_client_settle(client, error);
        if (code) return code;
        quoth_span groups = client->request.message.groups.groups;
        if (!quoth_unpack(&groups, &head) || !head.number) return QUOTH_OK;
        for (uint64_t left = head.number; left; left--)
            if (!next_name(&groups, last) || on_group(context, last)) return QUOTH_OK;
    }
}

/* Hands out the ranges of one reply that lie above `*last`, and moves it. Returns 1 if there may be more. */
static int hand_out_pending(const quoth_msg_pending *found, quoth_on_pending on_pending, void *context,
                            uint64_t *last) {
    quoth_span ranges = found->ranges, members = found->members;
    quoth_value head, member;
    uint64_t row[5], before = *last;
    if (!quoth_unpack(&members, &head) || !quoth_unpack(&ranges, &head)) return 0;
    for (uint64_t left = head.number; left && quoth_row_next(&ranges, 5, row); left--) {
        if (!quoth_unpack(&members, &member) || row[1] <= *last) return 0;
        quoth_pending pending = {row[0], row[1], row[2], row[3], {member.bytes.bytes, member.bytes.size}};
        *last = row[1];
        if (on_pending(context, &pending)) return 0;
    }
    return *last > before;
}

int quoth_group_list_pending(quoth_client *client, const char *topic, const char *group, quoth_on_pending on_pending,
                             void *context, quoth_error *error) {
    uint64_t last = 0;
    int64_t deadline = quoth_later(quoth_now(), client->channel.link.shared->timeout_ms);
    do {
        int code = begin(client, QUOTH_OP_LIST_PENDING, topic, group, error);
        if (code) return code;
        client->request.deadline = deadline;
        client->request.message.list_pending.after = last;
        code = quoth_client_settle(client, error);
        if (code) return code;
    } while (hand_out_pending(&client->request.message.pending, on_pending, context, &last));
    return QUOTH_OK;
}
