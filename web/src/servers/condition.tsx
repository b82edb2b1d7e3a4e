/** How a server is: what it said of itself, what is wrong with it. */

import { Fragment } from "react";

import type { Client } from "../api/types.ts";
import { clock, count, many, ms, when } from "../ui/format.ts";
import { Notice } from "../ui/parts.tsx";
import { stateOf, troubleOf } from "./state.ts";

export function Condition({ client }: { client: Client }) {
  const trouble = troubleOf(client);
  const { figures } = client;
  const facts: [string, string | null][] = [
    ["Since", `${clock(client.since)} (${when(client.since)})`],
    ["Says it is", saysItIs(client)],
    ["Calls", figures.calls === 0 ? null : callsOf(client)],
    ["Also offers", alsoOffers(client)],
    ["Instructions", client.instructions],
  ];
  return (
    <section className="section">
      {trouble !== null && (
        <Notice tone={stateOf(client.state).tone === "bad" ? "bad" : "warn"}>{trouble}</Notice>
      )}
      <dl className="facts">
        {facts.map(
          ([name, value]) =>
            value !== null && (
              <Fragment key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </Fragment>
            ),
        )}
      </dl>
      {client.problems.map((problem, index) => (
        <Notice key={index} tone="warn">
          {`The ${problem.kind} ${problem.item} is left out: ${problem.reason}`}
        </Notice>
      ))}
    </section>
  );
}

function saysItIs({ server_info, protocol_version }: Client): string | null {
  if (protocol_version === null) {
    return null;
  }
  return [server_info?.name, server_info?.version, `(protocol ${protocol_version})`]
    .filter(Boolean)
    .join(" ");
}

function callsOf({ figures, in_flight }: Client): string {
  const now = in_flight > 0 ? `, ${count(in_flight)} under way` : "";
  return `${count(figures.calls)}, ${many(figures.errors, "error")}, half of them within ${ms(figures.p50_ms)}${now}`;
}

function alsoOffers({ resources, prompts }: Client): string | null {
  const parts = [
    resources.length > 0 ? many(resources.length, "resource") : null,
    prompts.length > 0 ? many(prompts.length, "prompt") : null,
  ];
  return parts.filter((part) => part !== null).join(", ") || null;
}
