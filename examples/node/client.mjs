// Creates a task job by gRPC and watches it, across restarts of the server: npm install && node client.mjs TASK PAYLOAD
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const ROOT = process.env.FETCHBOX_SOURCE ?? fileURLToPath(new URL("../../", import.meta.url));
const definition = await protoLoader.load("fetchbox/task/v1/task_service.proto", {
  includeDirs: [`${ROOT}/proto`, `${ROOT}/third_party`],
  keepCase: true,
  longs: Number,
});
const { TaskService } = grpc.loadPackageDefinition(definition).fetchbox.task.v1;
const client = new TaskService(process.env.FETCHBOX_INGEST ?? "127.0.0.1:50051", grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
if (process.env.FETCHBOX_TOKEN) metadata.set("authorization", `Bearer ${process.env.FETCHBOX_TOKEN}`);
const PATIENCE_MS = 60_000;
const ENDS = new Set(["done", "error", "canceled"]);

/** Repeats what a lost connection ended; anything else is thrown. */
async function persistent(attempt) {
  for (const began = Date.now(); ; await sleep(500)) {
    try {
      return await attempt();
    } catch (error) {
      if (error.code !== grpc.status.UNAVAILABLE || Date.now() - began > PATIENCE_MS) throw error;
    }
  }
}

function call(method, request) {
  const once = () =>
    new Promise((resolve, reject) => {
      const options = { deadline: Date.now() + 10_000 };
      client[method](request, metadata, options, (error, answer) => (error ? reject(error) : resolve(answer)));
    });
  return persistent(once);
}

/** Prints the events of a job behind the last one that was printed. */
async function watch(job_id) {
  let last_event_id = "";
  let type = "";
  await persistent(async () => {
    for await (const event of client.WatchJob({ job_id, last_event_id }, metadata)) {
      ({ type } = event);
      last_event_id = event.id || last_event_id;
      console.log(type, event.data.toString());
    }
    if (!ENDS.has(type)) throw Object.assign(new Error("the stream ended too early"), { code: grpc.status.UNAVAILABLE });
  });
}

const [task = "chat", payload = '{"prompt": "hello"}'] = process.argv.slice(2);
// With an idempotency key a call whose answer was lost can be repeated without making a second job.
const { job_id } = await call("CreateJob", { task, payload: Buffer.from(payload), idempotency_key: randomUUID() });
await watch(job_id);
const { status, result } = await call("GetJob", { job_id });
console.log(status, result.toString());
client.close();
process.exitCode = status === "done" ? 0 : 1;
