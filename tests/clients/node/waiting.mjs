// Servers that ask to wait, streams that break in every way, and the parser of events: by a server of the test's own.
import assert from "node:assert/strict";
import { createServer } from "node:http";

import { Client, SseParser } from "@fetchbox/client";

import { all } from "./hands.mjs";

const script = [];
const cursors = [];
const server = createServer((request, response) => {
  cursors.push(request.headers["last-event-id"] ?? "");
  script.shift()(request, response);
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const base = `http://127.0.0.1:${server.address().port}`;
const client = new Client(base, { retry: { firstPauseMs: 1 }, idleMs: 200 });
const json = (status, body, headers = {}) => (_, response) =>
  response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(body));
const info = (reason) => ({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason, domain: "fetchbox" });
const frame = (type, id) => `event: ${type}\n${id ? `id: ${id}\n` : ""}data: ${JSON.stringify({ type, data: {} })}\n\n`;
const events = (text, end = (response) => response.end()) => (_, response) => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.write(text, () => end(response));
};
const watched = async () => {
  cursors.length = 0;
  const found = (await all(client.jobs.watch("j"))).map((event) => event.id ?? event.type);
  assert.equal(script.length, 0);
  return found;
};

// 429 and 503 are waited for and repeated, with the same key; 413 is not.
const keys = [];
const counted = (answer) => (request, response) => {
  keys.push(request.headers["idempotency-key"]);
  answer(request, response);
};
script.push(counted(json(429, { message: "full", details: [info("RATE_LIMITED")] }, { "Retry-After": "0" })));
script.push(counted(json(503, "no JSON of FetchBox")), counted(json(202, { job_id: "j" })));
assert.equal((await client.jobs.create("tool", {})).job_id, "j");
assert.equal(new Set(keys).size, 1);
script.push(json(413, { message: "large", details: [info("PAYLOAD_TOO_LARGE")] }));
await assert.rejects(client.jobs.create("tool", {}), { reason: "PAYLOAD_TOO_LARGE" });
script.push((_, response) => response.end("<html>"));
await assert.rejects(client.jobs.get("j"), { reason: "UNKNOWN" });

// The connection breaks, says nothing, or reports that the gateway lost the stream: it goes on behind the last event.
const broken = `event: stream_error\ndata: ${JSON.stringify({ message: "gone", details: [info("UNAVAILABLE")] })}\n\n`;
script.push(events(frame("hello") + frame("token", "1-0"), (response) => response.destroy()));
script.push(events(frame("hello") + frame("token", "2-0"), () => {}));
script.push(events(frame("hello") + frame("token", "3-0") + broken));
script.push(events(frame("hello") + frame("gap") + frame("done", "4-0")));
assert.deepEqual(await watched(), ["hello", "1-0", "2-0", "3-0", "gap", "4-0"]);
assert.deepEqual(cursors, ["", "1-0", "2-0", "3-0"]);

// A stream that a stopped gateway ended goes on; it is over when the record has ended and nothing new comes, or by 204.
script.push(events(frame("hello")), json(200, { status: "running" }));
script.push(events(frame("hello") + frame("token", "1-0")), json(200, { status: "done" }), events(frame("hello")));
assert.deepEqual(await watched(), ["hello", "1-0"]);
script.push(events(frame("token", "1-0")), json(200, { status: "running" }), (_, response) => response.writeHead(204).end());
assert.deepEqual(await watched(), ["1-0"]);
script.push(events(frame("token", "1-0")), json(404, { message: "expired", details: [info("NOT_FOUND")] }));
assert.deepEqual(await watched(), ["1-0"]);

// Who leaves a stream closes its connection.
const left = new Promise((gone) => {
  script.push((request, response) => {
    response.on("close", gone);
    events(frame("hello"), () => {})(request, response);
  });
});
for await (const event of client.jobs.watch("j")) if (event.type === "hello") break;
await left;

// Events are read alike, wherever the network cuts them.
const text = '\uFEFF: hi\r\ndata: a\rdata:b\n\nevent: x\nid: 7\r\ndata\r\n\r\nid: no\n\nretry: 1\ndata:  ž\n\nevent: late\ndata: cut off';
const expected = [
  { type: "message", data: "a\nb", id: undefined },
  { type: "x", data: "", id: "7" },
  { type: "message", data: " ž", id: undefined },
];
for (let first = 0; first <= text.length; first++) {
  for (let second = first; second <= text.length; second++) {
    const parser = new SseParser();
    const pieces = [text.slice(0, first), text.slice(first, second), text.slice(second)];
    assert.deepEqual(pieces.flatMap((piece) => parser.feed(piece)), expected);
  }
}
server.closeAllConnections();
server.close();
