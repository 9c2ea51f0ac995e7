/** Reads something again and again, while the tab is looked at. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, type Params } from "./client";
import { type ApiError, asApiError } from "./errors";
import { session } from "./session";
import { useStore } from "../store";

const SLOWEST = 60_000;
const SOON = 300;

export interface Polled<T> {
  data: T | undefined;
  error: ApiError | undefined;
  isLoading: boolean;
  reload: () => void;
  /** Ends a read that takes long. */
  stop: () => void;
}

/** `path` may be null for nothing to read; `every` is in milliseconds, 0 for once. */
export function usePoll<T>(path: string | null, params: Params = {}, every = 5000): Polled<T> {
  const key = path === null ? null : `${path} ${JSON.stringify(params)}`;
  return useReading<T>(key, (signal) => get<T>(path ?? "", params, signal), every);
}

/** The same with a read of one's own; it begins anew when `key` changes. */
export function useReading<T>(key: string | null, read: (signal: AbortSignal) => Promise<T>, every = 5000): Polled<T> {
  const { token } = useStore(session);
  const [state, setState] = useState<{ key: string | null; data?: T; error?: ApiError; isLoading: boolean }>({
    key,
    isLoading: key !== null,
  });
  const latest = useRef(read);
  latest.current = read;
  const running = useRef<AbortController | null>(null);
  const again = useRef<() => void>(() => undefined);

  useEffect(() => {
    setState((old) => ({ key, data: old.key === key ? old.data : undefined, isLoading: key !== null }));
    if (key === null) return undefined;
    let timer = 0;
    let failures = 0;
    let isOver = false;
    let isWanted = false;
    const once = async (): Promise<void> => {
      window.clearTimeout(timer);
      running.current?.abort();
      const controller = new AbortController();
      running.current = controller;
      setState((old) => ({ ...old, isLoading: true }));
      isWanted = false;
      try {
        const data = await latest.current(controller.signal);
        if (isOver || running.current !== controller) return;
        failures = 0;
        setState({ key, data, isLoading: false });
      } catch (error) {
        if (isOver || running.current !== controller) return;
        failures += 1;
        const told = controller.signal.aborted ? undefined : asApiError(error);
        running.current = null;
        setState((old) => ({ ...old, error: told, isLoading: false }));
        if (told === undefined || !told.mayPass) return;
      }
      if (running.current === controller) running.current = null;
      const later = failures > 0 ? Math.min(SLOWEST, Math.max(every, 1000) * 2 ** (failures - 1)) : every;
      const pause = isWanted ? SOON : later;
      if (pause > 0 && !document.hidden) timer = window.setTimeout(() => void once(), pause);
    };
    const seen = (): void => {
      if (document.hidden) window.clearTimeout(timer);
      else if (every > 0) void once();
    };
    // What runs is not ended by who wants it anew: under a stream of events it would never come to its end.
    again.current = () => {
      if (running.current && !running.current.signal.aborted) isWanted = true;
      else void once();
    };
    document.addEventListener("visibilitychange", seen);
    void once();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
      running.current?.abort();
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, every, token]);

  const isCurrent = state.key === key;
  return {
    data: isCurrent ? state.data : undefined,
    error: isCurrent ? state.error : undefined,
    isLoading: isCurrent ? state.isLoading : key !== null,
    reload: useCallback(() => again.current(), []),
    stop: useCallback(() => running.current?.abort(), []),
  };
}
