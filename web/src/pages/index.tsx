/** The pages by the first part of their path. */
import type { ComponentType } from "preact";
import type { Route } from "../shell/route";
import { BreakersPage } from "./breakers";
import { DeadLettersPage } from "./dead_letters";
import { FileDeadLettersPage } from "./file_dead_letters";
import { FlowPage } from "./flow";
import { FlowsPage } from "./flows";
import { JobPage } from "./job";
import { JobsPage } from "./jobs";
import { Overview } from "./overview";
import { QueuesPage } from "./queues";
import { SettingsPage } from "./settings";
import { WorkersPage } from "./workers";

export interface PageProps {
  route: Route;
}

export const PAGES: Record<string, ComponentType<PageProps>> = {
  "": Overview,
  jobs: ({ route }) => (route.path[1] ? <JobPage route={route} /> : <JobsPage route={route} />),
  "dead-letters": DeadLettersPage,
  "file-dead-letters": FileDeadLettersPage,
  queues: QueuesPage,
  workers: WorkersPage,
  breakers: BreakersPage,
  flows: ({ route }) => (route.path[1] ? <FlowPage route={route} /> : <FlowsPage route={route} />),
  settings: SettingsPage,
};
