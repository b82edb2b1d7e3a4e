/** Where in the page we are: `#/servers/github`, the view and what is open in it. */

import { useSyncExternalStore } from "react";

export interface Route {
  view: string;
  item: string | null;
}

export function routeOf(hash: string): Route {
  const [view = "", ...rest] = hash.replace(/^#\/?/, "").split("/");
  const item = rest.join("/");
  return { view: view || "servers", item: item === "" ? null : decode(item) };
}

export function hashOf(view: string, item?: string | null): string {
  return item ? `#/${view}/${encodeURIComponent(item)}` : `#/${view}`;
}

export function go(view: string, item?: string | null): void {
  location.hash = hashOf(view, item);
}

/** The same without a step back to where it was, for what changes with every key. */
export function replace(view: string, item?: string | null): void {
  history.replaceState(null, "", hashOf(view, item));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(
    (changed) => {
      addEventListener("hashchange", changed);
      return () => removeEventListener("hashchange", changed);
    },
    () => location.hash,
  );
  return routeOf(hash);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
