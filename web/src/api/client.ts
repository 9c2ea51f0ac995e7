/** Calls of the documented API, with the reader's token. */
import { ApiError, type Detail } from "./errors";
import { askForToken, session } from "./session";

export type Params = Record<string, string | number | boolean | undefined>;

/** The page is at `…/ui/`, so the API is one level up, whatever prefix a proxy puts before both. */
const ROOT = new URL("../", document.baseURI);

export function address(path: string, params: Params = {}): string {
  // With the dot `workers:pause` is a path, and no scheme.
  const url = new URL(`.${path}`, ROOT);
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

export function headers(more: Record<string, string> = {}): Record<string, string> {
  const { token } = session.value;
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

/** Asks; throws `ApiError` for an answer that is none, and for none. */
export async function get<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
  return read<T>(await send(address(path, params), { headers: headers({ Accept: "application/json" }), signal }));
}

/** Steers; throws as `get` does. */
export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const own = headers({ Accept: "application/json", "Content-Type": "application/json" });
  return read<T>(await send(address(path), { method: "POST", headers: own, body: JSON.stringify(body), signal }));
}

export async function send(url: string, options: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(url, { ...options, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "UNREACHABLE", "The gateway does not answer.");
  }
  if (!answer.ok) throw await failure(answer);
  return answer;
}

async function read<T>(answer: Response): Promise<T> {
  return (await answer.json()) as T;
}

async function failure(answer: Response): Promise<ApiError> {
  if (answer.status === 401) askForToken();
  const reason = answer.headers.get("x-fetchbox-error") ?? "";
  try {
    const status = (await answer.json()) as { message?: string; details?: Detail[] };
    return new ApiError(answer.status, reason, status.message ?? answer.statusText, status.details);
  } catch {
    return new ApiError(answer.status, reason, answer.statusText);
  }
}
