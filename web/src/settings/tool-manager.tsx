/** The form for tool execution: agent depth, tool timeout, tool injection and code mode files. */

import { useState, type FormEvent } from "react";

import { useAction } from "../api/hooks.ts";
import type { ToolManagerView as ToolManager } from "../api/schema.ts";
import { ErrorNotice, Field, Switch } from "../ui/components.tsx";
import { buildSettingsPatch, toSettingsForm, type SettingsForm } from "./changes.ts";

interface Props {
  settings: ToolManager;
  onSave: (patch: Partial<Record<keyof ToolManager, unknown>>) => Promise<void>;
}

const LEVELS = [
  {
    value: "server",
    title: "Server",
    example: "servers/youtube.pyi",
    hint: "One file per server. Best for servers with up to about 20 tools.",
  },
  {
    value: "tool",
    title: "Tool",
    example: "servers/youtube/search.pyi",
    hint: "One file per tool. Best for servers with 30 or more tools.",
  },
] as const;

export function ToolManagerForm({ settings, onSave }: Props) {
  const [edits, setEdits] = useState<Partial<SettingsForm>>({});
  const [saved, setSaved] = useState(false);
  const action = useAction();
  const form: SettingsForm = { ...toSettingsForm(settings), ...edits };
  const patch = buildSettingsPatch(settings, form);
  const clean = Object.keys(patch).length === 0;
  const edit = (change: Partial<SettingsForm>) => {
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
      <div className="two-columns">
        <Field label="Agent depth" hint="Maximum rounds of tool calls per run, from 1 to 50.">
          {(id) => (
            <input
              id={id}
              inputMode="numeric"
              value={form.depth}
              onChange={(event) => edit({ depth: event.target.value })}
            />
          )}
        </Field>
        <Field label="Tool timeout" hint="Maximum time per call: seconds, or a duration such as 45s.">
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
        <p className="hint">When off, tools are added only to requests with a filter header.</p>
      </div>
      <fieldset className="radio-cards">
        <legend className="label">Code mode binding level</legend>
        {LEVELS.map((level) => (
          <label key={level.value} className={form.level === level.value ? "selected" : ""}>
            <input
              type="radio"
              name="binding-level"
              checked={form.level === level.value}
              onChange={() => edit({ level: level.value })}
            />
            <span>
              <strong>{level.title}</strong> <code>{level.example}</code>
              <span className="hint">{level.hint}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <ErrorNotice error={action.error} />
      <div className="row">
        <button type="submit" className="primary" disabled={clean || action.busy}>
          Save Changes
        </button>
        {saved && clean && <span className="soft">Saved</span>}
      </div>
    </form>
  );
}
