/** The form to add a server, with a button to test the connection first. */

import { useId, useState, type FormEvent } from "react";

import { request } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import type { ClientEntry as Client, TestResult } from "../api/schema.ts";
import { navigate } from "../route.ts";
import { pluralize } from "../ui/format.ts";
import { ErrorNotice, Notice } from "../ui/components.tsx";
import { discardWarning, Sheet } from "../ui/sheet.tsx";
import { EMPTY_SERVER, toClientConfig, type NewServer } from "./entry.ts";
import { ServerForm } from "./form.tsx";

interface Props {
  onClose: () => void;
  onAdded: () => void;
}

export function AddServer({ onClose, onAdded }: Props) {
  const [server, setServer] = useState<NewServer>(EMPTY_SERVER);
  const [testResult, setTestResult] = useState<TestResult | null>(null);
  const testing = useAction();
  const adding = useAction();
  const formId = useId();

  const change = (next: NewServer) => {
    setServer(next);
    setTestResult(null);
    testing.clear();
    adding.clear();
  };
  const test = () =>
    testing.run(async () => {
      setTestResult(null);
      const { name, ...config } = toClientConfig(server);
      const body = name === "" ? config : { name, ...config };
      setTestResult(await request<TestResult>("/api/mcp/client/test", { method: "POST", body }));
    });
  const add = (event: FormEvent) => {
    event.preventDefault();
    void adding.run(async () => {
      const added = await request<Client>("/api/mcp/client", {
        method: "POST",
        body: toClientConfig(server),
      });
      onAdded();
      onClose();
      navigate("servers", added.config.name);
    });
  };

  const footer = (
    <>
      <ErrorNotice error={adding.error ?? testing.error} />
      {testResult !== null && <TestResultNotice result={testResult} />}
      <button type="button" className="aside" disabled={testing.busy} onClick={() => void test()}>
        {testing.busy ? "Connecting…" : "Test"}
      </button>
      <button type="button" onClick={onClose}>
        Cancel
      </button>
      <button type="submit" form={formId} className="primary" disabled={adding.busy}>
        Add server
      </button>
    </>
  );
  return (
    <Sheet
      title="Add server"
      footer={footer}
      closeWarning={server === EMPTY_SERVER ? null : discardWarning("The server has not been added yet.")}
      onClose={onClose}
    >
      <form id={formId} className="stack" onSubmit={add}>
        <ServerForm server={server} onChange={change} />
      </form>
    </Sheet>
  );
}

function TestResultNotice({ result }: { result: TestResult }) {
  if (!result.ok) {
    return <Notice tone="bad">{result.error}</Notice>;
  }
  const tools = result.tools.length > 0 ? `: ${result.tools.join(", ")}` : "";
  return (
    <Notice tone="good">
      Connected (protocol {result.protocol_version}). {pluralize(result.tools.length, "tool")}
      {tools}
    </Notice>
  );
}
