/** Panels above the page. A native dialog keeps the focus, closes on Escape and is read out as one. */

import { useEffect, useId, useRef, useState, type ReactNode } from "react";

interface SheetProps {
  title: string;
  says?: ReactNode;
  kind?: "sheet" | "box";
  foot?: ReactNode;
  /** What would be lost by closing it now; asked about first. */
  loses?: string | null;
  onClose: () => void;
  children: ReactNode;
}

export function Sheet({ title, says, kind = "sheet", foot, loses = null, onClose, children }: SheetProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) {
      shown.showModal();
      const first = shown.querySelector<HTMLElement>("[data-first]") ?? shown.querySelector("h2");
      first?.focus();
    }
    return () => shown?.close();
  }, []);
  const [asking, setAsking] = useState(false);
  const close = () => (loses === null ? onClose() : setAsking(true));
  return (
    <dialog
      ref={dialog}
      className={kind}
      aria-labelledby={heading}
      onCancel={(event) => {
        // A dialog within this one, or a file chooser, is cancelled by itself.
        if (event.target === dialog.current) {
          event.preventDefault();
          close();
        }
      }}
      onClose={(event) => {
        // Browsers let a second Escape through, whatever was said to the first.
        const shown = dialog.current;
        if (shown && event.target === shown && !shown.open) {
          if (loses !== null) {
            shown.showModal();
          }
          close();
        }
      }}
      onMouseDown={(event) => {
        if (event.target === dialog.current) {
          close();
        }
      }}
    >
      <div className="panel">
        <header>
          <div>
            <h2 id={heading} tabIndex={-1}>
              {title}
            </h2>
            {says !== undefined && <div className="says">{says}</div>}
          </div>
          <button type="button" className="plain close" aria-label="Close" onClick={close}>
            ✕
          </button>
        </header>
        <div className="body">{children}</div>
        {foot !== undefined && <footer>{foot}</footer>}
      </div>
      {asking && (
        <Confirm title="Close it?" verb="Close" onConfirm={onClose} onClose={() => setAsking(false)}>
          <p>{loses}</p>
        </Confirm>
      )}
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  verb: string;
  busy?: boolean;
  error?: string | null;
  onConfirm: () => void;
  onClose: () => void;
  children: ReactNode;
}

/** Asks once more before something that cannot be taken back. */
export function Confirm({
  title,
  verb,
  busy = false,
  error = null,
  onConfirm,
  onClose,
  children,
}: ConfirmProps) {
  const foot = (
    <>
      <button type="button" onClick={onClose}>
        Cancel
      </button>
      <button type="button" className="danger solid" disabled={busy} onClick={onConfirm}>
        {verb}
      </button>
    </>
  );
  return (
    <Sheet title={title} kind="box" foot={foot} onClose={onClose}>
      {children}
      {error !== null && (
        <div className="notice bad" role="alert">
          {error}
        </div>
      )}
    </Sheet>
  );
}
