// A producer of file jobs in Node, without a package: REDIS_ADDR=127.0.0.1:6379 node examples/files/producer.mjs [--high] FILE...
// The worker must see the file under the same path, below one of its `worker.file_roots`.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { statSync } from "node:fs";
import { connect } from "node:net";
import { resolve } from "node:path";

const [host, port] = (process.env.REDIS_ADDR ?? "127.0.0.1:6379").split(/:(?=\d+$)/);
const high = process.argv[2] === "--high";
const queue = high ? "jobqueue:high_priority" : "jobqueue:low_priority"; // worker.queues

const command = (...parts) =>
  `*${parts.length}\r\n` + parts.map((part) => `$${Buffer.byteLength(part)}\r\n${part}\r\n`).join("");

const redis = connect(Number(port), host);
for (const name of process.argv.slice(high ? 3 : 2)) {
  const path = resolve(name);
  const job = {
    id: `node-${randomUUID()}`,
    filepath: path,
    filesize: statSync(path).size,
    priority: high ? "high" : "low",
    retries: 0,
    creation_time: new Date().toISOString(),
    trace_id: "",
    span_id: "",
  };
  redis.write(command("LPUSH", queue, JSON.stringify(job)));
  const [answer] = await once(redis, "data");
  if (!answer.toString().startsWith(":")) throw new Error(`Redis says: ${answer}`);
  console.log(job.id);
}
redis.end();
