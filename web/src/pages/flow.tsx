/** One flow run: its steps as a graph, its gates, and its timeline as it comes. */
import { useEffect } from "preact/hooks";
import { post } from "../api/client";
import { usePoll } from "../api/poll";
import { useStream } from "../api/stream";
import type { Flow, FlowEvent, Frame } from "../api/types";
import { Action } from "../parts/action";
import { Badge } from "../parts/badge";
import { Command, shell } from "../parts/command";
import { Facts, Json } from "../parts/facts";
import { Heading } from "../parts/heading";
import { Live } from "../parts/live";
import { Empty, Failure, Loaded } from "../parts/state";
import { duration, millis, Time } from "../parts/time";
import { changed } from "../shell/route";
import { FlowGraph } from "./flow_graph";
import { FlowSteps, StepLog } from "./flow_steps";
import type { PageProps } from "./index";

const SHOWN = 200;

export function FlowPage({ route }: PageProps) {
  const id = route.path[1] ?? "";
  const tenant = route.params.get("tenant") ?? "";
  const step = route.params.get("step") ?? "";
  const name = encodeURIComponent(id);
  const polled = usePoll<Flow>(`/v1/flows/${name}`, { tenant }, 10_000);
  const events = useStream<FlowEvent>(polled.data ? `/v1/flows/${name}/events` : null, { tenant }, (message) => {
    if (message.type === "stream_error") return null;
    return (JSON.parse(message.data) as Frame).record ?? null;
  });
  useEffect(() => {
    if (events.items.length > 0) polled.reload();
  }, [events.items.length]);
  return (
    <>
      <Heading title={`Flow run ${id}`} />
      <Loaded polled={polled}>
        {(run) => (
          <>
            <p class="status" role="status">
              <Badge state={run.status} /> {run.flowName}
              {run.waitingFor && `, ${run.waitStep} waits: ${run.waitingFor}`}
            </p>
            {run.status === "running" && <Cancel run={run} done={polled.reload} />}
            <RunFacts run={run} />
            <section aria-labelledby="steps">
              <h2 id="steps">Steps</h2>
              <FlowGraph steps={run.steps ?? []} link={(key) => changed(route, { step: key })} />
              <FlowSteps run={run} done={polled.reload} link={(key) => changed(route, { step: key })} />
            </section>
            {step && <StepLog run={run} stepKey={step} />}
            <section aria-labelledby="timeline">
              <h2 id="timeline">
                Timeline <Live state={events.state} />
              </h2>
              {events.error && <Failure error={events.error} />}
              <Events events={events.items} />
              <Command line={shell(["fetchbox", "flows", "watch", id, ...(tenant ? ["--tenant", tenant] : [])])} />
            </section>
          </>
        )}
      </Loaded>
    </>
  );
}

function Cancel({ run, done }: { run: Flow; done: () => void }) {
  const tenant = run.tenant || undefined;
  const act = async (): Promise<string> => {
    const now = await post<Flow>(`/v1/flows/${encodeURIComponent(run.flowId)}/cancel`, { tenant });
    return `Flow run ${now.flowId} is ${now.status}.`;
  };
  return (
    <div class="buttons">
      <Action
        label="Cancel the run"
        question="Cancel this flow run?"
        command={shell(["fetchbox", "flows", "cancel", run.flowId, ...(tenant ? ["--tenant", tenant] : [])])}
        isDanger
        run={act}
        done={done}
      >
        <p>Its gates are canceled and its jobs stopped.</p>
      </Action>
    </div>
  );
}

function RunFacts({ run }: { run: Flow }) {
  return (
    <>
      <Facts
        facts={[
          ["Tenant", run.tenant],
          ["Tags", (run.tags ?? []).map((tag) => `#${tag}`).join(" ")],
          ["Started", <Time at={run.startedAt} />],
          ["Ended", run.completedAt && <Time at={run.completedAt} />],
          ["Took", run.completedAt && duration(millis(run.completedAt) - millis(run.startedAt))],
          ["Waits until", run.waitUntil && <Time at={run.waitUntil} />],
        ]}
      />
      {run.input !== undefined && run.input !== null && <Json value={run.input} label="Input" />}
      {run.result !== undefined && run.result !== null && <Json value={run.result} label="Result" />}
      {Boolean(run.error) && <Json value={run.error} label="Error" />}
    </>
  );
}

function Events({ events }: { events: FlowEvent[] }) {
  if (events.length === 0) return <Empty>No event yet.</Empty>;
  return (
    <ol class="feed">
      {events.slice(-SHOWN).map((event) => (
        <li key={event.id}>
          <Time at={event.ts} short /> <b>{event.kind}</b> <span class="text">{short(event.data)}</span>
        </li>
      ))}
    </ol>
  );
}

function short(data: unknown): string {
  const text = data === undefined || data === null ? "" : JSON.stringify(data);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}
