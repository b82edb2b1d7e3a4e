/** Figures since the gateway started. */

import { ask } from "../api/client.ts";
import { useReloadOn, useResource } from "../api/hooks.ts";
import type { Figures, Stats } from "../api/types.ts";
import { count, ms, usd } from "../ui/format.ts";
import { Failure, Loading, Table } from "../ui/parts.tsx";

export function Overview() {
  const { data, error, reload } = useResource("stats", (signal) => ask<Stats>("/api/stats", { signal }));
  useReloadOn(["call"], reload);
  return (
    <section className="stack" aria-label="Overview">
      <h2>Since the gateway started</h2>
      <Failure error={error} />
      {data === null && error === null && <Loading />}
      {data !== null && (
        <>
          <Totals stats={data} />
          {data.tools.length > 0 && <ToolFigures stats={data} />}
          {data.models.length > 0 && <ModelFigures stats={data} />}
        </>
      )}
    </section>
  );
}

function Totals({ stats }: { stats: Stats }) {
  const sum = (of: (figures: Figures) => number) =>
    stats.servers.reduce((total, { figures }) => total + of(figures), 0);
  const figures: [string, string][] = [
    [count(sum((one) => one.calls)), "tool calls"],
    [count(sum((one) => one.errors)), "of them failed"],
    [count(stats.saved_tokens), "tokens saved by code mode"],
    [count(stats.models.reduce((total, model) => total + model.requests, 0)), "model requests"],
    [usd(stats.models.reduce((total, model) => total + model.cost_usd, 0)), "spent on models"],
  ];
  return (
    <div className="figures">
      {figures.map(([value, says]) => (
        <div key={says} className="figure">
          <b>{value}</b>
          <span>{says}</span>
        </div>
      ))}
    </div>
  );
}

const MOST = 20;

function ToolFigures({ stats }: { stats: Stats }) {
  const busiest = [...stats.tools].sort((a, b) => b.figures.calls - a.figures.calls).slice(0, MOST);
  return (
    <Table
      heads={["Tool", { number: "Calls" }, { number: "Errors" }, { number: "Median" }, { number: "99 %" }]}
    >
      {busiest.map(({ server, tool, figures }) => (
        <tr key={`${server} ${tool}`}>
          <td className="mono">{`${server}.${tool}`}</td>
          <td className="number" data-label="Calls">
            {count(figures.calls)}
          </td>
          <td className="number" data-label="Errors">
            {count(figures.errors)}
          </td>
          <td className="number" data-label="Median">
            {ms(figures.p50_ms)}
          </td>
          <td className="number" data-label="99 %">
            {ms(figures.p99_ms)}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function ModelFigures({ stats }: { stats: Stats }) {
  return (
    <Table
      heads={[
        "Model",
        { number: "Requests" },
        { number: "Tokens in" },
        { number: "Tokens out" },
        { number: "Cost" },
      ]}
    >
      {stats.models.map((model) => (
        <tr key={`${model.provider} ${model.model}`}>
          <td className="mono">{`${model.provider}/${model.model}`}</td>
          <td className="number" data-label="Requests">
            {count(model.requests)}
          </td>
          <td className="number" data-label="Tokens in">
            {count(model.tokens.input)}
          </td>
          <td className="number" data-label="Tokens out">
            {count(model.tokens.output)}
          </td>
          <td className="number" data-label="Cost">
            {usd(model.cost_usd)}
          </td>
        </tr>
      ))}
    </Table>
  );
}
