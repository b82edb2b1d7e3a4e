/** Shows a new or rotated key once. */

import type { NewKey } from "../api/schema.ts";
import { CopyButton, Notice } from "../ui/components.tsx";
import { Sheet } from "../ui/sheet.tsx";

const CLOSE_WARNING = {
  title: "Close?",
  text: "You will not be able to see this key again.",
  confirmLabel: "Close",
};

export function NewKeyDialog({ newKey, onClose }: { newKey: NewKey; onClose: () => void }) {
  const footer = (
    <button type="button" className="primary" onClick={onClose}>
      Done
    </button>
  );
  return (
    <Sheet
      title={`Key ${newKey.entry.name}`}
      variant="modal"
      footer={footer}
      closeWarning={CLOSE_WARNING}
      onClose={onClose}
    >
      <Notice tone="warn">Copy this key now. It will not be shown again.</Notice>
      <div className="row">
        <code className="key">{newKey.key}</code>
        <CopyButton text={newKey.key} />
      </div>
      <p className="hint">
        Send it as <code>Authorization: Bearer …</code>, <code>x-api-key</code> or <code>x-bf-vk</code>.
      </p>
    </Sheet>
  );
}
