import type { RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";

/** Opens a dialog above the page, and gives the focus back to what had it when the dialog goes. */
export function useModal(dialog: RefObject<HTMLDialogElement | null>): void {
  useLayoutEffect(() => {
    const own = dialog.current;
    own?.showModal();
    return () => own?.close();
  }, []);
}
