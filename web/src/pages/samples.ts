/** What the overview has seen since this page was opened, for its charts. */
import type { JobCounts, Streams } from "../api/types";

export interface Sample {
  at: number;
  ended: number;
  failed: number;
  waiting: number;
  running: number;
  oldest: number;
}

const MOST = 240;
const samples: Sample[] = [];

export function sampled(counts: JobCounts | undefined, streams: Streams): Sample[] {
  const work = streams.partitions.filter(isWork);
  samples.push({
    at: Date.now(),
    ended: sum([counts?.completed, counts?.partial, counts?.failed, counts?.canceled]),
    failed: sum([counts?.failed, counts?.partial]),
    waiting: sum(work.flatMap((one) => [one.waiting, one.delayed])),
    running: sum(work.map((one) => one.pending)),
    oldest: Math.max(0, ...work.map((one) => Number(one.oldest_age_seconds ?? 0))),
  });
  samples.splice(0, samples.length - MOST);
  return [...samples];
}

/** Partitions and queues that workers take work from. */
export function isWork(partition: { stream: string }): boolean {
  return !/\.(status|logs|dlq)$/.test(partition.stream);
}

/** How many more a minute, from one sample to the next; retention removes some, which is no work. */
export function perMinute(all: Sample[], of: (sample: Sample) => number): number[] {
  return all.slice(1).map((sample, at) => {
    const before = all[at] ?? sample;
    const minutes = (sample.at - before.at) / 60_000;
    return minutes > 0 ? Math.max(0, (of(sample) - of(before)) / minutes) : 0;
  });
}

export function sum(values: (string | number | undefined)[]): number {
  return values.reduce<number>((total, value) => total + Number(value ?? 0), 0);
}
