// A direct producer: npm install && node producer.mjs https://example.com/
import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";

import { Redis } from "ioredis";
import protobuf from "protobufjs";

const PARTITIONS = 8; // streams.tasks.partitions
const PROTO = process.env.FETCHBOX_PROTO ?? fileURLToPath(new URL("../../proto/fetchbox/jobs/jobs.proto", import.meta.url));

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});

/** CRC-32 (IEEE) of the UTF-8 text; it decides the partition of a job. */
function crc32(text) {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text)) crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

if (process.argv.length !== 3) {
  console.error("REDIS_ADDR=127.0.0.1:6379 node producer.mjs https://example.com/");
  process.exit(2);
}
const root = await protobuf.load(PROTO);
const DownloadTask = root.lookupType("fetchbox.jobs.DownloadTask");
const jobId = `node-${randomUUID()}`;
const task = DownloadTask.create({
  jobId,
  jobType: "default",
  resourceId: "page",
  url: process.argv[2],
  headers: [{ name: "referer", value: "https://example.org/" }], // names in lower case
  resourcesTotal: 1, // without it the job ends by its idle timeout
  resourceIndex: 1,
});

const [host, port] = (process.env.REDIS_ADDR ?? "127.0.0.1:6379").split(":");
const redis = new Redis({ host, port: Number(port) });
const stream = `fetchbox.jobs.tasks:${crc32(jobId) % PARTITIONS}`;
const entry = await redis.xadd(stream, "*", "payload", Buffer.from(DownloadTask.encode(task).finish()));
console.log(jobId, entry);
redis.disconnect();
