/** Routes: the hash names a view and, optionally, the item open in it, as in `#/servers/github`. */

import { useSyncExternalStore } from "react";

export interface Route {
  view: string;
  item: string | null;
}

export function parseRoute(hash: string): Route {
  const [view = "", ...rest] = hash.replace(/^#\/?/, "").split("/");
  const item = rest.join("/");
  return { view: view || "servers", item: item === "" ? null : decode(item) };
}

export function routeHash(view: string, item?: string | null): string {
  return item ? `#/${view}/${encodeURIComponent(item)}` : `#/${view}`;
}

export function navigate(view: string, item?: string | null): void {
  location.hash = routeHash(view, item);
}

/** Navigates without a history entry, for routes that change with every keystroke. */
export function replaceRoute(view: string, item?: string | null): void {
  history.replaceState(null, "", routeHash(view, item));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(
    (listener) => {
      addEventListener("hashchange", listener);
      return () => removeEventListener("hashchange", listener);
    },
    () => location.hash,
  );
  return parseRoute(hash);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
