/* The shapes of codec.h: the fields of each message. */

#include "codec.h"

#define POINTER_MAX QUOTH_BATCH_POINTER_MAX
#define ANY_MAX UINT64_MAX
#define SIGNED_MAX ((uint64_t)INT64_MAX)
#define VERSION_MAX (1ull << 62)

/* Rows of a shape. `type` is the name of the struct behind quoth_msg_. */
#define ROW(type, name, kind, presence, low, high, standard) \
    {#name, sizeof #name - 1, QUOTH_FIELD_##kind, QUOTH_FIELD_##presence, (uint16_t)offsetof(quoth_msg_##type, name), \
     low, high, standard}
#define NUMBER(type, name) ROW(type, name, UNSIGNED, REQUIRED, 0, ANY_MAX, 0)
#define POINTER(type, name) ROW(type, name, UNSIGNED, REQUIRED, 0, POINTER_MAX, 0)
#define RANGE(type, name, low, high, standard) ROW(type, name, UNSIGNED, OPTIONAL, low, high, standard)
#define OTHER(type, name, kind, presence) ROW(type, name, kind, presence, 0, 0, 0)

#define SHAPE(shape, type, is_request) \
    {shape##_fields, sizeof shape##_fields / sizeof shape##_fields[0], sizeof(quoth_msg_##type), is_request}

static const quoth_field error_fields[] = {
    OTHER(error, code, TEXT, REQUIRED), OTHER(error, text, TEXT, REQUIRED), OTHER(error, hint, TEXT, REQUIRED)};
static const quoth_field hello_fields[] = {OTHER(hello, client, TEXT, OPTIONAL)};
static const quoth_field welcome_fields[] = {
    OTHER(welcome, server, TEXT, REQUIRED),
    OTHER(welcome, versions, NUMBERS, REQUIRED),
    OTHER(welcome, operations, TEXTS, REQUIRED),
    OTHER(welcome, limits, MAP, REQUIRED),
    OTHER(welcome, announcements, TEXT, REQUIRED),
    ROW(welcome, announcements_port, UNSIGNED, LATER, 0, 65535, 0)};
static const quoth_field pong_fields[] = {POINTER(pong, time)};
static const quoth_field publish_fields[] = {OTHER(publish, durability, TEXT, OPTIONAL)};
static const quoth_field published_fields[] = {
    NUMBER(published, log),
    POINTER(published, first),
    POINTER(published, last),
    NUMBER(published, count),
    OTHER(published, durability, TEXT, REQUIRED),
    OTHER(published, duplicate, FLAG, REQUIRED)};
static const quoth_field fetch_fields[] = {
    RANGE(fetch, after, 0, POINTER_MAX, 0),
    ROW(fetch, ordinal, SIGNED, OPTIONAL, -1, SIGNED_MAX, -1),
    RANGE(fetch, records_max, 1, 1ull << 32, 1ll << 32),
    RANGE(fetch, bytes_max, 1, 1ull << 32, 1 << 20),
    RANGE(fetch, wait_ms, 0, 600000, 0),
    ROW(fetch, until, UNSIGNED, LATER, 0, POINTER_MAX, 0),
    OTHER(fetch, durability, TEXT, LATER)};
static const quoth_field fetched_fields[] = {
    NUMBER(fetched, log),  POINTER(fetched, next), POINTER(fetched, newest),
    NUMBER(fetched, gone), NUMBER(fetched, end),   RANGE(fetched, damaged, 0, ANY_MAX, 0)};
static const quoth_field list_fields[] = {OTHER(list, after, TEXT, OPTIONAL), RANGE(list, limit, 1, 1000, 1000)};
static const quoth_field topics_fields[] = {OTHER(topics, names, TEXTS, REQUIRED)};
static const quoth_field topic_fields[] = {
    OTHER(topic, name, TEXT, REQUIRED),   NUMBER(topic, log),
    POINTER(topic, first),                POINTER(topic, last),
    NUMBER(topic, count),                 NUMBER(topic, first_ordinal),
    NUMBER(topic, bytes),                 NUMBER(topic, segments),
    OTHER(topic, states, TEXT, REQUIRED), OTHER(topic, settings, MAP, REQUIRED),
    OTHER(topic, problem, TEXT, OPTIONAL), OTHER(topic, counters, MAP, OPTIONAL)};
static const quoth_field settings_fields[] = {OTHER(settings, settings, MAP, OPTIONAL)};
static const quoth_field delete_fields[] = {RANGE(delete, log, 0, ANY_MAX, 0)};
static const quoth_field trim_fields[] = {POINTER(trim, before)};
static const quoth_field trimmed_fields[] = {
    NUMBER(trimmed, records), NUMBER(trimmed, bytes), POINTER(trimmed, first)};
static const quoth_field status_fields[] = {OTHER(list, after, TEXT, OPTIONAL), RANGE(list, limit, 0, 1000, 1000)};
static const quoth_field broker_status_fields[] = {
    OTHER(broker_status, server, TEXT, REQUIRED),
    NUMBER(broker_status, pid),
    OTHER(broker_status, directory, TEXT, REQUIRED),
    OTHER(broker_status, uptime, FLOAT, REQUIRED),
    NUMBER(broker_status, topics),
    NUMBER(broker_status, active),
    NUMBER(broker_status, waits),
    OTHER(broker_status, counters, MAP, REQUIRED),
    OTHER(broker_status, states, MAP, REQUIRED)};
static const quoth_field advance_fields[] = {
    RANGE(advance, after, 0, POINTER_MAX, 0),
    RANGE(advance, records_max, 1, SIGNED_MAX, INT64_MAX),
    RANGE(advance, bytes_max, 1, SIGNED_MAX, INT64_MAX)};
static const quoth_field advanced_fields[] = {
    NUMBER(advanced, log),   POINTER(advanced, after), POINTER(advanced, until),  NUMBER(advanced, records),
    NUMBER(advanced, bytes), NUMBER(advanced, gone),   POINTER(advanced, newest), NUMBER(advanced, end)};
static const quoth_field split_fields[] = {
    RANGE(split, after, 0, POINTER_MAX, 0), RANGE(split, until, 0, POINTER_MAX, (int64_t)POINTER_MAX),
    RANGE(split, parts, 1, 10000, 1)};
static const quoth_field parts_fields[] = {
    NUMBER(parts, log), OTHER(parts, bounds, BOUNDS, REQUIRED), NUMBER(parts, gone), POINTER(parts, newest),
    NUMBER(parts, end)};
static const quoth_field count_fields[] = {
    RANGE(count, after, 0, POINTER_MAX, 0), RANGE(count, until, 0, POINTER_MAX, (int64_t)POINTER_MAX)};
static const quoth_field counted_fields[] = {
    NUMBER(counted, log),    NUMBER(counted, records), NUMBER(counted, bytes),   NUMBER(counted, gone),
    POINTER(counted, first), POINTER(counted, last),   POINTER(counted, newest), NUMBER(counted, end)};
static const quoth_field stage_fields[] = {
    OTHER(stage, application, TEXT, REQUIRED), ROW(stage, version, UNSIGNED, REQUIRED, 0, VERSION_MAX, 0),
    ROW(stage, part, UNSIGNED, REQUIRED, 0, QUOTH_PART_MAX, 0), NUMBER(stage, attempt),
    RANGE(stage, number, 0, QUOTH_TRANSACTION_BATCHES_MAX - 1, 0)};
static const quoth_field staged_fields[] = {
    NUMBER(staged, batches), NUMBER(staged, records), NUMBER(staged, bytes)};
static const quoth_field publish_staged_fields[] = {
    OTHER(publish_staged, application, TEXT, REQUIRED),
    ROW(publish_staged, version, UNSIGNED, REQUIRED, 0, VERSION_MAX, 0),
    ROW(publish_staged, parts, UNSIGNED, REQUIRED, 0, QUOTH_TRANSACTION_BATCHES_MAX, 0),
    ROW(publish_staged, newest, SIGNED, LATER, -2, VERSION_MAX, -2)};
static const quoth_field name_fields[] = {
    OTHER(name, application, TEXT, REQUIRED), ROW(name, version, UNSIGNED, REQUIRED, 0, VERSION_MAX, 0)};
static const quoth_field transaction_fields[] = {
    NUMBER(transaction, log),     OTHER(transaction, state, TEXT, REQUIRED), POINTER(transaction, first),
    POINTER(transaction, last),   NUMBER(transaction, count),                NUMBER(transaction, parts),
    NUMBER(transaction, batches), NUMBER(transaction, records),              NUMBER(transaction, bytes),
    ROW(transaction, newest_version, SIGNED, REQUIRED, -1, VERSION_MAX, 0)};

/* ---- groups ---- */

static const quoth_field open_group_fields[] = {
    OTHER(open_group, group, TEXT, REQUIRED),
    ROW(open_group, start, SIGNED, OPTIONAL, -1, POINTER_MAX, 0),
    OTHER(open_group, settings, MAP, OPTIONAL)};
static const quoth_field group_info_fields[] = {
    NUMBER(group_info, log),
    OTHER(group_info, group, TEXT, REQUIRED),
    OTHER(group_info, settings, MAP, REQUIRED),
    NUMBER(group_info, generation),
    OTHER(group_info, paused, FLAG, REQUIRED),
    POINTER(group_info, after),
    POINTER(group_info, cursor),
    NUMBER(group_info, lag),
    POINTER(group_info, oldest),
    POINTER(group_info, newest),
    NUMBER(group_info, in_flight),
    NUMBER(group_info, pending),
    NUMBER(group_info, redelivered),
    NUMBER(group_info, dead),
    NUMBER(group_info, gone),
    OTHER(group_info, members, MAPS, REQUIRED),
    OTHER(group_info, idle, FLOAT, REQUIRED),
    OTHER(group_info, problem, TEXT, OPTIONAL)};
static const quoth_field group_fetch_fields[] = {
    OTHER(group_fetch, group, TEXT, REQUIRED),
    OTHER(group_fetch, member, TEXT, OPTIONAL),
    RANGE(group_fetch, records_max, 1, 1ull << 32, 100),
    RANGE(group_fetch, bytes_max, 1, 1ull << 32, 1 << 20),
    RANGE(group_fetch, wait_ms, 0, 600000, 0),
    RANGE(group_fetch, lease_ms, 0, QUOTH_SETTLE_MS_MAX, 0)};
static const quoth_field group_fetched_fields[] = {
    NUMBER(group_fetched, log),
    NUMBER(group_fetched, generation),
    OTHER(group_fetched, leases, BOUNDS, REQUIRED),
    NUMBER(group_fetched, lease_ms),
    NUMBER(group_fetched, gone),
    NUMBER(group_fetched, damaged),
    POINTER(group_fetched, newest),
    NUMBER(group_fetched, end)};
static const quoth_field group_settle_fields[] = {
    OTHER(group_settle, group, TEXT, REQUIRED),
    ROW(group_settle, rows, UNSIGNED, REQUIRED, 0, QUOTH_SETTLEMENTS_MAX, 0),
    RANGE(group_settle, generation, 0, ANY_MAX, 0),
    OTHER(group_settle, reason, TEXT, OPTIONAL)};
static const quoth_field group_settled_fields[] = {
    NUMBER(group_settled, records),
    NUMBER(group_settled, late),
    OTHER(group_settled, lost, PAIRS, REQUIRED),
    OTHER(group_settled, durability, TEXT, REQUIRED)};
static const quoth_field group_name_fields[] = {OTHER(group_name, group, TEXT, REQUIRED)};
static const quoth_field list_groups_fields[] = {OTHER(list, after, TEXT, OPTIONAL), RANGE(list, limit, 1, 100, 100)};
static const quoth_field groups_fields[] = {OTHER(groups, groups, MAPS, REQUIRED)};
static const quoth_field update_group_fields[] = {
    OTHER(update_group, group, TEXT, REQUIRED),
    OTHER(update_group, settings, MAP, OPTIONAL),
    ROW(update_group, paused, SIGNED, OPTIONAL, -1, 1, -1)};
static const quoth_field seek_group_fields[] = {
    OTHER(seek_group, group, TEXT, REQUIRED), ROW(seek_group, after, SIGNED, REQUIRED, -1, POINTER_MAX, 0)};
static const quoth_field list_pending_fields[] = {
    OTHER(list_pending, group, TEXT, REQUIRED),
    RANGE(list_pending, after, 0, POINTER_MAX, 0),
    RANGE(list_pending, limit, 1, 1000, 1000)};
static const quoth_field pending_fields[] = {
    OTHER(pending, ranges, RANGES, REQUIRED), OTHER(pending, members, TEXTS, REQUIRED)};
static const quoth_field commit_cursor_fields[] = {
    OTHER(commit_cursor, group, TEXT, REQUIRED), POINTER(commit_cursor, pointer),
    RANGE(commit_cursor, generation, 0, ANY_MAX, 0)};
static const quoth_field get_metrics_fields[] = {
    OTHER(get_metrics, after, TEXT, OPTIONAL), RANGE(get_metrics, since, 0, ANY_MAX, 0),
    RANGE(get_metrics, limit, 0, 1000, 100)};
static const quoth_field metrics_fields[] = {
    OTHER(metrics, server, TEXT, REQUIRED),
    POINTER(metrics, time),
    OTHER(metrics, uptime, FLOAT, REQUIRED),
    NUMBER(metrics, serial),
    NUMBER(metrics, topics),
    OTHER(metrics, counters, MAP, REQUIRED),
    OTHER(metrics, errors, MAP, REQUIRED),
    OTHER(metrics, requests, MAP, REQUIRED),
    OTHER(metrics, durations, MAP, REQUIRED),
    OTHER(metrics, rows, MAPS, REQUIRED),
    OTHER(metrics, more, FLAG, REQUIRED)};

/* ---- operations ---- */

const quoth_shape quoth_error_shape = SHAPE(error, error, 0);
static const quoth_shape hello = SHAPE(hello, hello, 1), publish = SHAPE(publish, publish, 1),
                         fetch = SHAPE(fetch, fetch, 1), list = SHAPE(list, list, 1),
                         settings = SHAPE(settings, settings, 1), delete_topic = SHAPE(delete, delete, 1),
                         trim = SHAPE(trim, trim, 1), status = SHAPE(status, list, 1),
                         advance = SHAPE(advance, advance, 1), split = SHAPE(split, split, 1),
                         count = SHAPE(count, count, 1), stage = SHAPE(stage, stage, 1),
                         publish_staged = SHAPE(publish_staged, publish_staged, 1),
                         transaction_name = SHAPE(name, name, 1),
                         open_group = SHAPE(open_group, open_group, 1),
                         group_fetch = SHAPE(group_fetch, group_fetch, 1),
                         group_settle = SHAPE(group_settle, group_settle, 1),
                         group_name = SHAPE(group_name, group_name, 1),
                         list_groups = SHAPE(list_groups, list, 1),
                         update_group = SHAPE(update_group, update_group, 1),
                         seek_group = SHAPE(seek_group, seek_group, 1),
                         list_pending = SHAPE(list_pending, list_pending, 1),
                         commit_cursor = SHAPE(commit_cursor, commit_cursor, 1),
                         get_metrics = SHAPE(get_metrics, get_metrics, 1),
                         nothing = {NULL, 0, 0, 1};
static const quoth_shape welcome = SHAPE(welcome, welcome, 0), pong = SHAPE(pong, pong, 0),
                         published = SHAPE(published, published, 0), fetched = SHAPE(fetched, fetched, 0),
                         topics = SHAPE(topics, topics, 0), topic = SHAPE(topic, topic, 0),
                         trimmed = SHAPE(trimmed, trimmed, 0),
                         broker_status = SHAPE(broker_status, broker_status, 0),
                         advanced = SHAPE(advanced, advanced, 0), parts = SHAPE(parts, parts, 0),
                         counted = SHAPE(counted, counted, 0), staged = SHAPE(staged, staged, 0),
                         transaction = SHAPE(transaction, transaction, 0),
                         group_info = SHAPE(group_info, group_info, 0),
                         group_fetched = SHAPE(group_fetched, group_fetched, 0),
                         group_settled = SHAPE(group_settled, group_settled, 0),
                         groups = SHAPE(groups, groups, 0), pending = SHAPE(pending, pending, 0),
                         metrics = SHAPE(metrics, metrics, 0);

static const struct {
    const quoth_shape *request, *reply;
} SHAPES[QUOTH_OPERATIONS] = {
    [QUOTH_OP_HELLO] = {&hello, &welcome},         [QUOTH_OP_PING] = {&nothing, &pong},
    [QUOTH_OP_PUBLISH] = {&publish, &published},   [QUOTH_OP_FETCH] = {&fetch, &fetched},
    [QUOTH_OP_LIST] = {&list, &topics},            [QUOTH_OP_DESCRIBE] = {&nothing, &topic},
    [QUOTH_OP_CREATE] = {&settings, &topic},       [QUOTH_OP_UPDATE] = {&settings, &topic},
    [QUOTH_OP_DELETE] = {&delete_topic, &trimmed}, [QUOTH_OP_TRIM] = {&trim, &trimmed},
    [QUOTH_OP_ROLL] = {&nothing, &topic},          [QUOTH_OP_STATUS] = {&status, &broker_status},
    [QUOTH_OP_ADVANCE] = {&advance, &advanced},    [QUOTH_OP_SPLIT] = {&split, &parts},
    [QUOTH_OP_COUNT] = {&count, &counted},         [QUOTH_OP_STAGE] = {&stage, &staged},
    [QUOTH_OP_PUBLISH_STAGED] = {&publish_staged, &published},
    [QUOTH_OP_ABORT] = {&transaction_name, &transaction},
    [QUOTH_OP_TRANSACTION] = {&transaction_name, &transaction},
    [QUOTH_OP_OPEN_GROUP] = {&open_group, &group_info},
    [QUOTH_OP_GROUP_FETCH] = {&group_fetch, &group_fetched},
    [QUOTH_OP_GROUP_SETTLE] = {&group_settle, &group_settled},
    [QUOTH_OP_DESCRIBE_GROUP] = {&group_name, &group_info},
    [QUOTH_OP_LIST_GROUPS] = {&list_groups, &groups},
    [QUOTH_OP_UPDATE_GROUP] = {&update_group, &group_info},
    [QUOTH_OP_SEEK_GROUP] = {&seek_group, &group_info},
    [QUOTH_OP_DELETE_GROUP] = {&group_name, &group_info},
    [QUOTH_OP_LIST_PENDING] = {&list_pending, &pending},
    [QUOTH_OP_COMMIT_CURSOR] = {&commit_cursor, &group_info},
    [QUOTH_OP_METRICS] = {&get_metrics, &metrics}};

const quoth_shape *quoth_request_shape(unsigned operation) { return SHAPES[operation].request; }

const quoth_shape *quoth_reply_shape(unsigned operation) { return SHAPES[operation].reply; }
