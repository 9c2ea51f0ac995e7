/** The equal command of the command line, ready for a shell. */
import { announce } from "../shell/announce";

export function quoted(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Words of one command; what is already text for a shell stands as it is. */
export function shell(words: string[]): string {
  return words.map(quoted).join(" ");
}

export function Command({ line }: { line: string }) {
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(line);
    announce("The command is copied.");
  };
  return (
    <div class="command">
      <code>{line}</code>
      {"clipboard" in navigator && (
        <button type="button" class="plain" onClick={() => void copy()} aria-label={`Copy: ${line}`}>
          Copy
        </button>
      )}
    </div>
  );
}
