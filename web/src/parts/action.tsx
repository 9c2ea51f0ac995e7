/** A button that changes something: it says what and how much, shows the equal command, and asks once. */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { asApiError, type ApiError } from "../api/errors";
import { announce } from "../shell/announce";
import { isReadOnly } from "../shell/mode";
import { Command } from "./command";
import { useModal } from "./modal";
import { Failure } from "./state";

interface Props {
  /** On the button, and on the one that confirms. */
  label: string;
  /** The question, with its count. */
  question: string;
  /** What follows from it. */
  children?: ComponentChildren;
  command: string;
  isDanger?: boolean;
  isDisabled?: boolean;
  /** What was done, for people. */
  run: () => Promise<string>;
  done?: () => void;
}

export function Action(props: Props) {
  const [isOpen, setOpen] = useState(false);
  if (isReadOnly) return null;
  return (
    <>
      <button
        type="button"
        class={props.isDanger ? "danger" : undefined}
        disabled={props.isDisabled}
        onClick={() => setOpen(true)}
      >
        {props.label}
      </button>
      {isOpen && <Confirm {...props} close={() => setOpen(false)} />}
    </>
  );
}

function Confirm({ label, question, children, command, isDanger, run, done, close }: Props & { close: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const confirm = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      announce(await run());
      close();
      done?.();
    } catch (thrown) {
      setError(asApiError(thrown));
      setBusy(false);
    }
  };
  return (
    <Dialog title={question} close={close}>
      {children}
      <p class="muted">The same in a terminal:</p>
      <Command line={command} />
      {error && <Failure error={error} />}
      <div class="buttons">
        <button type="button" class={isDanger ? "danger primary" : "primary"} disabled={isBusy} onClick={() => void confirm()}>
          {isBusy ? "Working…" : label}
        </button>
        <button type="button" onClick={close}>
          Keep as it is
        </button>
      </div>
    </Dialog>
  );
}

export function Dialog({ title, children, close }: { title: string; children: ComponentChildren; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useModal(dialog, close);
  return (
    <dialog ref={dialog} aria-labelledby="question">
      <h2 id="question">{title}</h2>
      {children}
    </dialog>
  );
}
