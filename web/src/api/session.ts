/**
 * The bearer token of the reader.
 *
 * It is kept in memory alone: neither in the URL, which is shared and logged, nor in a storage of the browser. Storage
 * belongs to the whole origin, so behind a proxy that serves other applications under other paths their scripts could
 * read it. A reload asks again; the field is one that password managers fill.
 */
import { Store } from "../store";

interface Session {
  token: string;
  /** Whether the gateway has asked for a token, or refused the one that was given. */
  isAsked: boolean;
}

export const session = new Store<Session>({ token: "", isAsked: false });

export function signIn(token: string): void {
  session.value = { token, isAsked: false };
}

export function signOut(): void {
  session.value = { token: "", isAsked: true };
}

export function askForToken(): void {
  if (!session.value.isAsked) session.value = { ...session.value, isAsked: true };
}
