/** A key that was just made, to be taken along now. */

import type { NewKey } from "../api/types.ts";
import { Copy, Notice } from "../ui/parts.tsx";
import { Sheet } from "../ui/sheet.tsx";

export function ShownOnce({ made, onClose }: { made: NewKey; onClose: () => void }) {
  const foot = (
    <button type="button" className="primary" onClick={onClose}>
      Done
    </button>
  );
  return (
    <Sheet
      title={`The key ${made.entry.name}`}
      kind="box"
      foot={foot}
      loses="The key is not shown again."
      onClose={onClose}
    >
      <Notice tone="warn">It is shown now and never again: only its hash is kept.</Notice>
      <div className="row">
        <code className="key">{made.key}</code>
        <Copy text={made.key} />
      </div>
      <p className="hint">
        Callers send it as <code>Authorization: Bearer …</code>, <code>x-api-key</code> or{" "}
        <code>x-bf-vk</code>.
      </p>
    </Sheet>
  );
}
