/** The page: sign-in, navigation, and the current view. */

import { useEffect, useRef, type ComponentType } from "react";

import { feed } from "./api/feed.ts";
import { useIsLive, useKey, useKeyError } from "./api/hooks.ts";
import { readiness } from "./api/readiness.ts";
import * as session from "./api/session.ts";
import { ActivityView } from "./activity/view.tsx";
import { ApprovalsView } from "./approvals/view.tsx";
import { usePendingCount } from "./approvals/pending.ts";
import { CodeView } from "./code/view.tsx";
import { KeysView } from "./keys/view.tsx";
import { routeHash, useRoute } from "./route.ts";
import { RunsView } from "./runs/view.tsx";
import { ServersView } from "./servers/view.tsx";
import { SettingsView } from "./settings/view.tsx";
import { SignIn } from "./sign-in.tsx";
import { ToolsView } from "./tools/view.tsx";
import { ConfigurationBanner, RecordingBanner } from "./ui/banner.tsx";
import { Icon, Logo, type IconName } from "./ui/icons.tsx";
import { EmptyState } from "./ui/components.tsx";

interface View {
  name: IconName;
  label: string;
  Component: ComponentType<{ item: string | null }>;
}

const VIEWS: readonly View[] = [
  { name: "servers", label: "Servers", Component: ServersView },
  { name: "tools", label: "Tools", Component: ToolsView },
  { name: "code", label: "Code", Component: CodeView },
  { name: "approvals", label: "Approvals", Component: ApprovalsView },
  { name: "runs", label: "Runs", Component: RunsView },
  { name: "activity", label: "Activity", Component: ActivityView },
  { name: "keys", label: "Keys", Component: KeysView },
  { name: "settings", label: "Settings", Component: SettingsView },
];

export function App() {
  const keyError = useKeyError();
  const key = useKey();
  useEffect(() => {
    readiness.start();
    return () => readiness.stop();
  }, []);
  useEffect(() => {
    if (keyError !== null) {
      feed.stop();
      return;
    }
    feed.start();
    return () => feed.stop();
  }, [keyError, key]);
  // A different key may see different data, so remount everything and load it again.
  return keyError === null ? (
    <Layout key={key} />
  ) : (
    <>
      <RecordingBanner />
      <SignIn key={key} keyError={keyError} />
    </>
  );
}

function Layout() {
  const { view, item } = useRoute();
  const current = VIEWS.find(({ name }) => name === view);
  useEffect(() => {
    document.title = current ? `${current.label} · Toolgate` : "Toolgate";
  }, [current]);
  return (
    <div className="layout">
      <a className="skip-link" href="#main" onClick={skipToContent}>
        Skip to content
      </a>
      <Sidebar view={view} />
      <div>
        <RecordingBanner />
        <ConfigurationBanner />
        <main id="main" tabIndex={-1}>
          {current ? <current.Component item={item} /> : <NotFound />}
        </main>
      </div>
    </div>
  );
}

function Sidebar({ view }: { view: string }) {
  const pending = usePendingCount();
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    // On phones, the navigation is a row wider than the screen.
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [view]);
  return (
    <aside className="sidebar">
      <a className="brand" href={routeHash("servers")}>
        <Logo />
        Toolgate
      </a>
      <nav ref={nav} aria-label="Main">
        {VIEWS.map(({ name, label }) => (
          <a key={name} href={routeHash(name)} aria-current={name === view ? "page" : undefined}>
            <Icon name={name} />
            {label}
            {name === "approvals" && pending > 0 && (
              <span className="count">{pending < 100 ? pending : "99+"}</span>
            )}
          </a>
        ))}
      </nav>
      <SidebarFooter />
    </aside>
  );
}

function SidebarFooter() {
  const live = useIsLive();
  const hasKey = useKey() !== null;
  return (
    <div className="footer">
      <span
        className={live ? "status good" : "status neutral"}
        title={live ? "Changes appear immediately" : "Updates every few seconds until connected"}
      >
        <span className="dot" aria-hidden="true" />
        {live ? "Live" : "Connecting…"}
      </span>
      {hasKey && (
        <button type="button" className="plain" onClick={() => session.clearKey()}>
          Sign out
        </button>
      )}
    </div>
  );
}

function NotFound() {
  return (
    <EmptyState title="Page not found">
      <a href={routeHash("servers")}>Go to Servers</a>
    </EmptyState>
  );
}

/** Moves the focus without changing the hash, which would change the route. */
function skipToContent(event: { preventDefault: () => void }): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
