// What the scenarios have in common: the client, and the hands of the test, which plays the worker and kills servers.
import { createInterface } from "node:readline";

import { Client } from "@fetchbox/client";

export const { GATEWAY, TOKEN, TENANT_TOKEN, SITE } = process.env;
export const client = new Client(GATEWAY, { token: TOKEN });

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
process.stdin.unref(); // it keeps no scenario alive that has come to its end

/** Asks the test to do something, and waits until it is done. */
export async function hand(action, ...given) {
  process.stdout.write(`${JSON.stringify([action, ...given])}\n`);
  process.stdin.ref();
  const answer = await answers.next();
  process.stdin.unref();
  return JSON.parse(answer.value);
}

/** All of an async iterable. */
export async function all(source) {
  const found = [];
  for await (const one of source) found.push(one);
  return found;
}
