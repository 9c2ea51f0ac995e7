import type { RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";

/** Opens a dialog above the page; `closed` when the reader closes it. What had the focus gets it back when it goes. */
export function useModal(dialog: RefObject<HTMLDialogElement | null>, closed: () => void): void {
  useLayoutEffect(() => {
    const own = dialog.current;
    own?.addEventListener("close", closed);
    own?.showModal();
    return () => {
      // The event of this close comes later, when the next dialog may be open already.
      own?.removeEventListener("close", closed);
      own?.close();
    };
  }, []);
}
