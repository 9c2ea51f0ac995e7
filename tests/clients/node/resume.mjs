// The gateway is killed with -9 in mid-stream, and later stopped: each event comes once, in order.
import assert from "node:assert/strict";

import { client, hand } from "./hands.mjs";

const job = await client.jobs.create("tool", {});
await hand("claim", job.job_id);
const seen = [];
const ids = new Set();
for await (const event of client.jobs.watch(job.job_id)) {
  seen.push(event.type === "token" ? event.data.text : event.type);
  if (event.id) ids.add(event.id);
  const last = seen.at(-1);
  if (last === "running") await hand("tokens", "1", "2", "3");
  if (last === "3") await hand("kill", ["4", "5"]);
  if (last === "5") await hand("stop", ["6"]);
  if (last === "6") await hand("complete", "end");
}
assert.deepEqual(seen, ["hello", "queued", "running", "1", "2", "3", "4", "5", "6", "done"]);
assert.equal(ids.size, seen.length - 1);
