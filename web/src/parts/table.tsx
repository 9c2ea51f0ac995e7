/**
 * A table that becomes a list of blocks on a narrow screen. The roles are written out, since blocks lose those that
 * browsers give to tables.
 */
import type { ComponentChildren } from "preact";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  isNumber?: boolean;
}

export interface Choice {
  chosen: ReadonlySet<string>;
  choose: (chosen: Set<string>) => void;
}

interface Props<T> {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  choice?: Choice;
}

export function Table<T>({ caption, columns, rows, id, choice }: Props<T>) {
  return (
    <table role="table">
      <caption class="unseen">{caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          {choice && (
            <th role="columnheader" scope="col">
              <ChooseAll ids={rows.map(id)} choice={choice} />
            </th>
          )}
          {columns.map((column) => (
            <th key={column.name} role="columnheader" scope="col" class={column.isNumber ? "number" : undefined}>
              {column.name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr role="row" key={id(row)}>
            {choice && (
              <td role="cell" data-name="Choose">
                <Choose id={id(row)} choice={choice} />
              </td>
            )}
            {columns.map((column) => (
              <td key={column.name} role="cell" data-name={column.name} class={column.isNumber ? "number" : undefined}>
                <span class="value">{column.cell(row)}</span>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Choose({ id, choice }: { id: string; choice: Choice }) {
  const flip = (): void => {
    const next = new Set(choice.chosen);
    if (!next.delete(id)) next.add(id);
    choice.choose(next);
  };
  return <input type="checkbox" aria-label={`Choose ${id}`} checked={choice.chosen.has(id)} onChange={flip} />;
}

function ChooseAll({ ids, choice }: { ids: string[]; choice: Choice }) {
  const isAll = ids.length > 0 && ids.every((id) => choice.chosen.has(id));
  return (
    <input
      type="checkbox"
      aria-label="Choose all of this page"
      checked={isAll}
      onChange={() => choice.choose(new Set(isAll ? [] : ids))}
    />
  );
}
