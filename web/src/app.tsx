/** The frame of the page: who is let in, where one can go, and the view that is open. */

import { useEffect, useRef, type ComponentType } from "react";

import { feed } from "./api/feed.ts";
import { useKey, useLive, useRefusal } from "./api/hooks.ts";
import * as session from "./api/session.ts";
import { ActivityView } from "./activity/view.tsx";
import { ApprovalsView } from "./approvals/view.tsx";
import { usePendingCount } from "./approvals/pending.ts";
import { CodeView } from "./code/view.tsx";
import { KeysView } from "./keys/view.tsx";
import { hashOf, useRoute } from "./route.ts";
import { RunsView } from "./runs/view.tsx";
import { ServersView } from "./servers/view.tsx";
import { SettingsView } from "./settings/view.tsx";
import { SignIn } from "./sign-in.tsx";
import { ToolsView } from "./tools/view.tsx";
import { Icon, Mark, type IconName } from "./ui/icons.tsx";
import { Empty } from "./ui/parts.tsx";

interface View {
  name: IconName;
  label: string;
  show: ComponentType<{ item: string | null }>;
}

const VIEWS: readonly View[] = [
  { name: "servers", label: "Servers", show: ServersView },
  { name: "tools", label: "Tools", show: ToolsView },
  { name: "code", label: "Code", show: CodeView },
  { name: "approvals", label: "Approvals", show: ApprovalsView },
  { name: "runs", label: "Runs", show: RunsView },
  { name: "activity", label: "Activity", show: ActivityView },
  { name: "keys", label: "Keys", show: KeysView },
  { name: "settings", label: "Settings", show: SettingsView },
];

export function App() {
  const refusal = useRefusal();
  const key = useKey();
  useEffect(() => {
    if (refusal !== null) {
      feed.stop();
      return;
    }
    feed.start();
    return () => feed.stop();
  }, [refusal, key]);
  // Another key may see other things: everything is asked for anew.
  return refusal === null ? <Frame key={key} /> : <SignIn key={key} refusal={refusal} />;
}

function Frame() {
  const { view, item } = useRoute();
  const open = VIEWS.find(({ name }) => name === view);
  useEffect(() => {
    document.title = open ? `${open.label} · Toolgate` : "Toolgate";
  }, [open]);
  return (
    <div className="frame">
      <a className="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <Sidebar view={view} />
      <main id="main" tabIndex={-1}>
        {open ? <open.show item={item} /> : <Unknown view={view} />}
      </main>
    </div>
  );
}

function Sidebar({ view }: { view: string }) {
  const pending = usePendingCount();
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone the views stand in a row that is longer than the screen.
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [view]);
  return (
    <aside className="sidebar">
      <a className="brand" href={hashOf("servers")}>
        <Mark />
        Toolgate
      </a>
      <nav ref={nav} aria-label="Views">
        {VIEWS.map(({ name, label }) => (
          <a key={name} href={hashOf(name)} aria-current={name === view ? "page" : undefined}>
            <Icon name={name} />
            {label}
            {name === "approvals" && pending > 0 && (
              <span className="count">{pending < 100 ? pending : "99+"}</span>
            )}
          </a>
        ))}
      </nav>
      <Foot />
    </aside>
  );
}

function Foot() {
  const live = useLive();
  const hasKey = useKey() !== null;
  return (
    <div className="foot">
      <span
        className={live ? "status good" : "status quiet"}
        title={live ? "Changes show at once" : "Asks every few seconds"}
      >
        <span className="dot" aria-hidden="true" />
        {live ? "Live" : "Connecting…"}
      </span>
      {hasKey && (
        <button type="button" className="plain" onClick={() => session.goWithout()}>
          Sign out
        </button>
      )}
    </div>
  );
}

function Unknown({ view }: { view: string }) {
  return (
    <Empty title={`There is no view “${view}”.`}>
      <a href={hashOf("servers")}>Go to the servers</a>
    </Empty>
  );
}

/** The address is the route, so the usual jump would leave the view. */
function skip(event: { preventDefault: () => void }): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
