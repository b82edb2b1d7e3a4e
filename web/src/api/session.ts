/** The user's admin key, stored for the tab or, on request, on the device. */

const STORAGE_KEY = "toolgate.key";

type Listener = () => void;
const listeners = new Set<Listener>();
let keyError: string | null = null;

export type KeyStorage = "tab" | "device";

export function getKey(): string | null {
  return sessionStorage.getItem(STORAGE_KEY) ?? localStorage.getItem(STORAGE_KEY);
}

export function storeKey(key: string, storage: KeyStorage): void {
  if (storage === "device") {
    sessionStorage.removeItem(STORAGE_KEY);
    localStorage.setItem(STORAGE_KEY, key);
  } else {
    sessionStorage.setItem(STORAGE_KEY, key);
  }
  keyError = null;
  notifyListeners();
}

/** Removes the key and continues without one. If the gateway requires a key, its next response says so. */
export function clearKey(): void {
  sessionStorage.removeItem(STORAGE_KEY);
  localStorage.removeItem(STORAGE_KEY);
  keyError = null;
  notifyListeners();
}

/** Records that the gateway requires a key or rejected this one. */
export function rejectKey(message: string): void {
  if (sessionStorage.getItem(STORAGE_KEY) !== null && localStorage.getItem(STORAGE_KEY) !== null) {
    // A wrong key in a login link must not discard the remembered key.
    sessionStorage.removeItem(STORAGE_KEY);
    notifyListeners();
  } else if (keyError !== message) {
    keyError = message;
    notifyListeners();
  }
}

/** Returns why the gateway rejected the key, or `null` if it did not. */
export function getKeyError(): string | null {
  return keyError;
}

/** Calls `listener` when the key or its error changes. Returns a function that unsubscribes. */
export function subscribe(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Stores the key from a login link, `/#key=…`, and removes it from the address bar immediately. */
export function consumeLoginLink(): void {
  const key = keyFromHash(location.hash);
  if (key === null) {
    return;
  }
  history.replaceState(null, "", location.pathname + location.search);
  storeKey(key, "tab");
}

export function keyFromHash(hash: string): string | null {
  const key = new URLSearchParams(hash.replace(/^#\/?/, "")).get("key");
  return key?.trim() || null;
}

function notifyListeners(): void {
  listeners.forEach((listener) => listener());
}
