/** What has just happened, shown for a while and read by screen readers. */
import { Store, useStore } from "../store";

interface Notice {
  text: string;
  isError: boolean;
}

const notice = new Store<Notice | null>(null);
let timer = 0;

export function announce(text: string, isError = false): void {
  notice.value = { text, isError };
  window.clearTimeout(timer);
  timer = window.setTimeout(() => {
    notice.value = null;
  }, 12_000);
}

export function Announcements() {
  const told = useStore(notice);
  return (
    <div class="notices" role="status" aria-live="polite">
      {told && (
        <p class={told.isError ? "notice bad" : "notice"}>
          {told.text}{" "}
          <button type="button" class="plain" onClick={() => (notice.value = null)}>
            Close
          </button>
        </p>
      )}
    </div>
  );
}
