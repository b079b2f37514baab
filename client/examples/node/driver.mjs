// The driver of this client for the conformance kit, see tests/vectors/README.md: a session a line in, its results a
// line out. `node driver.mjs batches FILE` checks the batches of tests/vectors/batches.json instead, and `node driver.mjs
// settlements FILE` the rows of tests/vectors/settlements.json.
import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { decodeBody, encodeBatch, parseHeader } from "./batch.mjs";
import { encodeSettlements } from "./group.mjs";
import { connect, QuothError } from "./quoth.mjs";

const unhex = (digits) => (digits === null ? null : Buffer.from(digits, "hex"));
const hex = (bytes) => (bytes === null ? null : Buffer.from(bytes).toString("hex"));
const mapped = (map, change) => Object.fromEntries(Object.entries(map).map(([name, value]) => [name, change(value)]));
const digits = (_, value) => (typeof value === "bigint" ? String(value) : value);
const recordOf = ({ pointer, value, key, headers }) => (
  { pointer, value: hex(value), key: hex(key), headers: mapped(headers, hex) });
const described = ({ values, keys, headers }) => values.map((value, row) => (
  { value: unhex(value), key: keys ? unhex(keys[row]) : null, headers: headers ? mapped(headers[row], unhex) : {} }));
const numbers = (call, ...names) => Object.fromEntries(names.map((name) => [name, BigInt(call[name])]));

// Asks for page after page, and joins what `part` takes of each.
async function pages(client, operation, part, topic = "") {
  let all = [], reply, first, more;
  do {
    reply = await client.ask(operation, topic, { after: all.at(-1)?.[0] ?? "" });
    first ??= reply;
    more = part(reply);
    all = all.concat(more);
  } while (more.length);
  return [first, all];
}

const CALLS = {
  hello: (client) => client.ask("hello"),
  ping: (client) => client.ask("ping"),
  publish: (client, call) => client.publish(call.topic, described(call), { durability: call.durability, timeoutMs: call.timeout_ms }),
  async read(client, call, partial) {
    const options = { after: BigInt(call.after), limit: call.limit, waitMs: call.wait_ms, durability: call.durability };
    partial.records = (await client.read(call.topic, { ...options, onGap: (gap) => partial.gaps.push(gap) })).map(recordOf);
  },
  async tail(client, call, partial) {
    const options = { after: BigInt(call.after), onGap: (gap) => partial.gaps.push(gap) };
    for await (const record of client.tail(call.topic, options)) {
      if (partial.records.push(recordOf(record)) === call.records) break;
    }
  },
  topics: async (client) => ({ names: (await pages(client, "list", ({ names }) => names.map((name) => [name])))[1].flat() }),
  async status(client) {
    const [first, states] = await pages(client, "status", (reply) => Object.entries(reply.states));
    return { ...first, states: Object.fromEntries(states) };
  },
  topic: (client, { topic }) => client.ask("describe", topic),
  create: (client, { topic, settings }) => client.ask("create", topic, { settings }),
  update: (client, { topic, settings }) => client.ask("update", topic, { settings }),
  roll: (client, { topic }) => client.ask("roll", topic),
  delete: (client, { topic }) => client.ask("delete", topic),
  trim: (client, call) => client.ask("trim", call.topic, numbers(call, "before")),
  advance: (client, call) => client.ask("advance", call.topic, numbers(call, "after", "records_max", "bytes_max")),
  split: (client, call) => client.ask("split", call.topic, numbers(call, "after", "until", "parts")),
  count: (client, call) => client.ask("count", call.topic, numbers(call, "after", "until")),

  group: (client, call) => member(client, call).open(),
  group_info: (client, call) => member(client, call).info(),
  group_seek: (client, call) => member(client, call).seek(place(call.to)),
  group_update: (client, call) => member(client, call).update(call.settings),
  group_pause: (client, call) => member(client, call).pause(),
  group_resume: (client, call) => member(client, call).resume(),
  group_delete: (client, call) => member(client, call).delete(),
  group_commit: (client, call) => member(client, call).commit(BigInt(call.pointer)),
  group_pending: async (client, call) => ({ ranges: await member(client, call).pending() }),
  async list_groups(client, { topic }) {
    const [, groups] = await pages(client, "list_groups", (reply) => reply.groups.map(({ group }) => [group]), topic);
    return { names: groups.flat() };
  },
  async group_fetch(client, call, partial) {
    const group = member(client, call);
    group.onGap = (gap) => partial.gaps.push(gap);
    const found = await group.fetch({ limit: call.limit, waitMs: call.wait_ms });
    for (const record of found) group.held.set(String(record.pointer), record);
    partial.records = found.map((record) => ({ ...recordOf(record), attempts: record.attempts }));
  },
  group_ack: (client, call) => settled(client, call, (group, record) => group.ack(record)),
  group_nack: (client, call) => settled(client, call, (group, record) => (
    group.nack(record, { delayMs: call.delay_ms, reason: call.reason }))),
  group_release: (client, call) => settled(client, call, (group, record) => group.release(record)),
  group_extend: (client, call) => settled(client, call, (group, record) => group.extend(record, call.lease_ms)),
  group_term: (client, call) => settled(client, call, (group, record) => group.term(record, { reason: call.reason })),
};

