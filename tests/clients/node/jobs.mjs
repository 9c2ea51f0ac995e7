// A fetch job, task jobs and dead letters, from their beginning to their end.
import assert from "node:assert/strict";

import { isFetchboxError, JobFailedError } from "@fetchbox/client";

import { all, client, hand, SITE, TENANT_TOKEN, GATEWAY } from "./hands.mjs";

const types = async (jobId, options) => (await all(client.jobs.watch(jobId, options))).map((event) => event.type);

// A manifest is submitted, watched, and its results are read.
const resources = [
  { id: "photo", url: `${SITE}/photo.jpg` },
  { id: "gone", url: `${SITE}/status/404` },
];
const fetched = await client.jobs.submit({ resources, metadata: { title: "two" } });
assert.equal(fetched.resource_count, 2);
const seen = await types(fetched.job_id);
assert.deepEqual([seen[0], seen.at(-1)], ["hello", "done"]);
const snapshot = await client.jobs.snapshot(fetched.job_id);
assert.deepEqual([snapshot.status, snapshot.resource_completed], ["partial", 1]);
const results = await client.jobs.results(fetched.job_id, (bucket, key) => hand("read", bucket, key));
assert.deepEqual(Object.fromEntries(results.map((one) => [one.resource_id, one.state])), { photo: "stored", gone: "failed" });

// A task job gives its result; its events have what was reported.
const job = await client.jobs.create("tool", { text: "ž" }, { ttlSeconds: 600 });
await assert.rejects(client.jobs.results(job.job_id, () => assert.fail()), { reason: "FAILED_PRECONDITION" });
assert.deepEqual(await hand("claim", job.job_id), { text: "ž" });
await hand("tokens", "a", "b");
const events = [];
for await (const event of client.jobs.watch(job.job_id)) {
  events.push(event);
  if (event.data?.text === "b") await hand("complete", { words: [1] });
}
assert.deepEqual(events.map((event) => event.type), ["hello", "queued", "running", "token", "token", "done"]);
assert.ok(events[1].ts > 1.7e12 && events[1].id && events[0].id === undefined);
assert.deepEqual(await client.jobs.result(job.job_id), { words: [1] });
assert.deepEqual(await types(job.job_id, { lastEventId: events.at(-1).id }), [], "it has the last event");
assert.deepEqual(await types(job.job_id, { lastEventId: events.at(-2).id }), ["hello", "done"]);

// Lists come page by page; what is canceled has no result.
const other = await client.jobs.create("tool", {});
assert.equal((await client.jobs.cancel(other.job_id)).status, "canceled");
await assert.rejects(client.jobs.result(other.job_id), (error) => {
  assert.ok(error instanceof JobFailedError);
  assert.deepEqual([error.jobStatus, error.code], ["canceled", "SYSTEM_CANCELED"]);
  return true;
});
const listed = (await all(client.jobs.list({ task: "tool", page_size: 1 }))).map((one) => one.job_id);
assert.deepEqual(listed.slice(0, 2), [other.job_id, job.job_id]);

// Dead letters are replayed and purged; an end that was taken back is not the last event.
const failing = await client.jobs.create("tool", {});
await hand("claim", failing.job_id);
await hand("fail", "VALIDATION_PAYLOAD", "no such thing");
await assert.rejects(client.jobs.result(failing.job_id), { code: "VALIDATION_PAYLOAD" });
const [letter] = await all(client.deadLetters.list({ job_id: failing.job_id }));
assert.deepEqual([letter.task, letter.failure_code], ["tool", "VALIDATION_PAYLOAD"]);
assert.deepEqual((await client.deadLetters.replay({ positions: [letter.position] }))[0].outcome, "replayed");
await hand("claim", failing.job_id);
await hand("complete", 1);
assert.deepEqual((await types(failing.job_id)).slice(3), ["error", "replayed", "running", "done"]);
assert.equal((await client.deadLetters.purge({ positions: [letter.position] })).purged, 1);

// A tenant sees its own jobs, and nothing of the operators.
const { Client } = await import("@fetchbox/client");
const tenant = new Client(GATEWAY, { token: TENANT_TOKEN, tenant: "acme" });
const own = await tenant.jobs.create("tool", {});
await tenant.jobs.cancel(own.job_id);
assert.deepEqual([...new Set((await all(tenant.jobs.list())).map((one) => one.tenant))], ["acme"]);
await assert.rejects(tenant.jobs.snapshot(own.job_id), (error) => isFetchboxError(error, "FORBIDDEN"));
