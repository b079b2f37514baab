// Key files: the CURVE keys of a client and its broker, as options of a socket. client/c/README.md describes the file.
import { closeSync, fstatSync, openSync, readFileSync } from "node:fs";
import { QuothError } from "./batch.mjs";

const NAMES = { curveServerKey: "metadata.server-key", curvePublicKey: "curve.public-key", curveSecretKey: "curve.secret-key" };
const LINE = /^\s*(?:\[\s*([\w-]+)\s*\]|([\w-]+)\s*=\s*(?:"([^"\\]*)"|'([^']*)'))\s*(?:#.*)?$/;

function contentOf(path) {
  const file = openSync(path, "r");
  try {
    return { text: readFileSync(file, "utf8"), mode: fstatSync(file).mode & 0o777 };
  } finally {
    closeSync(file);
  }
}

function valuesIn(text) {
  const values = new Map(); // by "table.name"
  let table = "";
  for (const line of text.split("\n")) {
    if (/^\s*\[/.test(line)) table = ""; // one that is not known
    const [, opened, name, quoted, literal] = LINE.exec(line) ?? [];
    if (opened !== undefined) table = opened;
    if (name !== undefined) values.set(`${table}.${name}`, quoted ?? literal);
  }
  return values;
}

// Returns the options of a socket with the keys of a file; none without a path.
export function readKey(path) {
  if (!path) return {};
  let found;
  try {
    found = contentOf(path);
  } catch (problem) {
    throw new QuothError("bad_setting", `the key file ${path}: ${problem.code}`, "is it the right path?");
  }
  const values = valuesIn(found.text);
  for (const name of Object.values(NAMES)) {
    if (values.get(name)?.length === 40) continue;
    const [table, key] = name.split(".");
    throw new QuothError("bad_setting", `the key file ${path} has no ${key} of 40 characters in a table [${table}]`);
  }
  if (found.mode & 0o077) {
    const text = `the key file ${path} has the mode 0${found.mode.toString(8)}, and its secret is for the owner alone`;
    throw new QuothError("bad_setting", `${text}: chmod 600 ${path}`);
  }
  return Object.fromEntries(Object.entries(NAMES).map(([option, name]) => [option, values.get(name)]));
}
