// Submits a manifest by REST and follows its job to the end: make node && node examples/node/submit.mjs MANIFEST
import { readFile } from "node:fs/promises";

import { Client } from "@fetchbox/client";

const client = new Client(`http://${process.env.FETCHBOX_GATEWAY ?? "127.0.0.1:8080"}`, {
  token: process.env.FETCHBOX_TOKEN ?? "",
});
const { job_id } = await client.jobs.submit(await readFile(process.argv[2], "utf8"));
for await (const event of client.jobs.watch(job_id)) console.log(event.type, JSON.stringify(event.data));
const job = await client.jobs.snapshot(job_id);
console.log(`${job.status}: ${job.resource_completed} of ${job.resource_total} stored; results: ${job.results_key}`);
process.exitCode = job.status === "completed" ? 0 : 1;
