/** Reads a stream of events over as many connections as it takes. */
import { errorOf, FetchboxError } from "./errors.js";
import type { CallOptions, Http, Request } from "./http.js";
import { pauseMs, sleep } from "./retry.js";
import { type SseEvent, SseParser } from "./sse.js";

export interface StreamOptions extends CallOptions {
  /** The last event that is known; all events without it. */
  lastEventId?: string;
}

/** A stream that can go on behind any of its events. */
export interface Stream<T> {
  request: Request;
  /** Whether nothing follows an event of this type, unless the server sends more. */
  isLast: (type: string) => boolean;
  /** Whether the record says that the job or run has ended. */
  hasEnded: (signal?: AbortSignal) => Promise<boolean>;
  read: (event: SseEvent) => T;
}

/**
 * The events of a stream behind `lastEventId`. An event with an id moves the cursor, and the server sends what follows
 * the cursor: none is lost, and none comes twice. The greeting of a later connection is left out.
 *
 * A stream that ends without its last event may be that of a gateway that was stopped. So it is asked for again, until it
 * has nothing new since the record said that all is over.
 */
export async function* readStream<T>(
  http: Http,
  stream: Stream<T>,
  { signal, lastEventId = "" }: StreamOptions,
): AsyncGenerator<T, void, undefined> {
  let cursor = lastEventId;
  let begun = false;
  let over = false;
  let recordEnded = false;
  let losses = 0;
  let downSince = 0;
  while (true) {
    const resumed = begun;
    let moved = false;
    try {
      for await (const event of connection(http, stream.request, cursor, signal)) {
        if (event === COMPLETE) return;
        begun = true;
        losses = 0;
        if (event.type === "stream_error") throw errorOf(JSON.parse(event.data), 503);
        over = stream.isLast(event.type);
        if (event.id !== undefined) [cursor, moved] = [event.id, true];
        if (!resumed || event.type !== "hello") yield stream.read(event);
      }
      if (over || (recordEnded && !moved)) return;
      recordEnded = await stream.hasEnded(signal);
    } catch (error) {
      const found = http.failure(error, signal);
      if (over || (begun && found.reason === "NOT_FOUND")) return; // the record is gone, and with it what followed
      if (!found.isPassing) throw found;
      if (losses === 0) downSince = Date.now();
      const pause = pauseMs(http.retry, ++losses, found);
      if (Date.now() + pause - downSince > http.retry.patienceMs) throw found;
      await sleep(pause, signal);
    }
  }
}

/** The server says that the cursor has all of the stream. */
const COMPLETE = Symbol("complete");

/** The events of one connection, which is closed once nobody reads it. */
async function* connection(
  http: Http,
  request: Request,
  cursor: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<SseEvent | typeof COMPLETE, void, undefined> {
  const idle = new Idle(http.idleMs);
  const headers: Record<string, string> = { ...request.headers, Accept: "text/event-stream" };
  if (cursor) headers["Last-Event-ID"] = cursor;
  try {
    const both = signal ? AbortSignal.any([signal, idle.signal]) : idle.signal;
    const answer = await http.send({ ...request, headers }, both);
    if (answer.status === 204) yield COMPLETE;
    if (!answer.body) return;
    const parser = new SseParser();
    const decoder = new TextDecoder();
    const reader = answer.body.getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      idle.touch();
      yield* parser.feed(decoder.decode(piece.value, { stream: true }));
    }
  } finally {
    idle.end();
  }
}

/** Aborts a connection that says nothing for too long, and one that is over. */
class Idle {
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout>;

  constructor(readonly ms: number) {
    this.#timer = this.#started();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  touch(): void {
    clearTimeout(this.#timer);
    this.#timer = this.#started();
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#controller.abort();
  }

  #started(): ReturnType<typeof setTimeout> {
    const late = () => new FetchboxError("CONNECTION_LOST", `the stream said nothing for ${this.ms} ms`);
    return setTimeout(() => this.#controller.abort(late()), this.ms);
  }
}
