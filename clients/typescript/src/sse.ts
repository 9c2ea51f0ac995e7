/** Server-Sent Events out of a stream of bytes (WHATWG HTML, section 9.2.6). */

export interface SseEvent {
  type: string;
  data: string;
  /** The id that the event itself has; undefined for none. */
  id: string | undefined;
}

/** Takes text in pieces of any size; `feed` gives the events that a piece completes. */
export class SseParser {
  #rest = "";
  #begun = false;
  #type = "";
  #id: string | undefined;
  #data: string[] = [];

  feed(piece: string): SseEvent[] {
    const found: SseEvent[] = [];
    let text = this.#rest + piece;
    if (!this.#begun && text) {
      this.#begun = true;
      if (text.startsWith("\uFEFF")) text = text.slice(1);
    }
    // A CR at the end of what has come may be half of a CRLF.
    const ends = /\r\n|\n|\r(?!$)/g;
    let start = 0;
    for (let end = ends.exec(text); end; end = ends.exec(text)) {
      this.#line(text.slice(start, end.index), found);
      start = ends.lastIndex;
    }
    this.#rest = text.slice(start);
    return found;
  }

  #line(line: string, found: SseEvent[]): void {
    if (line) {
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      this.#field(name, colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, ""));
      return;
    }
    if (this.#data.length) found.push({ type: this.#type || "message", data: this.#data.join("\n"), id: this.#id });
    this.#type = "";
    this.#id = undefined;
    this.#data = [];
  }

  #field(name: string, value: string): void {
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#type = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
  }
}