const place = (where = "0") => (where === "end" ? -1n : BigInt(where));

// The member of a session in a group, made with the settings of its first call; `held` has what it has fetched.
function member(client, { topic, group, start, settings }) {
  client.members ??= new Map();
  const name = JSON.stringify([topic, group]);
  if (!client.members.has(name)) {
    const made = client.group(topic, group, { start: place(start), settings });
    client.members.set(name, Object.assign(made, { held: new Map() }));
  }
  return client.members.get(name);
}

function settled(client, call, settle) {
  const group = member(client, call);
  return settle(group, group.held.get(String(call.pointer)));
}

async function make(client, call) {
  const partial = ["read", "tail", "group_fetch"].includes(call.call) ? { records: [], gaps: [] } : {};
  try {
    const { payload, ...result } = (await CALLS[call.call](client, call, partial)) ?? {};
    return { ...partial, ...result };
  } catch (problem) {
    if (!(problem instanceof QuothError)) throw problem;
    return { ...partial, error: problem.code };
  }
}

async function play({ session, url, timeout_ms, resend_ms, calls }) {
  const missing = calls.find(({ call }) => !(call in CALLS));
  if (missing) return { session, unsupported: missing.call };
  let client;
  try {
    client = await connect(url, { timeoutMs: timeout_ms, resendMs: resend_ms });
  } catch (problem) {
    return { session, results: calls.map(() => ({ error: problem.code })) };
  }
  const results = [];
  for (const call of calls) results.push(await make(client, call));
  client.close();
  return { session, results };
}

// Returns the names of the vectors that are not read or written as they say.
async function wrongBatches({ accepted, read_only, refused }) {
  const wrong = [];
  for (const { name, log, bytes, header, ...records } of [...accepted, ...read_only]) {
    const whole = unhex(bytes), parsed = await parseHeader(whole, BigInt(log));
    const found = await decodeBody(whole, parsed), expected = described(records);
    const plain = (rows) => JSON.stringify(rows.map((row) => recordOf({ ...row, pointer: undefined })));
    let isRight = plain(found) === plain(expected) && String(parsed.producer) === header.producer;
    if (log === "0" && !(header.flags & ~3) && accepted.some((vector) => vector.name === name)) {
      isRight &&= (await encodeBatch(expected, parsed.producer, parsed.sequence)).equals(whole);
    }
    if (!isRight) wrong.push(name);
  }
  for (const { name, log, bytes } of refused) {
    const whole = unhex(bytes);
    const read = async () => {
      const header = await parseHeader(whole, BigInt(log));
      await decodeBody(whole, header);
      if (header.size !== whole.length) throw new QuothError("bad_batch", "bytes follow");
    };
    if (await read().then(() => true, (problem) => !(problem instanceof QuothError))) wrong.push(name);
  }
  return wrong;
}

const wrongSettlements = ({ accepted }) => (
  accepted.filter(({ rows, bytes }) => hex(encodeSettlements(rows)) !== bytes).map(({ name }) => name));

const VECTORS = { batches: wrongBatches, settlements: wrongSettlements };
if (process.argv[2] in VECTORS) {
  console.log(JSON.stringify(await VECTORS[process.argv[2]](JSON.parse(readFileSync(process.argv[3], "utf8")))));
} else {
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await play(JSON.parse(line)), digits));
  }
}
