// Errors by their reason, deadlines, and callers who want no more.
import assert from "node:assert/strict";
import { createServer } from "node:net";

import { Client, FetchboxError } from "@fetchbox/client";

import { all, client, GATEWAY } from "./hands.mjs";

const thrown = (promise) => promise.then(() => assert.fail("nothing was thrown"), (error) => error);

const missing = await thrown(client.jobs.get("none"));
assert.ok(missing instanceof FetchboxError);
assert.deepEqual([missing.reason, missing.status], ["NOT_FOUND", 404]);
assert.match(missing.message, /^NOT_FOUND: There is no job none/);
assert.equal((await thrown(all(client.jobs.watch("none")))).reason, "NOT_FOUND");
const invalid = await thrown(client.jobs.submit({ resources: [{ id: "a", url: "ftp://example.com/" }] }));
assert.equal(invalid.reason, "INVALID_PAYLOAD");
assert.deepEqual(invalid.violations.map((one) => one.field), ["resources[0].url"]);
assert.equal((await thrown(client.jobs.create("plan", {}))).reason, "UNSUPPORTED_JOB_TYPE");
const job = await client.jobs.create("tool", { n: 1 }, { idempotencyKey: "a-key" });
const conflict = await thrown(client.jobs.create("tool", { n: 2 }, { idempotencyKey: "a-key" }));
assert.deepEqual([conflict.reason, conflict.status, conflict.idempotencyKey], ["IDEMPOTENCY_CONFLICT", 409, "a-key"]);
assert.equal((await thrown(new Client(GATEWAY, { token: "nobody's" }).jobs.get(job.job_id))).reason, "UNAUTHORIZED");

// A caller's signal ends calls and streams with the caller's own reason.
const controller = new AbortController();
const watching = thrown((async () => {
  for await (const event of client.jobs.watch(job.job_id, { signal: controller.signal })) {
    if (event.type === "queued") controller.abort(new Error("enough"));
  }
})());
assert.equal((await watching).message, "enough");
assert.equal((await thrown(client.jobs.get(job.job_id, { signal: AbortSignal.abort(new Error("no")) }))).message, "no");
for await (const event of client.jobs.watch(job.job_id)) if (event.type === "queued") break;
await client.jobs.cancel(job.job_id);

// A server that answers nothing keeps nobody for ever; one that is not there is said to be so.
const silent = createServer(() => {});
await new Promise((ready) => silent.listen(0, "127.0.0.1", ready));
const { port } = silent.address();
const hasty = new Client(`http://127.0.0.1:${port}`, { timeoutMs: 150, idleMs: 50, retry: { patienceMs: 100 } });
assert.equal((await thrown(hasty.jobs.create("tool", {}))).reason, "DEADLINE_EXCEEDED");
assert.equal((await thrown(all(hasty.jobs.watch("any")))).reason, "CONNECTION_LOST");
silent.close();
const nowhere = new Client("http://127.0.0.1:1", { retry: { attempts: 2, firstPauseMs: 1 } });
const lost = await thrown(nowhere.jobs.create("tool", {}));
assert.equal(lost.reason, "CONNECTION_LOST");
assert.match(lost.idempotencyKey, /^[0-9a-f]{32}$/);
process.exit(0); // the silent server keeps its connections
