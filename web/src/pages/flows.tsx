/** Flow runs, newest first. */
import { usePoll } from "../api/poll";
import type { Flow, FlowPage as Runs } from "../api/types";
import { Badge } from "../parts/badge";
import { Command, shell } from "../parts/command";
import { Filters } from "../parts/filters";
import { Heading } from "../parts/heading";
import { Pager } from "../parts/pager";
import { Empty, Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { href } from "../shell/route";
import type { PageProps } from "./index";

const FILTERS = [
  { name: "flow", label: "Flow" },
  { name: "status", label: "State", options: ["running", "completed", "failed", "cancelled"] },
  { name: "tenant", label: "Tenant" },
  { name: "tag", label: "Tag" },
];

const COLUMNS: Column<Flow>[] = [
  { name: "Run", cell: (run) => <RunLink run={run} /> },
  { name: "Flow", cell: (run) => run.flowName },
  { name: "State", cell: (run) => <Badge state={run.status} /> },
  { name: "Waits for", cell: (run) => (run.waitingFor ? `${run.waitingFor} (${run.waitStep})` : "") },
  { name: "Tenant", cell: (run) => run.tenant || <span class="muted">–</span> },
  { name: "Tags", cell: (run) => (run.tags ?? []).map((tag) => `#${tag}`).join(" ") },
  { name: "Started", cell: (run) => <Time at={run.startedAt} /> },
  { name: "Last event", cell: (run) => <Time at={run.lastEventAt} /> },
];

function RunLink({ run }: { run: Flow }) {
  const id = run.flowId;
  return (
    <a href={href(["flows", id], { tenant: run.tenant })} title={id} class="id">
      {id.length > 24 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id}
    </a>
  );
}

export function FlowsPage({ route }: PageProps) {
  const of = (name: string): string => route.params.get(name) ?? "";
  const page = of("page");
  const params = { flow_name: of("flow"), status: of("status"), tenant: of("tenant"), tag: of("tag") };
  const polled = usePoll<Runs>("/v1/flows", { ...params, page_size: 50, page_token: page }, page ? 0 : 4000);
  const flags = ["flow", "status", "tenant"].filter(of).flatMap((name) => [`--${name}`, of(name)]);
  return (
    <>
      <Heading title="Flows" />
      <Filters route={route} filters={FILTERS} />
      <Loaded polled={polled}>
        {({ flows = [], nextPageToken }) =>
          flows.length === 0 ? (
            <Empty>
              There are no such runs. <code>fetchbox flows start FLOW</code> starts one; <code>fetchbox flows definitions</code> shows
              what is configured.
            </Empty>
          ) : (
            <>
              <Table caption="Flow runs" columns={COLUMNS} rows={flows} id={(run) => `${run.tenant} ${run.flowId}`} />
              <Pager route={route} next={nextPageToken} />
            </>
          )
        }
      </Loaded>
      <Command line={shell(["fetchbox", "flows", "list", ...flags])} />
    </>
  );
}
