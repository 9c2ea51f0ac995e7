/** The health of every component, and what this page is and knows. */
import { address } from "../api/client";
import { readHealth } from "../api/health";
import { useReading } from "../api/poll";
import { session } from "../api/session";
import type { HealthReport } from "../api/types";
import { Badge } from "../parts/badge";
import { Command } from "../parts/command";
import { Facts } from "../parts/facts";
import { Heading } from "../parts/heading";
import { Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { ZONE } from "../parts/time";
import { isReadOnly } from "../shell/mode";
import { theme } from "../shell/theme";
import { useStore } from "../store";

type Component = HealthReport["components"][number];

const COLUMNS: Column<Component>[] = [
  { name: "Component", cell: (one) => one.name },
  { name: "State", cell: (one) => <Badge state={one.status} /> },
  { name: "Critical", cell: (one) => (one.critical ? "yes" : "no") },
  { name: "Message", cell: (one) => <span class="text">{one.message}</span> },
  { name: "Took", cell: (one) => `${Number(one.latency_ms ?? 0).toFixed(1)} ms`, isNumber: true },
];

export function SettingsPage() {
  const health = useReading<HealthReport>("health", readHealth, 5000);
  const { token } = useStore(session);
  const colours = useStore(theme);
  return (
    <>
      <Heading title="Settings" />
      <section aria-labelledby="health">
        <h2 id="health">Health</h2>
        <Loaded polled={health}>
          {(report) => <Table caption="Components" columns={COLUMNS} rows={report.components} id={(one) => one.name} />}
        </Loaded>
        <Command line="fetchbox health" />
      </section>
      <section aria-labelledby="this">
        <h2 id="this">This page</h2>
        <Facts
          facts={[
            ["May change things", isReadOnly ? "no: gateway.ui is “read”" : "yes, as far as the token allows"],
            ["Token", token ? "given, in the memory of this tab" : "none: the gateway asks for none"],
            ["Times", `${ZONE}; UTC on hover`],
            ["Colours", colours],
            ["The API", <a href={address("/docs")}>its pages</a>],
            ["The API for programs", <a href={address("/openapi.json")}>OpenAPI</a>],
          ]}
        />
      </section>
    </>
  );
}
