/**
 * Where the reader is, as the fragment of the URL: `#/jobs?status=failed`.
 *
 * A fragment can be shared and stands in no server's log, and the page works below any path of a proxy.
 */
import { Store } from "../store";

export interface Route {
  path: string[];
  params: URLSearchParams;
}

export const route = new Store<Route>(read());

window.addEventListener("hashchange", () => {
  route.value = read();
});

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(decoded), params: new URLSearchParams(query) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function href(path: string[], params: Record<string, string | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value) query.set(name, value);
  const text = query.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(to: string): void {
  location.hash = to;
}

/** The parameters of the route as they are, with some of them changed; an empty one goes. */
export function changed(current: Route, changes: Record<string, string>): string {
  return href(current.path, { ...Object.fromEntries(current.params), ...changes });
}
