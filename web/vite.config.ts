import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `npm run dev` serves the page and forwards API requests to a running gateway.
const gateway = process.env["TOOLGATE_URL"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  // Relative, so that a proxy can serve the page below a path.
  base: "./",
  plugins: [react()],
  build: {
    target: "es2022",
    // The content security policy forbids inline assets.
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: true,
  },
  server: {
    // The gateway accepts only its own origin, so requests are sent as if its own page had made them.
    proxy: Object.fromEntries(
      ["/api", "/v1", "/mcp", "/health", "/ready"].map((path) => [
        path,
        { target: gateway, changeOrigin: true, headers: { origin: gateway } },
      ]),
    ),
  },
});
