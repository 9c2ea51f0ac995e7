/**
 * An act on all that match a filter, not on the page that is shown: it counts them first, asks once, then works in
 * batches with progress. It can be stopped; what is done stays done.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { asApiError, type ApiError } from "../api/errors";
import { announce } from "../shell/announce";
import { isReadOnly } from "../shell/mode";
import { Dialog } from "./action";
import { Command } from "./command";
import { counted, number } from "./number";
import { Failure } from "./state";

/** The most that one call of the API takes. */
export const BATCH = 500;

export interface Bulk {
  label: string;
  /** `Replay`, before the count. */
  verb: string;
  noun: string;
  command: string;
  isDanger?: boolean;
  /** One page of names behind a token, and the token of the next one. */
  page: (token: string, signal: AbortSignal) => Promise<{ names: string[]; next: string }>;
  /** Acts on at most `BATCH`; how many had which outcome. */
  act: (names: string[], signal: AbortSignal) => Promise<Record<string, number>>;
  done: () => void;
}

export function BulkAction(bulk: Bulk) {
  const [isOpen, setOpen] = useState(false);
  if (isReadOnly) return null;
  return (
    <>
      <button type="button" class={bulk.isDanger ? "danger" : undefined} onClick={() => setOpen(true)}>
        {bulk.label}
      </button>
      {isOpen && <BulkDialog bulk={bulk} close={() => setOpen(false)} />}
    </>
  );
}

type Stage = "counting" | "asking" | "working" | "ended";

function BulkDialog({ bulk, close }: { bulk: Bulk; close: () => void }) {
  const controller = useRef(new AbortController());
  const [stage, setStage] = useState<Stage>("counting");
  const [names, setNames] = useState<string[]>([]);
  const [outcomes, setOutcomes] = useState<Record<string, number>>({});
  const [error, setError] = useState<ApiError>();
  const failed = (thrown: unknown): void => {
    if (!controller.current.signal.aborted) setError(asApiError(thrown));
    setStage("ended");
  };
  useEffect(() => {
    collect(bulk, setNames, controller.current.signal).then(() => setStage("asking"), failed);
    return () => controller.current.abort();
  }, []);

  const work = (): void => {
    setStage("working");
    const told = (all: Record<string, number>): void => setOutcomes(all);
    inBatches(bulk, names, told, controller.current.signal).then((all) => {
      announce(`${summary(all)}.`);
      bulk.done();
      setStage("ended");
    }, failed);
  };
  const acted = Object.values(outcomes).reduce((sum, count) => sum + count, 0);
  return (
    <Dialog title={`${bulk.verb} ${counted(names.length, bulk.noun)}${stage === "counting" ? "…" : "?"}`} close={close}>
      {stage === "counting" && <p role="status">Counting all that match: {number(names.length)} so far.</p>}
      {stage === "asking" && <p>These are all that match now, on this page and behind it.</p>}
      {(stage === "working" || stage === "ended") && (
        <>
          <progress max={names.length || 1} value={acted} aria-label="Progress" />
          <p role="status">
            {number(acted)} of {number(names.length)}: {summary(outcomes) || "none yet"}.
          </p>
        </>
      )}
      {error && <Failure error={error} />}
      <p class="muted">The same in a terminal, {number(BATCH)} at a time:</p>
      <Command line={bulk.command} />
      <div class="buttons">
        {stage === "asking" && (
          <button type="button" class={bulk.isDanger ? "danger primary" : "primary"} disabled={!names.length} onClick={work}>
            {bulk.verb} {number(names.length)}
          </button>
        )}
        <button type="button" onClick={close}>
          {stage === "ended" ? "Close" : stage === "asking" ? "Keep as it is" : "Stop"}
        </button>
      </div>
    </Dialog>
  );
}

async function collect(bulk: Bulk, told: (names: string[]) => void, signal: AbortSignal): Promise<void> {
  const names = new Set<string>();
  let token = "";
  do {
    const page = await bulk.page(token, signal);
    page.names.forEach((name) => names.add(name));
    token = page.next;
    told([...names]);
  } while (token);
}

async function inBatches(
  bulk: Bulk,
  names: string[],
  told: (outcomes: Record<string, number>) => void,
  signal: AbortSignal,
): Promise<Record<string, number>> {
  const all: Record<string, number> = {};
  for (let at = 0; at < names.length; at += BATCH) {
    const found = await bulk.act(names.slice(at, at + BATCH), signal);
    for (const [outcome, count] of Object.entries(found)) all[outcome] = (all[outcome] ?? 0) + count;
    told({ ...all });
  }
  return all;
}

/** `replayed 7, not found 1`. */
export function summary(outcomes: Record<string, number>): string {
  return Object.entries(outcomes)
    .map(([outcome, count]) => `${outcome.replaceAll("_", " ")} ${number(count)}`)
    .join(", ");
}
