/** Adds a server: what it would offer can be tried first. */

import { useId, useState, type FormEvent } from "react";

import { ask } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import type { Client, TestResult } from "../api/types.ts";
import { go } from "../route.ts";
import { many } from "../ui/format.ts";
import { Failure, Notice } from "../ui/parts.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { BLANK, entryOf, type NewServer } from "./entry.ts";
import { ServerForm } from "./form.tsx";

interface Props {
  onClose: () => void;
  onAdded: () => void;
}

export function AddServer({ onClose, onAdded }: Props) {
  const [server, setServer] = useState<NewServer>(BLANK);
  const [tried, setTried] = useState<TestResult | null>(null);
  const testing = useAction();
  const adding = useAction();
  const form = useId();

  const change = (next: NewServer) => {
    setServer(next);
    setTried(null);
    testing.clear();
    adding.clear();
  };
  const test = () =>
    testing.run(async () => {
      setTried(null);
      const { name, ...entry } = entryOf(server);
      const body = name === "" ? entry : { name, ...entry };
      setTried(await ask<TestResult>("/api/mcp/client/test", { method: "POST", body }));
    });
  const add = (event: FormEvent) => {
    event.preventDefault();
    void adding.run(async () => {
      const added = await ask<Client>("/api/mcp/client", { method: "POST", body: entryOf(server) });
      onAdded();
      onClose();
      go("servers", added.config.name);
    });
  };

  const foot = (
    <>
      <Failure error={adding.error ?? testing.error} />
      {tried !== null && <Tried result={tried} />}
      <button type="button" className="aside" disabled={testing.busy} onClick={() => void test()}>
        {testing.busy ? "Connecting…" : "Test"}
      </button>
      <button type="button" onClick={onClose}>
        Cancel
      </button>
      <button type="submit" form={form} className="primary" disabled={adding.busy}>
        Add server
      </button>
    </>
  );
  return (
    <Sheet
      title="Add server"
      foot={foot}
      loses={server === BLANK ? null : "The server is not added yet."}
      onClose={onClose}
    >
      <form id={form} className="stack" onSubmit={add}>
        <ServerForm server={server} onChange={change} />
      </form>
    </Sheet>
  );
}

function Tried({ result }: { result: TestResult }) {
  if (!result.ok) {
    return <Notice tone="bad">{result.error}</Notice>;
  }
  const tools = result.tools.length > 0 ? `: ${result.tools.join(", ")}` : "";
  return (
    <Notice tone="good">
      It answers (protocol {result.protocol_version}), with {many(result.tools.length, "tool")}
      {tools}
    </Notice>
  );
}
