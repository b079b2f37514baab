// A client of Quoth for Node, written from client/PROTOCOL.md alone. It publishes batches that are stored once,
// reads and follows topics, is a member of consumer groups, checks both checksums, and reports gaps. 64-bit numbers are
// BigInt.
//
//     const client = await connect("tcp://127.0.0.1:5555");
//     const { first } = await client.publish("greetings", [{ value: Buffer.from("hello") }]);
//     for await (const record of client.tail("greetings")) console.log(record.pointer, String(record.value));
//     client.close();
//
// A broker with keys takes clients with a key file: connect(url, { key: PATH }), or the variable QUOTH_KEY_FILE.
import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { decode, encode } from "@msgpack/msgpack";
import { Dealer } from "zeromq";
import { decodeBody, encodeBatch, parseHeader, QuothError } from "./batch.mjs";
import { Group } from "./group.mjs";
import { readKey } from "./key.mjs";

export { QuothError };
const OPERATIONS = [
  "", "hello", "ping", "publish", "fetch", "list", "describe", "create", "update", "delete", "trim", "roll", "status",
  "advance", "split", "count", "stage", "publish_staged", "abort", "transaction", "open_group", "group_fetch",
  "group_settle", "describe_group", "list_groups", "update_group", "seek_group", "delete_group", "list_pending",
  "commit_cursor", "metrics",
];
const REFUSED_FOR_NOW = new Set(["busy", "recovering", "stopping", "disk_low"]);
const NOTHING_STORED = new Set(["bad_request", "bad_topic", "bad_batch", "too_large", "topics_max", ...REFUSED_FOR_NOW]);
const POINTER_MAX = (1n << 56n) - 1n, PAUSE_MS = 5, PAUSE_MS_MAX = 500, TAIL_MS = 30_000, AWAY_MS = 50;
const CLOSINGS_MAX = 2; // connections that a broker closes within the handshake: it may have another key
const BIG = { useBigInt64: true };

// With BigInt msgpack encodes a number above 2^32 as a float, which the broker refuses where an integer is due.
function widened(value) {
  if (Number.isInteger(value) && Math.abs(value) >= 2 ** 32) return BigInt(value);
  if (Array.isArray(value)) return value.map(widened);
  if (typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, widened(inner)]));
}

const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

// key: the path of a key file, for a broker with keys.
export async function connect(url, { timeoutMs = 10_000, resendMs = 5_000, key = process.env.QUOTH_KEY_FILE } = {}) {
  const client = new Client(url, timeoutMs, resendMs, readKey(key));
  try {
    await client.ask("hello", "", { client: "quoth-node" });
    return client;
  } catch (problem) {
    client.close();
    throw problem;
  }
}

class Client {
  #socket;
  #pending = new Map(); // by correlation id
  #correlation = 0n;
  connected = false;
  wasLost = false;
  #producers = new Map(); // by topic: { id, stored }
  #publishing = Promise.resolve();

  #refused = false;
  #closings = 0;

