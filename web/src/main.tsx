import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { takeKeyFromAddress } from "./api/session.ts";
import { App } from "./app.tsx";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/parts.css";
import "./styles/forms.css";
import "./styles/table.css";
import "./styles/sheet.css";
import "./styles/code.css";
import "./styles/timeline.css";

takeKeyFromAddress();
// A login link that is opened in a tab with the page changes nothing but the part behind the `#`.
addEventListener("hashchange", takeKeyFromAddress);
const place = document.getElementById("page");
if (place) {
  createRoot(place).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
