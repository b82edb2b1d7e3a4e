/** Usage statistics since the gateway started. */

import { request } from "../api/client.ts";
import { useReloadOn, useResource } from "../api/hooks.ts";
import type { FiguresView as Figures, StatsView as Stats } from "../api/schema.ts";
import { formatDuration, formatNumber, formatUsd } from "../ui/format.ts";
import { ErrorNotice, Loading, Table } from "../ui/components.tsx";

export function Overview() {
  const { data, error, reload } = useResource("stats", (signal) => request<Stats>("/api/stats", { signal }));
  useReloadOn(["call"], reload);
  return (
    <section className="stack" aria-label="Overview">
      <h2>Usage since startup</h2>
      <ErrorNotice error={error} />
      {data === null && error === null && <Loading />}
      {data !== null && (
        <>
          <Totals stats={data} />
          {data.tools.length > 0 && <ToolTable stats={data} />}
          {data.models.length > 0 && <ModelTable stats={data} />}
        </>
      )}
    </section>
  );
}

function Totals({ stats }: { stats: Stats }) {
  const sum = (select: (figures: Figures) => number) =>
    stats.servers.reduce((total, { figures }) => total + select(figures), 0);
  const totals: [string, string][] = [
    [formatNumber(sum((figures) => figures.calls)), "tool calls"],
    [formatNumber(sum((figures) => figures.errors)), "failed calls"],
    [formatNumber(stats.saved_tokens), "tokens saved by code mode"],
    [formatNumber(stats.models.reduce((total, model) => total + model.requests, 0)), "model requests"],
    [formatUsd(stats.models.reduce((total, model) => total + model.cost_usd, 0)), "model cost"],
  ];
  return (
    <div className="stats">
      {totals.map(([value, label]) => (
        <div key={label} className="stat">
          <b>{value}</b>
          <span>{label}</span>
        </div>
      ))}
    </div>
  );
}

const MAX_TOOLS = 20;

function ToolTable({ stats }: { stats: Stats }) {
  const busiest = [...stats.tools].sort((a, b) => b.figures.calls - a.figures.calls).slice(0, MAX_TOOLS);
  return (
    <Table
      columns={["Tool", { number: "Calls" }, { number: "Errors" }, { number: "Median" }, { number: "p99" }]}
    >
      {busiest.map(({ server, tool, figures }) => (
        <tr key={`${server} ${tool}`}>
          <td className="mono">{`${server}.${tool}`}</td>
          <td className="number" data-label="Calls">
            {formatNumber(figures.calls)}
          </td>
          <td className="number" data-label="Errors">
            {formatNumber(figures.errors)}
          </td>
          <td className="number" data-label="Median">
            {formatDuration(figures.p50_ms)}
          </td>
          <td className="number" data-label="p99">
            {formatDuration(figures.p99_ms)}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function ModelTable({ stats }: { stats: Stats }) {
  return (
    <Table
      columns={[
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
            {formatNumber(model.requests)}
          </td>
          <td className="number" data-label="Tokens in">
            {formatNumber(model.tokens.input)}
          </td>
          <td className="number" data-label="Tokens out">
            {formatNumber(model.tokens.output)}
          </td>
          <td className="number" data-label="Cost">
            {formatUsd(model.cost_usd)}
          </td>
        </tr>
      ))}
    </Table>
  );
}
