/** Search first: a page, a job, a flow run, a failure code, a tenant; by keyboard alone. */
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import type { Flow, Job } from "../api/types";
import { useModal } from "../parts/modal";
import { go, href } from "./route";
import { PLACES } from "./nav";

interface Hit {
  to: string;
  name: string;
  about: string;
}

const ID = /^[A-Za-z0-9_-]{1,128}$/;
const CODE = /^[A-Z]+(_[A-Z0-9]*)+$/i;
const TASKS = ["fetch", "chat", "plan", "code", "tool", "rag", "embed", "step"];
const STATES = ["queued", "in_progress", "completed", "partial", "failed", "canceled"];

export function Search({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const looked = useLookup(text.trim());
  const hits = [...looked, ...offered(text.trim())];
  const chosen = Math.min(at, hits.length - 1);
  useModal(dialog, close);

  const open = (hit: Hit | undefined): void => {
    if (!hit) return;
    close();
    go(hit.to);
  };
  const pressed = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) setAt((chosen + step + hits.length) % hits.length);
    else if (event.key === "Enter") open(hits[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} class="searching" aria-label="Search">
      <label for="search">Search: an id, a page, a failure code, a state, a task</label>
      <input
        id="search"
        role="combobox"
        aria-expanded="true"
        aria-controls="hits"
        aria-autocomplete="list"
        aria-activedescendant={hits.length > 0 ? `hit-${chosen}` : undefined}
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => (setText(event.currentTarget.value), setAt(0))}
        onKeyDown={pressed}
        autofocus
      />
      <ul id="hits" role="listbox" aria-label="Found">
        {hits.map((hit, index) => (
          <li
            id={`hit-${index}`}
            key={`${hit.to} ${hit.name}`}
            role="option"
            aria-selected={index === chosen}
            onClick={() => open(hit)}
          >
            <b>{hit.name}</b> <span class="muted">{hit.about}</span>
          </li>
        ))}
      </ul>
      {hits.length === 0 && <p role="status">Nothing has this name. The whole id of a job or run finds it.</p>}
      <button type="button" onClick={() => dialog.current?.close()}>
        Close
      </button>
    </dialog>
  );
}

/** What can be offered without asking anybody. */
function offered(text: string): Hit[] {
  const low = text.toLowerCase();
  const found: Hit[] = PLACES.filter((place) => `${place.name} ${place.about}`.toLowerCase().includes(low)).map(
    (place) => ({ to: href(place.path), name: place.name, about: place.about }),
  );
  if (!text) return found;
  for (const status of STATES.filter((one) => one.includes(low))) {
    found.push({ to: href(["jobs"], { status }), name: `Jobs: ${status}`, about: "by state" });
  }
  for (const task of TASKS.filter((one) => one.startsWith(low))) {
    found.push({ to: href(["jobs"], { task }), name: `Jobs: ${task}`, about: "by task" });
  }
  if (CODE.test(text)) {
    const code = text.toUpperCase();
    found.push({ to: href(["dead-letters"], { code }), name: `Dead letters: ${code}`, about: "by failure code" });
    found.push({ to: href(["file-dead-letters"], { code }), name: `Dead files: ${code}`, about: "by failure code" });
  }
  if (ID.test(text)) {
    found.push({ to: href(["jobs"], { tenant: text }), name: `Jobs of tenant ${text}`, about: "by tenant" });
    found.push({ to: href(["jobs"], { job_type: text }), name: `Jobs of type ${text}`, about: "by job type" });
    found.push({ to: href(["flows"], { flow: text }), name: `Runs of flow ${text}`, about: "by flow" });
  }
  return found;
}

/** The job and the run of this id, if they are there. */
function useLookup(text: string): Hit[] {
  const [hits, setHits] = useState<Hit[]>([]);
  useEffect(() => {
    setHits([]);
    if (!ID.test(text) || text.length < 3) return undefined;
    const controller = new AbortController();
    const add = (hit: Hit): void => {
      if (!controller.signal.aborted) setHits((old) => [...old, hit]);
    };
    const timer = window.setTimeout(() => {
      const path = encodeURIComponent(text);
      get<Job>(`/operators/jobs/${path}`, {}, controller.signal).then(
        (job) => add({ to: href(["jobs", text]), name: `Job ${text}`, about: `${job.task}, ${job.status}` }),
        () => undefined,
      );
      get<Flow>(`/v1/flows/${path}`, {}, controller.signal).then(
        (run) => add({ to: href(["flows", text]), name: `Flow run ${text}`, about: `${run.flowName}, ${run.status}` }),
        () => undefined,
      );
    }, 150);
    return () => {
      window.clearTimeout(timer);
      controller.abort();
    };
  }, [text]);
  return hits;
}
