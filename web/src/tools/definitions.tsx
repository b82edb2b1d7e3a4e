/** Definitions of tools that changed or look suspicious, and trust in them. */

import { ChangeTable } from "../activity/change.tsx";
import { request } from "../api/client.ts";
import { useAction, usePolling, useResource, type Resource } from "../api/hooks.ts";
import type { DefinitionEntry, DefinitionList } from "../api/schema.ts";
import { navigate } from "../route.ts";
import { Badge, ErrorNotice, Table } from "../ui/components.tsx";
import { pluralize } from "../ui/format.ts";

const POLL_INTERVAL_MS = 5000;

/** Loads the definitions that an administrator should read. */
export function useDefinitions(): Resource<DefinitionList> {
  const definitions = useResource("definitions", (signal) =>
    request<DefinitionList>("/api/mcp/definitions", { signal }),
  );
  usePolling(POLL_INTERVAL_MS, definitions.reload);
  return definitions;
}

/** Lists the definitions that an administrator should read. */
export function DefinitionNotice({ list: { definitions } }: { list: DefinitionList }) {
  if (definitions.length === 0) {
    return null;
  }
  return (
    <section className="card stack" aria-label="Definitions to review">
      <h2>{pluralize(definitions.length, "definition")} to review</h2>
      <Table columns={["Tool", "Reason", "Status"]}>
        {definitions.map((definition) => (
          <tr
            key={definition.alias}
            className="clickable"
            onClick={() => navigate("tools", definition.alias)}
          >
            <td>
              <button type="button" className="name mono">
                {definition.alias}
              </button>
            </td>
            <td className="wide soft">{describeReasons(definition).join(" ")}</td>
            <td>
              <HiddenBadge hidden={definition.hidden} />
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

/** What an administrator should know about a tool's definition before trusting it; nothing if it is trusted. */
export function DefinitionReview({ alias, onTrusted }: { alias: string; onTrusted: () => void }) {
  const list = useDefinitions();
  const action = useAction();
  const definition = list.data?.definitions.find((entry) => entry.alias === alias);
  if (definition === undefined) {
    return <ErrorNotice error={list.error} />;
  }
  const trust = () =>
    void action.run(async () => {
      const { server, tool, hash } = definition;
      const body = { definitions: [{ server, tool, hash }] };
      list.set(await request<DefinitionList>("/api/mcp/definitions/trust", { method: "POST", body }));
      onTrusted();
    });
  return (
    <section className="section" aria-label="Definition review">
      <div className="row spread">
        <h2>Review the definition</h2>
        <HiddenBadge hidden={definition.hidden} />
      </div>
      {describeReasons(definition).map((reason) => (
        <p key={reason}>{reason}</p>
      ))}
      {definition.findings.map(({ kind, place, message }, index) => (
        <p key={index}>
          <Badge tone="bad">{kind.replace("_", " ")}</Badge> <code>{place}</code> {message}
        </p>
      ))}
      {definition.changes.length > 0 && (
        <ChangeTable
          values={definition.changes.map(({ place, before, after }) => ({
            path: place,
            before,
            after,
            changed: true,
          }))}
        />
      )}
      <ErrorNotice error={action.error} />
      <div className="row">
        <button type="button" className="primary" disabled={action.busy} onClick={trust}>
          Trust this definition
        </button>
      </div>
    </section>
  );
}

function HiddenBadge({ hidden }: { hidden: boolean }) {
  return hidden ? <Badge tone="bad">hidden</Badge> : <Badge tone="warn">visible</Badge>;
}

/** Describes, in sentences, why an administrator should read a definition. */
export function describeReasons({ state, shadows, findings }: DefinitionEntry): string[] {
  const reasons: string[] = [];
  if (state === "changed") {
    reasons.push("The server changed the definition after it was trusted.");
  }
  if (state === "shadowing") {
    reasons.push(`The server added a tool with the name of ${shadows ?? "another server's tool"}.`);
  }
  if (findings.length > 0) {
    reasons.push("The definition looks suspicious.");
  }
  return reasons;
}
