/** The heading of a page, which gets the focus when the page is opened. */
import type { ComponentChildren } from "preact";

export function Heading({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="heading">
      <h1 tabIndex={-1}>{title}</h1>
      {children}
    </div>
  );
}
