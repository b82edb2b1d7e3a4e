/** What was changed, before and after. */

import { pluralize } from "../ui/format.ts";
import { CodeBlock, Table } from "../ui/components.tsx";
import { compareValues, formatValue, isObject, type ValueChange } from "./record-detail.ts";

/** Shows the change in a record's details, if there is one. Details that are too long are stored as a text. */
export function RecordChange({ detail }: { detail: unknown }) {
  if (typeof detail === "string") {
    return (
      <div className="field">
        <h3>Details</h3>
        <CodeBlock text={detail} label="Details" />
      </div>
    );
  }
  if (!isObject(detail) || (detail["before"] === undefined && detail["after"] === undefined)) {
    return null;
  }
  return <ChangeDetails before={detail["before"]} after={detail["after"]} />;
}

function ChangeDetails({ before, after }: { before: unknown; after: unknown }) {
  const values = compareValues(before, after);
  const changed = values.filter((value) => value.changed);
  const unchanged = values.filter((value) => !value.changed);
  return (
    <div className="field">
      <h3>Change</h3>
      {changed.length > 0 ? <ChangeTable values={changed} /> : <p className="soft">Nothing changed.</p>}
      {unchanged.length > 0 && (
        <details>
          <summary>{pluralize(unchanged.length, "unchanged value")}</summary>
          <ChangeTable values={unchanged} />
        </details>
      )}
    </div>
  );
}

/** Shows values before and after a change. */
export function ChangeTable({ values }: { values: ValueChange[] }) {
  return (
    <Table columns={["Value", "Before", "After"]}>
      {values.map(({ path, before, after, changed }) => (
        <tr key={path} className="change">
          <td className="mono">{path || "–"}</td>
          <td className="mono" data-label="Before">
            {changed && before !== undefined ? <del>{formatValue(before)}</del> : formatValue(before)}
          </td>
          <td className="mono" data-label="After">
            {changed && after !== undefined ? <ins>{formatValue(after)}</ins> : formatValue(after)}
          </td>
        </tr>
      ))}
    </Table>
  );
}
