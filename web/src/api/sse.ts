/** Server-Sent Events out of text, in pieces of any size (WHATWG HTML, section 9.2.6). */
export interface Message {
  id: string;
  type: string;
  data: string;
}

export class SseReader {
  /** The id to resume behind. */
  lastId = "";
  private rest = "";
  private type = "";
  private data: string[] = [];

  /** The events that a piece completes. */
  feed(piece: string): Message[] {
    const text = this.rest + piece;
    const found: Message[] = [];
    let start = 0;
    for (const line of text.matchAll(/([^\r\n]*)(\r\n|\n|\r(?!$))/g)) {
      start = line.index + line[0].length;
      this.take(line[1] ?? "", found);
    }
    this.rest = text.slice(start);
    return found;
  }

  private take(line: string, found: Message[]): void {
    if (line === "") {
      if (this.data.length > 0) {
        found.push({ id: this.lastId, type: this.type || "message", data: this.data.join("\n") });
      }
      this.type = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.data.push(value);
    else if (name === "event") this.type = value;
    else if (name === "id" && !value.includes("\0")) this.lastId = value;
  }
}
