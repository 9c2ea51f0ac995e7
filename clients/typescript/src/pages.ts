/** Lists that come in pages. */
import type { CallOptions, Http, Request } from "./http.js";

type Page<Name extends string, T> = { [key in Name]: T[] } & { next_page_token?: string; nextPageToken?: string };

/** The entries of all pages of a list; `name` is their member in a page. */
export async function* listed<Name extends string, T>(
  http: Http,
  path: string,
  name: Name,
  query: NonNullable<Request["query"]>,
  call?: CallOptions,
): AsyncGenerator<T, void, undefined> {
  for (let token = "", first = true; first || token; first = false) {
    const page: Page<Name, T> = await http.call({ method: "GET", path, query: { ...query, page_token: token } }, call);
    yield* page[name];
    token = page.next_page_token ?? page.nextPageToken ?? "";
  }
}
