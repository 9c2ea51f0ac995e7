// Answers that get lost: what has an idempotency key is repeated and makes one job; a signal is not repeated.
import assert from "node:assert/strict";

import { Client } from "@fetchbox/client";

import { all, client, hand, TOKEN } from "./hands.mjs";

const ids = async () => new Set((await all(client.jobs.list())).map((job) => job.job_id));
const runs = async () => new Set((await all(client.flows.list())).map((flow) => flow.flowId));
const unlucky = async (losses) => new Client(`http://${await hand("lose", losses)}`, { token: TOKEN });
const fresh = (before, after) => [...after].filter((id) => !before.has(id));

for (const make of [
  async (one) => (await one.jobs.create("tool", {})).job_id,
  async (one) => (await one.jobs.submit({ resources: [{ id: "a", url: "http://127.0.0.1:1/" }] })).job_id,
]) {
  const before = await ids();
  const made = await make(await unlucky(2));
  assert.equal(await hand("losses"), 0, "two answers were lost");
  assert.deepEqual(fresh(before, await ids()), [made]);
  await client.jobs.cancel(made);
}
const before = await runs();
const { flow } = await (await unlucky(1)).flows.start("review", {});
assert.deepEqual(fresh(before, await runs()), [flow.flowId]);
await client.flows.cancel(flow.flowId);
await assert.rejects((await unlucky(1)).flows.signal("parcel.sent", "lost"), { reason: "CONNECTION_LOST" });
assert.equal(await hand("losses"), 0);
