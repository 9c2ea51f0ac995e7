import { Heading } from "../parts/heading";

export function NotFound() {
  return (
    <>
      <Heading title="No such page" />
      <p>
        Go to the <a href="#/">overview</a>, or press <kbd>/</kbd> to search.
      </p>
    </>
  );
}
