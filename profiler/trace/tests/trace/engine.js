// Runs Perfetto's own engine, trace_processor as WebAssembly, on a trace: `node engine.js FOLDER TRACE`, where FOLDER holds
// engine_bundle.js and the .wasm files. Reads a JSON list of SQL queries from standard input and prints a JSON list of their
// rows, each a list of values; a query that fails is an object with `error`.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

// Without the engine's source, which is one line.
const nodeProcess = process;
nodeProcess.on("uncaughtException", (error) => {
  nodeProcess.stderr.write(String(error.stack).slice(-2000) + "\n");
  nodeProcess.exit(1);
});

const [folder, trace] = process.argv.slice(2);
const queries = JSON.parse(fs.readFileSync(0, "utf8"));

// The engine expects to be a worker, which loads its file with a synchronous request.
globalThis.self = globalThis;
globalThis.location = { href: "file:///engine_bundle.js" };
globalThis.WorkerGlobalScope = function WorkerGlobalScope() {};
globalThis.importScripts = () => {};
const bytes = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));
globalThis.XMLHttpRequest = class {
  open(_, url) {
    this.url = url;
  }
  send() {
    this.response = bytes(this.url);
  }
};
// Else it takes Node's own files instead of a worker's.
console.log = console.warn = console.info = (...words) => nodeProcess.stderr.write(words.join(" ") + "\n");
delete globalThis.process;

// Protocol buffers, as far as the engine's messages need them.
function varint(value) {
  const out = [];
  let rest = BigInt(value);
  for (; rest >= 0x80n; rest >>= 7n) out.push(Number(rest & 0x7fn) | 0x80);
  out.push(Number(rest));
  return Buffer.from(out);
}
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const message = (field, content) => Buffer.concat([varint((field << 3) | 2), varint(content.length), content]);
function* fields(buffer) {
  let at = 0;
  const read = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = buffer[at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < buffer.length) {
    const tag = Number(read());
    if ((tag & 7) === 0) yield [tag >> 3, read()];
    else if ((tag & 7) === 1) yield [tag >> 3, buffer.subarray(at, (at += 8))];
    else if ((tag & 7) === 5) yield [tag >> 3, buffer.subarray(at, (at += 4))];
    else {
      const length = Number(read());
      yield [tag >> 3, buffer.subarray(at, (at += length))];
    }
  }
}
function* packed(buffer) {
  let value = 0n;
  let shift = 0n;
  for (const byte of buffer) {
    value |= BigInt(byte & 0x7f) << shift;
    shift += 7n;
    if (byte < 0x80) {
      yield BigInt.asIntN(64, value);
      value = 0n;
      shift = 0n;
    }
  }
}

/// Adds the cells of a part of a result.
function cells(batch, into) {
  const parts = { 1: Buffer.alloc(0), 2: Buffer.alloc(0), 3: Buffer.alloc(0), 5: Buffer.alloc(0) };
  for (const [field, value] of fields(batch)) if (Buffer.isBuffer(value)) parts[field] = value;
  const integers = packed(parts[2]);
  const texts = parts[5].toString("utf8").split("\0");
  let [float, text] = [0, 0];
  for (const kind of parts[1]) {
    if (kind === 2) into.push(Number(integers.next().value));
    else if (kind === 3) into.push(parts[3].readDoubleLE(8 * float++));
    else if (kind === 4) into.push(texts[text++]);
    else into.push(null);
  }
}

let answer = { columns: 0, cells: [], error: null };
function onReply(reply) {
  for (const [, rpc] of fields(Buffer.from(reply))) {
    for (const [field, value] of fields(rpc)) {
      if (field === 5) throw new Error(value.toString("utf8"));
      if (field === 203) {
        for (const [part, content] of fields(value)) {
          if (part === 1) answer.columns++;
          if (part === 2 && content.length > 0) answer.error = content.toString("utf8");
          if (part === 3) cells(content, answer.cells);
        }
      }
      if (field === 201) {
        for (const [part, content] of fields(value)) if (part === 2 && content.length > 0) throw new Error(content.toString("utf8"));
      }
    }
  }
}
const port = { postMessage: onReply };
let sequence = 1;
function send(method, field, content) {
  const parts = [number(1, sequence++), number(2, method)];
  if (field) parts.push(message(field, content));
  port.onmessage({ data: new Uint8Array(message(1, Buffer.concat(parts))) });
}

vm.runInThisContext(bytes("engine_bundle.js").toString("utf8"));
globalThis.onmessage({ data: port });

function run() {
  const file = fs.openSync(trace, "r");
  const chunk = Buffer.alloc(16 << 20);
  for (let read; (read = fs.readSync(file, chunk)) > 0; ) {
    send(1, 101, chunk.subarray(0, read));
  }
  send(2);
  const answers = queries.map((sql) => {
    answer = { columns: 0, cells: [], error: null };
    send(3, 103, message(1, Buffer.from(sql)));
    if (answer.error) return { error: answer.error };
    const rows = [];
    for (let at = 0; at < answer.cells.length; at += answer.columns) rows.push(answer.cells.slice(at, at + answer.columns));
    return rows;
  });
  fs.writeSync(1, JSON.stringify(answers));
  nodeProcess.exit(0);
}
// The engine begins in this turn's microtasks.
setTimeout(run, 0);
