/** Reads server-sent events out of text that comes in pieces of any size. */

export interface SseEvent {
  event: string;
  data: string;
}

export class SseReader {
  private rest = "";
  private event = "";
  private data: string[] = [];

  /** The events that this piece completes. */
  push(piece: string): SseEvent[] {
    const events: SseEvent[] = [];
    this.rest += piece;
    // A carriage return at the end may be the first half of a line's end.
    const lines = this.rest.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.data.length > 0) {
          events.push({ event: this.event || "message", data: this.data.join("\n") });
        }
        this.event = "";
        this.data = [];
      } else {
        this.field(line);
      }
    }
    return events;
  }

  private field(line: string): void {
    const at = line.indexOf(":");
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (name === "event") {
      this.event = value;
    } else if (name === "data") {
      this.data.push(value);
    }
  }
}
