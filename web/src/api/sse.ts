/** Parses server-sent events from text that arrives in chunks of any size. */

export interface SseEvent {
  event: string;
  data: string;
}

export class SseParser {
  private buffer = "";
  private event = "";
  private data: string[] = [];

  /** Adds a chunk and returns the events it completes. */
  push(chunk: string): SseEvent[] {
    const events: SseEvent[] = [];
    this.buffer += chunk;
    // A trailing carriage return may be the first half of `\r\n`.
    const lines = this.buffer.split(/\r\n|\n|\r(?!$)/);
    this.buffer = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.data.length > 0) {
          events.push({ event: this.event || "message", data: this.data.join("\n") });
        }
        this.event = "";
        this.data = [];
      } else {
        this.parseField(line);
      }
    }
    return events;
  }

  private parseField(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") {
      this.event = value;
    } else if (name === "data") {
      this.data.push(value);
    }
  }
}
