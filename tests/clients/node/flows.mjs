// Flow runs: started, approved, signaled, tailed; rejected; canceled.
import assert from "node:assert/strict";

import { all, client } from "./hands.mjs";

const { flow, secrets } = await client.flows.start("review", { parcel: "p 1" }, { tags: ["blue"] });
assert.deepEqual(secrets.map((secret) => secret.stepKey), ["ask"]);
const kinds = [];
for await (const event of client.flows.tail(flow.flowId)) {
  kinds.push(event.kind);
  if (event.kind !== "step.await.scheduled") continue;
  if (event.meta.stepKey === "ask") {
    const gate = await client.flows.approve(flow.flowId, "ask", { by: "me" }, { secret: secrets[0].secret });
    assert.deepEqual([gate.state, gate.by], ["triggered", "manual"]);
  } else {
    const answer = await client.flows.signal("parcel.sent", "p 1", { at: 1 });
    assert.ok(answer.released === 1 || answer.parked);
  }
}
assert.deepEqual([kinds[0], kinds.at(-1)], ["flow.start", "flow.complete"]);
assert.deepEqual((await client.flows.get(flow.flowId)).result, { by: "me" });
assert.ok((await all(client.flows.list({ flow_name: "review", tag: "blue" }))).some((one) => one.flowId === flow.flowId));
assert.deepEqual((await all(client.flows.tail(flow.flowId, { last: 1 }))).map((one) => one.kind), ["flow.complete"]);
const steps = await all(client.flows.tail(flow.flowId, { view: "steps" }));
assert.ok(steps.length && steps.every((one) => one.kind === "flow.step.patch"), "a view without a last event ends too");

const rejected = (await client.flows.start("review", {})).flow.flowId;
let last;
for await (const event of client.flows.tail(rejected, { kinds: ["step.await.*", "flow.**"] })) {
  last = event.kind;
  if (last === "step.await.scheduled") await client.flows.reject(rejected, "ask");
}
assert.equal(last, "flow.failed");
const canceled = (await client.flows.start("review", {})).flow.flowId;
assert.equal((await client.flows.cancel(canceled, { reason: "enough" })).status, "cancelled");
