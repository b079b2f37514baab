// The bytes of a batch, see "A batch" in client/PROTOCOL.md. 64-bit numbers are BigInt.
import { Buffer } from "node:buffer";
import { decode, encode } from "@msgpack/msgpack";
import { createXXHash3 } from "hash-wasm";

const KEYS = 1, HEADERS = 2, SPARSE = 4, START = 8, ORDINAL = 16, TRANSACTION = 32, END = 64;
const POINTER_MAX = (1n << 56n) - 1n;
const HEADER_BYTES = 64, BODY_BYTES_MAX = 2 ** 24 - HEADER_BYTES, RECORDS_MAX = 100_000;

export class QuothError extends Error {
  constructor(code, text = "", hint = "") {
    super(`${code}: ${text}`);
    Object.assign(this, { code, hint });
  }
}

async function checksum(bytes, seed) {
  const hash = await createXXHash3(Number(seed & 0xffffffffn), Number(seed >> 32n));
  hash.init();
  hash.update(bytes);
  return BigInt(`0x${hash.digest()}`);
}

const seedOf = (header) => (1n << 48n) | (BigInt(header.flags) << 32n) | BigInt(header.records);

// records: { value, key, headers }, of which only the value is required. All bytes are Buffers.
export async function encodeBatch(records, producer, sequence) {
  const columns = [records.map((record) => record.value)];
  let flags = 0;
  let bitmap = Buffer.alloc(0);
  if (records.some((record) => record.key != null)) {
    flags |= KEYS;
    columns.push(records.map((record) => record.key ?? Buffer.alloc(0)));
    bitmap = Buffer.alloc(Math.ceil(records.length / 64) * 8);
    records.forEach((record, row) => { if (record.key != null) bitmap[row >> 3] |= 1 << (row & 7); });
  }
  if (records.some((record) => Object.keys(record.headers ?? {}).length)) {
    flags |= HEADERS;
    const packed = ({ headers = {} }) => (Object.keys(headers).length ? Buffer.from(encode(headers)) : Buffer.alloc(0));
    columns.push(records.map(packed));
  }
  const unpadded = Buffer.concat([...columns.map(offsetsOf), bitmap, ...columns.flat()]);
  const body = Buffer.concat([unpadded, Buffer.alloc(-unpadded.length & 7)]);
  const header = Buffer.alloc(HEADER_BYTES);
  header.write("QUOB\x01\x01", "latin1");
  header.writeUInt16LE(flags, 6);
  header.writeUInt32LE(body.length, 8);
  header.writeUInt32LE(records.length, 12);
  header.writeBigUInt64LE(producer, 32);
  header.writeBigUInt64LE(sequence, 40);
  header.writeBigUInt64LE(await checksum(body, seedOf({ flags, records: records.length })), 48);
  header.writeBigUInt64LE(await checksum(header.subarray(0, 56), 0n), 56);
  return Buffer.concat([header, body]);
}

function offsetsOf(column) {
  const offsets = Buffer.alloc(4 * (column.length + 1));
  column.reduce((end, item, row) => offsets.writeInt32LE(end + item.length, 4 * row + 4) && end + item.length, 0);
  return offsets;
}

function require(condition, text) {
  if (!condition) throw new QuothError("bad_batch", text);
}

// The header of the first batch in some bytes, checked with the id of its log, 0n for a new one.
export async function parseHeader(bytes, log) {
  require(bytes.length >= HEADER_BYTES && bytes.toString("latin1", 0, 6) === "QUOB\x01\x01", "no batch");
  require(await checksum(bytes.subarray(0, 56), log) === bytes.readBigUInt64LE(56), "the header's checksum");
  const flags = bytes.readUInt16LE(6), bodyBytes = bytes.readUInt32LE(8), records = bytes.readUInt32LE(12);
  const [base, ordinal, producer, sequence, bodyCheck] = [16, 24, 32, 40, 48].map((at) => bytes.readBigUInt64LE(at));
  const header = { flags, records, base, ordinal, producer, sequence, bodyCheck };
  require(flags < 2 * END && !(flags & SPARSE && flags & ORDINAL), "flags");
  require(!(flags & END) || flags & TRANSACTION, "END without a transaction");
  require(!(flags & TRANSACTION) || !(flags & (SPARSE | START | ORDINAL)) && producer && sequence, "a transaction");
  if (records > RECORDS_MAX || bodyBytes > BODY_BYTES_MAX) throw new QuothError("too_large", "a batch");
  header.last = base + BigInt(records) - 1n;
  require(records && bodyBytes % 8 === 0 && header.last <= POINTER_MAX, "records, bytes or pointers");
  return { ...header, size: HEADER_BYTES + bodyBytes };
}

// The records of a batch whose header was parsed. Throws if the body does not match its checksum.
export async function decodeBody(bytes, header) {
  const body = bytes.subarray(HEADER_BYTES, header.size);
  require(bytes.length >= header.size && await checksum(body, seedOf(header)) === header.bodyCheck, "the body's checksum");
  const count = header.records, columns = 1 + (header.flags & KEYS) + (header.flags & HEADERS) / HEADERS;
  const bitmapBytes = header.flags & KEYS ? Math.ceil(count / 64) * 8 : 0;
  const bitmap = 4 * (count + 1) * columns;
  let heap = bitmap + bitmapBytes;
  require(heap <= body.length, "the body is too short");
  const cells = [];
  for (let column = 0; column < columns; column++) {
    const end = (row) => body.readInt32LE(4 * ((count + 1) * column + row));
    const items = [];
    for (let row = 0; row < count; row++) {
      require(end(0) === 0 && end(row) <= end(row + 1), "offsets");
      items.push(body.subarray(heap + end(row), heap + end(row + 1)));
    }
    heap += end(count);
    require(heap <= body.length, "offsets");
    cells.push(items);
  }
  require(body.length - heap < 8 && body.subarray(heap).every((byte) => byte === 0), "padding");
  const hasKey = (row) => bitmapBytes && body[bitmap + (row >> 3)] >> (row & 7) & 1;
  return cells[0].map((value, row) => ({
    pointer: header.base + BigInt(row),
    value,
    key: hasKey(row) ? cells[1][row] : null,
    headers: header.flags & HEADERS ? readHeaders(cells[columns - 1][row]) : {},
  }));
}

function readHeaders(cell) {
  try {
    return cell.length ? decode(cell) : {};
  } catch {
    return {}; // of an older broker, which stored what is no map
  }
}
