/**
 * Side sheets and dialogs. They use the native `<dialog>`, which traps focus, closes on Escape and is
 * announced as a dialog by screen readers.
 */

import { useEffect, useId, useRef, useState, type ReactNode } from "react";

import { RecordingBanner } from "./banner.tsx";

/** Asks for confirmation before closing discards something. */
export interface CloseWarning {
  title: string;
  text: string;
  confirmLabel: string;
}

/** Warning for unsaved input in a form. */
export function discardWarning(text: string): CloseWarning {
  return { title: "Discard changes?", text, confirmLabel: "Discard" };
}

interface SheetProps {
  title: string;
  subtitle?: ReactNode;
  variant?: "sheet" | "modal";
  footer?: ReactNode;
  closeWarning?: CloseWarning | null;
  onClose: () => void;
  children: ReactNode;
}

export function Sheet({
  title,
  subtitle,
  variant = "sheet",
  footer,
  closeWarning = null,
  onClose,
  children,
}: SheetProps) {
  const dialogRef = useRef<HTMLDialogElement>(null);
  const headingId = useId();
  useEffect(() => {
    const dialog = dialogRef.current;
    if (dialog && !dialog.open) {
      dialog.showModal();
      const target = dialog.querySelector<HTMLElement>("[data-autofocus]") ?? dialog.querySelector("h2");
      target?.focus();
    }
    return () => dialog?.close();
  }, []);
  const [shownWarning, setShownWarning] = useState<CloseWarning | null>(null);
  const close = () => (closeWarning === null ? onClose() : setShownWarning(closeWarning));
  return (
    <dialog
      ref={dialogRef}
      className={variant}
      aria-labelledby={headingId}
      onCancel={(event) => {
        // The event also bubbles up from nested dialogs and file inputs, which handle it themselves.
        if (event.target === dialogRef.current) {
          event.preventDefault();
          close();
        }
      }}
      onClose={(event) => {
        // Browsers close the dialog on a second Escape even if the first one was prevented.
        const dialog = dialogRef.current;
        if (dialog && event.target === dialog && !dialog.open) {
          if (closeWarning !== null) {
            dialog.showModal();
          }
          close();
        }
      }}
      onMouseDown={(event) => {
        // A click on the backdrop.
        if (event.target === dialogRef.current) {
          close();
        }
      }}
    >
      <div className="panel">
        <header>
          <div>
            <h2 id={headingId} tabIndex={-1}>
              {title}
            </h2>
            {subtitle !== undefined && <div className="subtitle">{subtitle}</div>}
          </div>
          <button type="button" className="plain close" aria-label="Close" onClick={close}>
            ✕
          </button>
        </header>
        {/* An open dialog covers the banner of the page and hides it from screen readers. */}
        {variant === "sheet" && <RecordingBanner />}
        <div className="body">{children}</div>
        {footer !== undefined && <footer>{footer}</footer>}
      </div>
      {shownWarning !== null && (
        <ConfirmDialog
          title={shownWarning.title}
          confirmLabel={shownWarning.confirmLabel}
          onConfirm={onClose}
          onClose={() => setShownWarning(null)}
        >
          <p>{shownWarning.text}</p>
        </ConfirmDialog>
      )}
    </dialog>
  );
}

interface ConfirmDialogProps {
  title: string;
  confirmLabel: string;
  busy?: boolean;
  error?: string | null;
  onConfirm: () => void;
  onClose: () => void;
  children: ReactNode;
}

/** Asks for confirmation of something that cannot be undone. */
export function ConfirmDialog({
  title,
  confirmLabel,
  busy = false,
  error = null,
  onConfirm,
  onClose,
  children,
}: ConfirmDialogProps) {
  const footer = (
    <>
      <button type="button" onClick={onClose}>
        Cancel
      </button>
      <button type="button" className="danger solid" disabled={busy} onClick={onConfirm}>
        {confirmLabel}
      </button>
    </>
  );
  return (
    <Sheet title={title} variant="modal" footer={footer} onClose={onClose}>
      {children}
      {error !== null && (
        <div className="notice bad" role="alert">
          {error}
        </div>
      )}
    </Sheet>
  );
}
