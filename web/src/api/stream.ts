/**
 * Event streams of the API. `EventSource` cannot send a token, so this reads the stream of a fetch.
 *
 * A browser opens six connections to a host: the stream of a tab that nobody looks at is closed, and resumed behind the
 * last event when the tab is looked at again.
 */
import { useEffect, useState } from "preact/hooks";
import { useStore } from "../store";
import { address, headers, type Params, send } from "./client";
import { type ApiError, asApiError } from "./errors";
import { session } from "./session";
import { type Message, SseReader } from "./sse";

export type StreamState = "connecting" | "live" | "paused" | "over" | "broken";

/** The most events that a page holds. */
const MOST = 2000;
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

/** Listens until the stream is over, or the returned function is called. */
export function listen(
  url: string,
  onMessages: (messages: Message[]) => void,
  onState: (state: StreamState, error?: ApiError) => void,
): () => void {
  const reader = new SseReader();
  let controller = new AbortController();
  let timer = 0;
  let pause = FIRST_PAUSE;
  let isOver = false;

  const copy = async (answer: Response): Promise<void> => {
    if (!answer.body) return;
    const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await pieces.read(); !piece.done; piece = await pieces.read()) {
      pause = FIRST_PAUSE;
      const found = reader.feed(piece.value);
      if (found.length > 0) onMessages(found);
    }
  };
  const connect = async (): Promise<void> => {
    controller = new AbortController();
    onState("connecting");
    const own: Record<string, string> = { Accept: "text/event-stream" };
    if (reader.lastId) own["Last-Event-ID"] = reader.lastId;
    try {
      const answer = await send(url, { headers: headers(own), signal: controller.signal });
      if (answer.status === 204) return end("over");
      onState("live");
      await copy(answer);
    } catch (error) {
      if (controller.signal.aborted) return;
      const told = asApiError(error);
      if (told.status > 0 && !told.mayPass) return end("broken", told);
      onState("connecting", told);
    }
    if (!isOver && !controller.signal.aborted) timer = window.setTimeout(() => void connect(), pause);
    pause = Math.min(LONGEST_PAUSE, pause * 2);
  };
  const end = (state: StreamState, error?: ApiError): void => {
    isOver = true;
    document.removeEventListener("visibilitychange", seen);
    onState(state, error);
  };
  const seen = (): void => {
    window.clearTimeout(timer);
    controller.abort();
    if (document.hidden) onState("paused");
    else void connect();
  };
  document.addEventListener("visibilitychange", seen);
  if (document.hidden) onState("paused");
  else void connect();
  return () => {
    isOver = true;
    window.clearTimeout(timer);
    controller.abort();
    document.removeEventListener("visibilitychange", seen);
  };
}

export interface Streamed<T> {
  items: T[];
  state: StreamState;
  error: ApiError | undefined;
  /** How many older ones are left out. */
  dropped: number;
}

/** The events of a stream that `parse` makes something of; null as a path for no stream. A new `round` begins anew. */
export function useStream<T>(
  path: string | null,
  params: Params,
  parse: (message: Message) => T | null,
  round = 0,
): Streamed<T> {
  const { token } = useStore(session);
  const url = path === null ? null : address(path, params);
  const [seen, setSeen] = useState<Streamed<T>>({ items: [], state: "connecting", error: undefined, dropped: 0 });
  useEffect(() => {
    setSeen({ items: [], state: "connecting", error: undefined, dropped: 0 });
    if (url === null) return undefined;
    return listen(
      url,
      (messages) => {
        const found = messages.map(parse).filter((one): one is Awaited<T> & T => one !== null);
        if (found.length > 0) setSeen((old) => joined(old, found));
      },
      (state, error) => setSeen((old) => ({ ...old, state, error })),
    );
  }, [url, token, round]);
  return seen;
}

function joined<T>(old: Streamed<T>, found: T[]): Streamed<T> {
  const items = [...old.items, ...found];
  const extra = Math.max(0, items.length - MOST);
  return { ...old, items: items.slice(extra), dropped: old.dropped + extra };
}
