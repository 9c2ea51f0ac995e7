/** The pages, in the order in which they are listed everywhere. */
import { href, route } from "./route";
import { useStore } from "../store";

export interface Place {
  path: string[];
  name: string;
  about: string;
}

export const PLACES: Place[] = [
  { path: [], name: "Overview", about: "health, rates, queues, newest failures" },
  { path: ["jobs"], name: "Jobs", about: "fetch jobs and task jobs" },
  { path: ["dead-letters"], name: "Dead letters", about: "resources and task jobs that failed for good" },
  { path: ["file-dead-letters"], name: "Dead files", about: "file jobs that failed for good" },
  { path: ["queues"], name: "Queues", about: "partitions, queues, backlog" },
  { path: ["workers"], name: "Workers", about: "what workers do now" },
  { path: ["breakers"], name: "Breakers", about: "circuit breakers of hosts and endpoints" },
  { path: ["flows"], name: "Flows", about: "flow runs and their gates" },
  { path: ["settings"], name: "Settings", about: "health, this page, the API" },
];

export function Nav() {
  const { path } = useStore(route);
  const here = path[0] ?? "";
  return (
    <nav aria-label="Pages">
      <ul>
        {PLACES.map((place) => (
          <li key={place.name}>
            <a href={href(place.path)} aria-current={(place.path[0] ?? "") === here ? "page" : undefined}>
              {place.name}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
