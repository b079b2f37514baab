// The driver of this client for the conformance kit, see tests/vectors/README.md: a session a line in, its results a
// line out. `node driver.mjs batches FILE` checks the batches of tests/vectors/batches.json instead.
import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { decodeBody, encodeBatch, parseHeader } from "./batch.mjs";
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
async function pages(client, operation, part) {
  let all = [], reply, first, more;
  do {
    reply = await client.ask(operation, "", { after: all.at(-1)?.[0] ?? "" });
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
    const options = { after: BigInt(call.after), limit: call.limit, waitMs: call.wait_ms };
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
};

async function make(client, call) {
  const partial = call.call === "read" || call.call === "tail" ? { records: [], gaps: [] } : {};
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

if (process.argv[2] === "batches") {
  console.log(JSON.stringify(await wrongBatches(JSON.parse(readFileSync(process.argv[3], "utf8")))));
} else {
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await play(JSON.parse(line)), digits));
  }
}
