// A member of a consumer group, see "Groups" in client/PROTOCOL.md. 64-bit numbers are BigInt.
//
//     const group = client.group("orders", "billing", { settings: { max_attempts: 5 } });
//     for (const record of await group.fetch({ limit: 10, waitMs: 30_000 })) {
//       try {
//         bill(record.value);
//         await group.ack(record);
//       } catch (problem) {
//         await group.nack(record, { reason: String(problem) });
//       }
//     }
import { Buffer } from "node:buffer";
import { decodeBody, parseHeader, QuothError } from "./batch.mjs";

const ACK = 1, NACK = 2, EXTEND = 3, TERM = 4, RELEASE = 5, ROW_BYTES = 40;
const HOLD_MS = 1_000; // for which the broker holds a fetch: what it brings to a dead member waits for the lease
const REASON_MAX = 1_000;
const UNREADABLE = "a batch in the answer of the broker does not check";

// The payload of group_settle. rows: { kind, first, last, token, milliseconds }, in the order of their pointers.
export function encodeSettlements(rows) {
  const payload = Buffer.alloc(ROW_BYTES * rows.length);
  rows.forEach((row, number) => {
    const at = ROW_BYTES * number;
    payload.writeUInt8(row.kind, at);
    [row.first, row.last, row.token, row.milliseconds].forEach((value, place) => (
      payload.writeBigUInt64LE(BigInt(value), at + 8 * (place + 1))));
  });
  return payload;
}

// Rows of acknowledged records: consecutive ones of one lease are one row.
function merged(rows) {
  const found = [];
  for (const row of rows.sort((one, other) => (one.first < other.first ? -1 : 1))) {
    const before = found.at(-1);
    if (before && row.kind === ACK && before.token === row.token && before.last + 1n === row.first) before.last = row.last;
    else found.push({ ...row });
  }
  return found;
}

// start: a pointer, or -1 for the end. settings: of a new group; one that exists has to have them. onGap: as of a read.
export class Group {
  #seen = 0n; // all records up to this pointer were handed out to some member, in this generation
  #generation = 0n;
  #opened;

  constructor(client, topic, name, { start = 0n, settings = {}, member = `node:${process.pid}`, onGap = console.warn } = {}) {
    Object.assign(this, { client, topic, name, start, settings, member, onGap });
  }

