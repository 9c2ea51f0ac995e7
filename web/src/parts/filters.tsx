/** The filters of a list, in the URL, so that a list can be shared as it is. */
import { changed, go, type Route } from "../shell/route";

export interface Filter {
  name: string;
  label: string;
  /** A choice among these; free text without them. */
  options?: readonly string[];
}

export function Filters({ route, filters }: { route: Route; filters: Filter[] }) {
  const apply = (form: HTMLFormElement): void => {
    const given = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value).trim()]));
    go(changed(route, { ...given, page: "" }));
  };
  const isFiltered = filters.some((filter) => route.params.get(filter.name));
  const submit = (event: Event): void => {
    event.preventDefault();
    apply(event.currentTarget as HTMLFormElement);
  };
  return (
    <form class="filters" role="search" aria-label="Filters" onSubmit={submit}>
      {filters.map((filter) => (
        <label key={filter.name}>
          <span>{filter.label}</span>
          <Field filter={filter} value={route.params.get(filter.name) ?? ""} apply={apply} />
        </label>
      ))}
      <button type="submit">Filter</button>
      {isFiltered && <a href={changed({ ...route, params: new URLSearchParams() }, {})}>Clear</a>}
    </form>
  );
}

function Field({ filter, value, apply }: { filter: Filter; value: string; apply: (form: HTMLFormElement) => void }) {
  // What is typed is the reader's until it is applied: a list that is read again does not put the old text back.
  if (!filter.options) return <input key={value} name={filter.name} defaultValue={value} spellcheck={false} autocomplete="off" />;
  return (
    <select name={filter.name} value={value} onChange={(event) => event.currentTarget.form && apply(event.currentTarget.form)}>
      <option value="">any</option>
      {filter.options.map((option) => (
        <option key={option} value={option}>
          {option.replace("_", " ")}
        </option>
      ))}
    </select>
  );
}
