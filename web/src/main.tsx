import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { consumeLoginLink } from "./api/session.ts";
import { App } from "./app.tsx";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/components.css";
import "./styles/forms.css";
import "./styles/table.css";
import "./styles/sheet.css";
import "./styles/code.css";
import "./styles/timeline.css";

consumeLoginLink();
// Opening a login link in a tab that already shows the page only changes the hash.
addEventListener("hashchange", consumeLoginLink);
const root = document.getElementById("page");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