  constructor(url, timeoutMs, resendMs, keys) {
    Object.assign(this, { url, timeoutMs, resendMs, hasKey: "curveSecretKey" in keys });
    const intervals = { reconnectInterval: 50, reconnectMaxInterval: 200, heartbeatInterval: 1_000 };
    // Any number of answers: libzmq ends a process that has heartbeats and a full queue when a connection is lost.
    this.#socket = new Dealer({ linger: 0, receiveHighWaterMark: 0, ...intervals, ...keys });
    this.#socket.events.on("disconnect", () => Object.assign(this, { connected: false, wasLost: true }));
    this.#socket.events.on("handshake", () => {
      if (this.wasLost) for (const request of this.#pending.values()) this.#send(request); // they may be lost, too
      Object.assign(this, { connected: true, wasLost: false });
      this.#closings = 0;
    });
    this.#socket.events.on("handshake:error:auth", () => this.#refuse("does not know the key, or has revoked it"));
    this.#socket.events.on("handshake:error:protocol", ({ error }) => {
      if (error.code !== "ERR_ZMTP_MECHANISM_MISMATCH") return;
      this.#refuse(this.hasKey ? "takes no keys, and one was given" : "wants a key, and none was given");
    });
    this.#socket.events.on("handshake:error:other", ({ error }) => {
      const isClosed = error.code === "EPIPE" || error.code === "ECONNRESET";
      if (this.hasKey && isClosed && ++this.#closings === CLOSINGS_MAX) {
        this.#refuse("has another key than the server-key, takes no keys, or cannot check them now");
      }
    });
    this.#socket.connect(url);
    this.#receive();
  }

  close() {
    this.#socket.close();
    for (const request of this.#pending.values()) request.reject(new QuothError("closed"));
  }

  // Ends all requests. The next one tries again.
  #refuse(text) {
    this.#refused = true;
    this.#socket.disconnect(this.url);
    for (const request of this.#pending.values()) {
      const problem = new QuothError("auth_failed", `the broker at ${this.url} ${text}`);
      request.reject(Object.assign(problem, { unanswered: request.copies }));
    }
  }

  #retry() {
    this.#refused = false;
    this.#closings = 0;
    this.#socket.connect(this.url);
  }

  // Sends a request until its outcome is known, the same frames each time. Returns the reply, with the payload.
  ask(operation, topic = "", fields = {}, { payload, timeoutMs = this.timeoutMs, waitMs = 0 } = {}) {
    if (this.#refused) this.#retry();
    return new Promise((resolve, reject) => {
      const id = ++this.#correlation;
      const header = Buffer.from([0xd1, 0x51, 1, OPERATIONS.indexOf(operation), ...Array(12).fill(0)]);
      header.writeBigUInt64LE(id, 8);
      const frames = ["", header, topic, Buffer.from(encode(widened(fields), BIG)), ...(payload ? [payload] : [])];
      const settle = (end) => (outcome) => {
        clearTimeout(request.again);
        clearTimeout(deadline);
        this.#pending.delete(id);
        end(outcome);
      };
      const request = { frames, waitMs, copies: 0, pauseMs: PAUSE_MS, resolve: settle(resolve), reject: settle(reject) };
      const deadline = setTimeout(() => {
        const code = this.connected ? "timed_out" : "disconnected";
        request.reject((request.copies === 0 && request.refused) || new QuothError(code, operation));
      }, timeoutMs + waitMs);
      this.#pending.set(id, request);
      this.#send(request);
    });
  }

  #send(request) {
    request.copies++; // those without an answer
    clearTimeout(request.again);
    request.again = setTimeout(() => this.#send(request), request.waitMs + this.resendMs);
    this.#socket.send(request.frames).catch(() => {}); // a full queue, or a closed socket: it is sent again
  }

  async #receive() {
    try {
      for await (const frames of this.#socket) this.#take(frames.slice(1));
    } catch {
      if (!this.#socket.closed) throw new Error("the socket failed");
    }
  }

  #take([header, map, payload]) {
    if (header?.length !== 16 || header[0] !== 0xd1 || header[1] !== 0x51) return;
    const request = this.#pending.get(header.readBigUInt64LE(8));
    if (request === undefined) return;
    if (header[2] !== 1) return request.reject(new QuothError("unsupported_version", `the broker's is ${header[2]}`));
    let fields;
    try {
      fields = decode(map, BIG);
    } catch {
      return;
    }
    if (typeof fields !== "object" || fields === null) return;
    request.copies--;
    const unanswered = request.copies; // each of which may have had its effect
    if (header[4] === 1) return request.resolve({ ...fields, payload: payload ?? Buffer.alloc(0), unanswered });
    request.refused = Object.assign(new QuothError(fields.code, fields.text, fields.hint), { unanswered });
    if (!REFUSED_FOR_NOW.has(fields.code)) return request.reject(request.refused);
    clearTimeout(request.again);
    request.again = setTimeout(() => this.#send(request), request.pauseMs);
    request.pauseMs = Math.min(2 * request.pauseMs, PAUSE_MS_MAX);
  }

  // Stores records ({ value, key, headers }) as one batch, in order, once. One publish after the other.
  publish(topic, records, { durability = "", timeoutMs } = {}) {
    const done = this.#publishing.then(() => this.#publish(topic, records, durability, timeoutMs));
    this.#publishing = done.catch(() => {});
    return done;
  }

  async #publish(topic, records, durability, timeoutMs) {
    const producer = this.#producers.get(topic) ?? { id: (randomBytes(8).readBigUInt64LE() >> 1n) | 1n, stored: 0n };
    this.#producers.delete(topic); // until it is known what is stored
    const payload = await encodeBatch(records, producer.id, producer.stored + 1n);
    try {
      const reply = await this.ask("publish", topic, durability ? { durability } : {}, { payload, timeoutMs });
      this.#producers.set(topic, { ...producer, stored: producer.stored + 1n });
      return reply;
    } catch (problem) {
      const isForgotten = problem.code === "unknown_producer" || problem.code === "out_of_sequence";
      if (isForgotten && producer.stored) return this.#publish(topic, records, durability, timeoutMs);
      if (NOTHING_STORED.has(problem.code)) this.#producers.set(topic, producer);
      throw problem;
    }
  }

  // A member of a consumer group, see group.mjs.
  group(topic, name, options) {
    return new Group(this, topic, name, options);
  }

  // Reads up to `limit` records above the pointer `after`, and waits for the first one. onGap: see Reader.
  // durability: "synced" for what survives a loss of power alone.
  async read(topic, { after = 0n, limit = 1_000, waitMs = 0, onGap, durability } = {}) {
    const reader = new Reader(this, topic, after, onGap, durability), found = [], end = Date.now() + waitMs;
    while (found.length < limit) {
      const left = found.length ? 0 : Math.max(0, end - Date.now());
      const hasMore = await reader.fetch(found, left, limit - found.length);
      if (!hasMore && (found.length || Date.now() >= end)) break;
    }
    return found.slice(0, limit);
  }

  // Follows a topic for ever, through outages. Ends with an error when the topic is deleted.
  async *tail(topic, { after = 0n, onGap } = {}) {
    const reader = new Reader(this, topic, after, onGap);
    while (true) {
      const found = [];
      try {
        await reader.fetch(found, TAIL_MS);
      } catch (problem) {
        const isThereLater = problem.code === "unknown_topic" && !reader.log;
        if (!isThereLater && !["timed_out", "disconnected", ...REFUSED_FOR_NOW].includes(problem.code)) throw problem;
        if (!isThereLater) await pause(AWAY_MS);
      }
      yield* found;
    }
  }
}

