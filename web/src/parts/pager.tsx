/** The way through a list by its cursors: back to the newest, on to older ones. */
import { changed, type Route } from "../shell/route";

export function Pager({ route, next }: { route: Route; next: string | undefined }) {
  const page = route.params.get("page");
  if (!page && !next) return null;
  return (
    <nav class="pager" aria-label="More of this list">
      {page && <a href={changed(route, { page: "" })}>Newest</a>}
      {page && (
        <button type="button" onClick={() => history.back()}>
          Back
        </button>
      )}
      {next ? <a href={changed(route, { page: next })}>Older</a> : <span class="muted">This is the end.</span>}
    </nav>
  );
}
