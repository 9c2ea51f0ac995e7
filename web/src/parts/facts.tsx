/** Names and values of one thing; those without a value are left out. */
import type { ComponentChildren } from "preact";

export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts
        .filter(([, value]) => value !== "" && value !== undefined && value !== null && value !== false)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export function Json({ value, label }: { value: unknown; label: string }) {
  return (
    <figure class="json">
      <figcaption>{label}</figcaption>
      <pre tabIndex={0} role="region" aria-label={label}>
        {JSON.stringify(value, null, 2)}
      </pre>
    </figure>
  );
}
