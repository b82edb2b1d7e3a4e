/** How deep agents go, how long a tool may take, and how code mode lays out its files. */

import { useState, type FormEvent } from "react";

import { useAction } from "../api/hooks.ts";
import type { ToolManager } from "../api/types.ts";
import { Failure, Field, Switch } from "../ui/parts.tsx";
import { changesOf, formOf, type ManagerForm } from "./changes.ts";

interface Props {
  settings: ToolManager;
  onSave: (patch: Partial<Record<keyof ToolManager, unknown>>) => Promise<void>;
}

const LEVELS = [
  {
    value: "server",
    title: "Server",
    example: "servers/youtube.pyi",
    says: "One file for each server. Simple to find one's way in, with up to about 20 tools a server.",
  },
  {
    value: "tool",
    title: "Tool",
    example: "servers/youtube/search.pyi",
    says: "One file for each tool. The model reads no more than it needs, with 30 tools a server and more.",
  },
] as const;

export function ToolManagerForm({ settings, onSave }: Props) {
  const [edits, setEdits] = useState<Partial<ManagerForm>>({});
  const [saved, setSaved] = useState(false);
  const action = useAction();
  const form: ManagerForm = { ...formOf(settings), ...edits };
  const patch = changesOf(settings, form);
  const clean = Object.keys(patch).length === 0;
  const edit = (change: Partial<ManagerForm>) => {
    setEdits({ ...edits, ...change });
    setSaved(false);
    action.clear();
  };
  const save = (event: FormEvent) => {
    event.preventDefault();
    void action.run(async () => {
      await onSave(patch);
      setEdits({});
      setSaved(true);
    });
  };
  return (
    <form className="card stack" onSubmit={save}>
      <h2>Tool execution</h2>
      <div className="pair">
        <Field label="Agent depth" hint="Rounds of tool calls that an agent may take, 1 to 50.">
          {(id) => (
            <input
              id={id}
              inputMode="numeric"
              value={form.depth}
              onChange={(event) => edit({ depth: event.target.value })}
            />
          )}
        </Field>
        <Field label="Tool timeout" hint="Seconds that one call may take, or a text such as 45s.">
          {(id) => (
            <input id={id} value={form.timeout} onChange={(event) => edit({ timeout: event.target.value })} />
          )}
        </Field>
      </div>
      <div className="option">
        <Switch
          label="Add tools to model requests"
          on={form.inject}
          onChange={(inject) => edit({ inject })}
        />
        <p className="hint">When off, only requests with a filter header get tools.</p>
      </div>
      <fieldset className="levels">
        <legend className="label">Code mode binding level</legend>
        {LEVELS.map((level) => (
          <label key={level.value} className={form.level === level.value ? "chosen" : ""}>
            <input
              type="radio"
              name="binding-level"
              checked={form.level === level.value}
              onChange={() => edit({ level: level.value })}
            />
            <span>
              <strong>{level.title}</strong> <code>{level.example}</code>
              <span className="hint">{level.says}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <Failure error={action.error} />
      <div className="row">
        <button type="submit" className="primary" disabled={clean || action.busy}>
          Save Changes
        </button>
        {saved && clean && <span className="soft">Saved</span>}
      </div>
    </form>
  );
}