  #ask(operation, fields = {}, options = {}) {
    return this.client.ask(operation, this.topic, { group: this.name, ...fields }, options);
  }

  // Creates the group, unless it exists, before anything else is done with it.
  async open() {
    this.#opened ??= this.#ask("open_group", { start: this.start, settings: this.settings }).then((info) => {
      this.#enter(BigInt(info.generation), BigInt(info.cursor));
      return info;
    });
    try {
      return await this.#opened;
    } catch (problem) {
      this.#opened = undefined;
      throw problem;
    }
  }

  async info() {
    return this.#ask("describe_group");
  }

  async seek(after) {
    return this.#ask("seek_group", { after });
  }

  async update(settings) {
    return this.#ask("update_group", { settings });
  }

  async pause() {
    return this.#ask("update_group", { paused: 1 });
  }

  async resume() {
    return this.#ask("update_group", { paused: 0 });
  }

  // Returns the last state of the group.
  async delete() {
    const last = await this.info();
    return this.#ask("delete_group").catch((problem) => {
      if (problem.code === "unknown_group" && problem.unanswered > 0) return last; // a copy without an answer did it
      throw problem;
    });
  }

  // Moves the pointer of a group of mode "cursor" forward.
  async commit(pointer, generation = 0n) {
    return this.#ask("commit_cursor", { pointer, generation });
  }

  // All ranges that are handed out and not finished.
  async pending() {
    const found = [];
    for (;;) {
      const { ranges, members } = await this.#ask("list_pending", { after: found.at(-1)?.last ?? 0n });
      if (!ranges.length) return found;
      ranges.forEach(([first, last, attempts, milliseconds], row) => (
        found.push({ first, last, attempts, milliseconds, member: members[row] })));
    }
  }

  // Returns up to `limit` records under a lease, with their attempts. Waits up to `waitMs` for the first one.
  async fetch({ limit = 100, waitMs = 0, leaseMs = 0 } = {}) {
    await this.open();
    const end = Date.now() + waitMs;
    for (;;) {
      const wait = Math.min(HOLD_MS, Math.max(0, end - Date.now()));
      const fields = { member: this.member, records_max: limit, wait_ms: wait, lease_ms: leaseMs };
      const found = await this.#open(await this.#ask("group_fetch", fields, { waitMs: wait }));
      if (found.length || Date.now() >= end) return found;
    }
  }

  async #open(reply) {
    const leases = reply.leases.map((row) => row.map(BigInt)).map(([token, attempts, first, last]) => (
      { token, attempts, after: first - 1n, last, generation: BigInt(reply.generation) }));
    this.#reportGone(reply, leases);
    const found = [];
    for (let rest = reply.payload, header; rest.length; rest = rest.subarray(header.size)) {
      try {
        header = await parseHeader(rest, BigInt(reply.log));
      } catch {
        const unread = leases.filter((lease) => lease.token && lease.after < lease.last);
        await this.#settle(NACK, unread, { reason: UNREADABLE }).catch(() => {}); // else their leases end by themselves
        break;
      }
      await this.#take(found, rest, header, leases);
    }
    return found;
  }

  // Takes the records of a batch that belong to leases. Those that do not check are reported, and finished.
  async #take(found, bytes, header, leases) {
    const records = await decodeBody(bytes, header).catch(() => null);
    for (const lease of leases) {
      const first = lease.after + 1n > header.base ? lease.after + 1n : header.base;
      const last = lease.last < header.last ? lease.last : header.last;
      if (first > last) continue;
      if (records === null) {
        this.#gap("damaged", last - first + 1n, first - 1n, last + 1n);
        await this.#settle(ACK, [{ ...lease, last }]);
      } else {
        for (let pointer = first, after = lease.after; pointer <= last; after = pointer++) {
          const record = records[Number(pointer - header.base)];
          found.push({ ...record, attempts: lease.attempts, lease: { ...lease, after, last: pointer } });
        }
      }
      lease.after = last;
    }
  }

  // A group that was moved hands out records again. generation: 0 in a reply that does not tell.
  #enter(generation, seen = 0n) {
    if (generation && generation !== this.#generation) this.#seen = seen;
    this.#generation = generation || this.#generation;
  }

  // Records that no member can get any more lie in front of the first one that is new.
  #reportGone({ generation, gone, damaged, newest }, leases) {
    this.#enter(BigInt(generation));
    const before = this.#seen, fresh = leases.map((lease) => lease.after + 1n).filter((first) => first > before);
    const least = (one, other) => (one < other ? one : other), most = (one, other) => (one > other ? one : other);
    const next = fresh.length ? fresh.reduce(least) : most(BigInt(newest), before) + 1n;
    this.#seen = leases.map((lease) => lease.last).reduce(most, before);
    const trimmed = BigInt(gone) - BigInt(damaged);
    if (trimmed > 0n) this.#gap("trimmed", trimmed, before, next);
    if (damaged) this.#gap("damaged", BigInt(damaged), before, next);
  }

  #gap(reason, records, after, next) {
    this.onGap({ topic: this.topic, reason, records, after, next });
  }

  // Finishes records. An ack also counts after the lease has ended.
  ack(...records) {
    return this.#settle(ACK, records.map((record) => record.lease));
  }

  // Gives a record back, for so many milliseconds, by default for the backoff of the group.
  nack({ lease }, { delayMs, reason = "" } = {}) {
    return this.#settle(NACK, [lease], { milliseconds: delayMs === undefined ? 0 : delayMs + 1, reason });
  }

  // Gives a record back with which no work has begun, to be handed out again at once: this hand-out is no attempt.
  release({ lease }) {
    return this.#settle(RELEASE, [lease]);
  }

  // Lets the lease last from now on, 0: as long as the group's.
  extend({ lease }, milliseconds = 0) {
    return this.#settle(EXTEND, [lease], { milliseconds });
  }

  // Makes a dead letter of a record.
  term({ lease }, { reason = "" } = {}) {
    return this.#settle(TERM, [lease], { reason });
  }

  async #settle(kind, leases, { milliseconds = 0, reason = "" } = {}) {
    const held = leases.filter((lease) => lease.token); // mode at_most_once has none: its records are finished
    if (held.length < leases.length && kind !== ACK) throw new QuothError("bad_request", "a record without a lease");
    for (const generation of new Set(held.map((lease) => lease.generation))) {
      const rows = merged(held.filter((lease) => lease.generation === generation).map(({ token, after, last }) => (
        { kind, first: after + 1n, last, token, milliseconds })));
      const fields = { rows: rows.length, generation, reason: [...reason].slice(0, REASON_MAX).join("") };
      const reply = await this.#ask("group_settle", fields, { payload: encodeSettlements(rows) });
      const isDone = kind === ACK ? reply.lost.length < rows.length : reply.unanswered > 0 && kind !== EXTEND;
      if (reply.lost.length && !isDone) throw new QuothError("lease_lost", `${this.topic} ${this.name}`);
    }
  }
}
