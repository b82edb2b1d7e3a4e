/** Whether callers need a key, and the switch that changes it. */

import { useState } from "react";

import { request } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import type { KeyRequirementView } from "../api/schema.ts";
import { ErrorNotice, Switch } from "../ui/components.tsx";
import { ConfirmDialog } from "../ui/sheet.tsx";

interface Props {
  requirement: KeyRequirementView;
  onChange: (requirement: KeyRequirementView) => void;
}

export function KeyRequirement({ requirement, onChange }: Props) {
  const [confirming, setConfirming] = useState(false);
  const action = useAction();
  const setRequired = (required: boolean) =>
    void action.run(async () => {
      onChange(
        await request<KeyRequirementView>("/api/keys-required", { method: "PUT", body: { required } }),
      );
      setConfirming(false);
    });
  return (
    <section className="card option" aria-label="Key requirement">
      <Switch
        label="Require a key"
        on={requirement.required}
        disabled={requirement.has_keys || action.busy}
        onChange={(required) => (required ? setRequired(true) : setConfirming(true))}
      />
      <p className="hint">{describeRequirement(requirement)}</p>
      {!confirming && <ErrorNotice error={action.error} />}
      {confirming && (
        <ConfirmDialog
          title="Accept callers without a key?"
          confirmLabel="Make keys optional"
          busy={action.busy}
          error={action.error}
          onConfirm={() => setRequired(false)}
          onClose={() => setConfirming(false)}
        >
          <p>Every program on the gateway's machine can then call tools, until you add a key.</p>
        </ConfirmDialog>
      )}
    </section>
  );
}

function describeRequirement({ required, has_keys }: KeyRequirementView): string {
  if (has_keys) {
    return "Callers need a key as long as one exists. This stays on when the last key is deleted.";
  }
  return required
    ? "No key exists, so calls are rejected. Add a key, or turn this off for callers on the gateway's machine."
    : "Callers on the gateway's machine do not need a key. Adding one turns this on.";
}
