/** Circuit breakers that are not closed, or have failures in their window. */
import { post } from "../api/client";
import { usePoll } from "../api/poll";
import type { Breaker, Breakers } from "../api/types";
import { Action } from "../parts/action";
import { Badge } from "../parts/badge";
import { Command, shell } from "../parts/command";
import { Heading } from "../parts/heading";
import { number } from "../parts/number";
import { Empty, Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { age } from "../parts/time";

export function BreakersPage() {
  const polled = usePoll<Breakers>("/operators/breakers", {}, 3000);
  return (
    <>
      <Heading title="Breakers" />
      <p class="muted">While a host or an endpoint keeps failing, its breaker keeps the fleet away from it; its jobs stay queued.</p>
      <Loaded polled={polled}>
        {({ breakers }) =>
          breakers.length === 0 ? (
            <Empty>Every breaker is closed, and none has a failure in its window.</Empty>
          ) : (
            <Table caption="Breakers" columns={columns(polled.reload)} rows={breakers} id={(one) => one.name} />
          )
        }
      </Loaded>
      <Command line="fetchbox breakers list" />
    </>
  );
}

function columns(done: () => void): Column<Breaker>[] {
  return [
    { name: "Breaker", cell: (one) => <span class="text">{one.name}</span> },
    { name: "State", cell: (one) => <Badge state={one.state} /> },
    { name: "Failures", cell: (one) => `${number(one.failures)} of ${number(one.samples)}`, isNumber: true },
    { name: "Tries again in", cell: (one) => age(one.retry_after_seconds), isNumber: true },
    { name: "Act", cell: (one) => <Reset name={one.name} done={done} /> },
  ];
}

function Reset({ name, done }: { name: string; done: () => void }) {
  const run = async (): Promise<string> => {
    const now = await post<Breaker>("/operators/breakers:reset", { name });
    return `Breaker ${now.name} is ${now.state}.`;
  };
  return (
    <Action label="Reset" question={`Close ${name} now?`} command={shell(["fetchbox", "breakers", "reset", name])} run={run} done={done}>
      <p>Its window is forgotten. What is deferred already comes back at its own time.</p>
    </Action>
  );
}
