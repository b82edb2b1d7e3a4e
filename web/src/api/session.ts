/** The key of whoever looks at the page: for this tab, or kept on this device if they say so. */

const NAME = "toolgate.key";

type Listener = () => void;
const listeners = new Set<Listener>();
let refused: string | null = null;

export type Keeping = "tab" | "device";

export function key(): string | null {
  return sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME);
}

export function keep(value: string, keeping: Keeping): void {
  if (keeping === "device") {
    sessionStorage.removeItem(NAME);
    localStorage.setItem(NAME, value);
  } else {
    sessionStorage.setItem(NAME, value);
  }
  refused = null;
  tell();
}

/** Forgets the key and goes on without one; the gateway says if it wants one. */
export function goWithout(): void {
  forgetKey();
  refused = null;
  tell();
}

/** The gateway wants a key, or another one; its own words say which. */
export function refuse(words: string): void {
  if (sessionStorage.getItem(NAME) !== null && localStorage.getItem(NAME) !== null) {
    // A link with a wrong key must not cost the one that is kept.
    sessionStorage.removeItem(NAME);
    tell();
  } else if (refused !== words) {
    refused = words;
    tell();
  }
}

/** What the gateway said when it refused; none while it lets us in. */
export function refusal(): string | null {
  return refused;
}

export function watch(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Takes the key of a login link, `/#key=…`, and removes it from the address at once. */
export function takeKeyFromAddress(): void {
  const found = keyInHash(location.hash);
  if (found === null) {
    return;
  }
  history.replaceState(null, "", location.pathname + location.search);
  keep(found, "tab");
}

export function keyInHash(hash: string): string | null {
  const given = new URLSearchParams(hash.replace(/^#\/?/, "")).get("key");
  return given?.trim() || null;
}

function forgetKey(): void {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
}

function tell(): void {
  listeners.forEach((listener) => listener());
}
