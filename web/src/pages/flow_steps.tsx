/** The steps of a run in words, their gates with what opens them, and the log of one step. */
import { useState } from "preact/hooks";
import { post } from "../api/client";
import { usePoll } from "../api/poll";
import type { Flow, Gate, Step, StepLogs } from "../api/types";
import { Action } from "../parts/action";
import { Badge } from "../parts/badge";
import { Command, shell } from "../parts/command";
import { Empty, Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { JobLink } from "./job_table";

interface Props {
  run: Flow;
  done: () => void;
  link: (stepKey: string) => string;
}

export function FlowSteps({ run, done, link }: Props) {
  const columns: Column<Step>[] = [
    { name: "Step", cell: (step) => <a href={link(step.stepKey)}>{step.stepKey}</a> },
    { name: "State", cell: (step) => <Badge state={step.status} /> },
    { name: "Needs", cell: (step) => (step.needs ?? []).join(", ") },
    { name: "Attempts", cell: (step) => step.triesCount, isNumber: true },
    { name: "Job", cell: (step) => step.jobId && <JobLink id={step.jobId} /> },
    { name: "Began", cell: (step) => <Time at={step.startedAt} /> },
    { name: "Ended", cell: (step) => <Time at={step.completedAt} /> },
    { name: "Gate", cell: (step) => step.waiting && <GateButtons run={run} step={step} done={done} /> },
  ];
  return <Table caption="Steps" columns={columns} rows={run.steps ?? []} id={(step) => step.stepKey} />;
}

function GateButtons({ run, step, done }: { run: Flow; step: Step; done: () => void }) {
  const [payload, setPayload] = useState("");
  const tenant = run.tenant || undefined;
  const [id, key] = [encodeURIComponent(run.flowId), encodeURIComponent(step.stepKey)];
  const of = tenant ? ["--tenant", tenant] : [];
  const gate = (path: string, body: () => object) => async (): Promise<string> => {
    const now = await post<Gate>(path, { ...body(), tenant });
    return `The gate of ${now.stepKey} is ${now.state}.`;
  };
  const trigger = ["fetchbox", "flows", "trigger", run.flowId, step.stepKey, ...of];
  return (
    <div class="buttons">
      <span>
        {step.waitingFor}
        {step.waitUntil && (
          <>
            {" "}
            until <Time at={step.waitUntil} />
          </>
        )}
      </span>
      <Action
        label="Open"
        question={`Open the gate of ${step.stepKey}?`}
        command={shell(payload ? [...trigger, "--payload", payload] : trigger)}
        run={gate(`/v1/flows/${id}/gates/${key}/trigger`, () => (payload ? { payload: json(payload) } : {}))}
        done={done}
      >
        <label>
          <span>What the step gets to know, as JSON; may be empty</span>
          <textarea rows={2} value={payload} onInput={(event) => setPayload(event.currentTarget.value)} spellcheck={false} />
        </label>
      </Action>
      <Action
        label="Cancel"
        question={`Cancel the gate of ${step.stepKey}?`}
        command={shell(["fetchbox", "flows", "cancel-gate", run.flowId, step.stepKey, ...of])}
        isDanger
        run={gate(`/v1/flows/${id}/gates/${key}/cancel`, () => ({}))}
        done={done}
      >
        <p>The step fails, and with it the run.</p>
      </Action>
    </div>
  );
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("This is no JSON: text stands in quotes, as in \"yes\".");
  }
}

export function StepLog({ run, stepKey }: { run: Flow; stepKey: string }) {
  const path = `/v1/flows/${encodeURIComponent(run.flowId)}/steps/${encodeURIComponent(stepKey)}/logs`;
  const polled = usePoll<StepLogs>(path, { tenant: run.tenant, page_size: 500 }, 5000);
  return (
    <section aria-labelledby="step-log">
      <h2 id="step-log">Log of {stepKey}</h2>
      <Loaded polled={polled}>
        {({ logs = [] }) =>
          logs.length === 0 ? (
            <Empty>This step has written no line.</Empty>
          ) : (
            <ol class="feed">
              {logs.map((line) => (
                <li key={line.id}>
                  <Time at={line.ts} short /> <span class="text">{JSON.stringify(line.data)}</span>
                </li>
              ))}
            </ol>
          )
        }
      </Loaded>
      <Command line={shell(["fetchbox", "flows", "logs", run.flowId, stepKey])} />
    </section>
  );
}
