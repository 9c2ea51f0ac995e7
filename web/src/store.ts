import { useEffect, useState } from "preact/hooks";

/** A value that parts of the page share, and its listeners. */
export class Store<T> {
  private readonly listeners = new Set<() => void>();

  constructor(private held: T) {}

  get value(): T {
    return this.held;
  }

  set value(next: T) {
    if (next === this.held) return;
    this.held = next;
    this.listeners.forEach((listener) => listener());
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** The value of a store, drawn again when it changes. */
export function useStore<T>(store: Store<T>): T {
  const [, draw] = useState(0);
  useEffect(() => store.subscribe(() => draw((times) => times + 1)), [store]);
  return store.value;
}
