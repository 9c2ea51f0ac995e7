/** What can be done about one job. */
import { useEffect } from "preact/hooks";
import { post } from "../api/client";
import { usePoll } from "../api/poll";
import type { DeadLetterPage, Job, ReplayOutcomes } from "../api/types";
import { Action } from "../parts/action";
import { summary } from "../parts/bulk";
import { shell } from "../parts/command";
import { counted } from "../parts/number";
import { href } from "../shell/route";
import { tally } from "./outcomes";

export function JobActions({ job, done }: { job: Job; done: () => void }) {
  const id = job.job_id;
  const isLive = job.status === "queued" || job.status === "in_progress";
  const dead = usePoll<DeadLetterPage>("/operators/dlq", { job_id: id, page_size: 100 }, isLive ? 10_000 : 0);
  useEffect(() => dead.reload(), [job.status, job.resource_failed]);
  const letters = dead.data?.dead_letters ?? [];
  const all = `${counted(letters.length, "dead letter")}${dead.data?.next_page_token ? " and more" : ""}`;
  const cancel = async (): Promise<string> => {
    const now = await post<Job>(`/operators/jobs/${encodeURIComponent(id)}/cancel`, {});
    return `Job ${id} is ${now.status.replace("_", " ")}.`;
  };
  const replay = async (): Promise<string> => {
    const { outcomes } = await post<ReplayOutcomes>("/operators/dlq:replay", { job_id: id });
    return `Job ${id}: ${summary(tally(outcomes)) || "nothing to replay"}.`;
  };
  return (
    <div class="buttons">
      {isLive && (
        <Action
          label="Cancel"
          question="Cancel this job?"
          command={shell(["fetchbox", "jobs", "cancel", id])}
          isDanger
          run={cancel}
          done={done}
        >
          <p>What is stored stays stored. What waits or runs is given up.</p>
        </Action>
      )}
      {letters.length > 0 && (
        <>
          <a href={href(["dead-letters"], { job: id })}>{all}</a>
          <Action
            label="Replay"
            question={`Replay ${all} of this job?`}
            command={shell(["fetchbox", "dlq", "replay", "--job", id])}
            run={replay}
            done={() => (dead.reload(), done())}
          >
            <p>Each gets all its attempts again. One call replays at most 500.</p>
          </Action>
        </>
      )}
    </div>
  );
}