// A cursor in one topic. onGap gets { reason, records, after, next }: `records` between the pointers `after` and
// `next` are missing, -1n if their number is not known.
class Reader {
  ordinal = -1n; // how many records the log held up to the cursor, if that is known
  fetchesOne = false; // the next batch has a damaged header: fetched alone, the reply says where it ends
  isAhead = false;
  oldAfter = null; // the cursor in a deleted topic of the same name, until that gap is reported

  constructor(client, topic, after, onGap = console.warn, durability = undefined) {
    Object.assign(this, { client, topic, after, onGap, durability });
  }

  // Appends the next records to `found`. Returns false if nothing lies above the cursor.
  async fetch(found, waitMs, recordsMax = 2 ** 32) {
    const fields = { after: this.after, ordinal: this.ordinal, records_max: this.fetchesOne ? 1 : recordsMax, wait_ms: waitMs };
    if (this.durability === "synced") fields.durability = "synced"; // a broker of before refuses the field
    const reply = await this.client.ask("fetch", this.topic, fields, { waitMs });
    for (const name of ["log", "next", "newest", "gone", "end", "damaged"]) reply[name] = BigInt(reply[name]);
    if (this.log !== undefined && this.log !== reply.log) { // another topic: from its beginning
      Object.assign(this, { oldAfter: this.after, after: 0n, ordinal: -1n, log: reply.log });
      return true;
    }
    this.log = reply.log;
    if (!reply.payload.length && reply.newest === this.after) this.ordinal = reply.end;
    if (reply.newest < this.after && !this.isAhead) this.#gap("ahead", 0n, reply.newest, this.after + 1n);
    this.isAhead = reply.newest < this.after;
    await this.#open(found, reply);
    return reply.payload.length > 0;
  }

  async #open(found, reply) {
    for (let rest = reply.payload, header; rest.length; rest = rest.subarray(header.size)) {
      try {
        header = await parseHeader(rest, reply.log);
      } catch {
        const isAlone = this.fetchesOne && rest === reply.payload;
        if (isAlone) this.#skip(reply.next, -1n), this.ordinal = -1n;
        this.fetchesOne = !isAlone;
        return;
      }
      this.fetchesOne = false;
      if (rest === reply.payload) this.#reportFront(header, reply);
      await this.#take(found, rest, header);
    }
  }

  // What is missing in front of the first batch of a reply: removed, or damaged.
  #reportFront(first, { gone, damaged }) {
    let removed = gone - damaged;
    if (this.oldAfter !== null) this.#gap("recreated", -1n, this.oldAfter, first.base);
    this.oldAfter = null;
    if (this.ordinal >= 0n) {
      const missing = first.ordinal > this.ordinal ? first.ordinal - this.ordinal : 0n;
      damaged = damaged < missing ? damaged : missing;
      removed = missing - damaged;
      this.ordinal = first.ordinal;
    } else if (this.after) { // the cursor may stand anywhere among them
      [removed, damaged] = [removed && -1n, damaged && -1n];
    } else {
      removed = 0n; // what lay before the oldest record is no loss
    }
    const before = this.after;
    if (removed) this.#gap("trimmed", removed, before, first.base);
    if (damaged) this.#gap("damaged", damaged, before, first.base);
    if ((removed || damaged) && first.base > before) this.after = first.base - 1n;
  }

  async #take(found, bytes, header) {
    if (this.ordinal >= 0n && this.ordinal < header.ordinal) this.#skip(header.base - 1n, header.ordinal - this.ordinal);
    this.ordinal = header.ordinal + BigInt(header.records);
    const before = this.after > header.base - 1n ? this.after : header.base - 1n;
    if (header.last <= before) return;
    try {
      const records = await decodeBody(bytes, header);
      found.push(...records.slice(Number(before - header.base + 1n)));
      this.after = header.last;
    } catch {
      this.#skip(header.last, header.last - before);
    }
  }

  #skip(last, records) {
    this.#gap("damaged", records, this.after, last + 1n);
    if (last > this.after) this.after = last;
  }

  #gap(reason, records, after, next) {
    this.onGap({ topic: this.topic, reason, records, after, next });
  }
}
