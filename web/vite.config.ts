import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `npm run dev` shows the page in front of a gateway that runs already.
const gateway = process.env["TOOLGATE_URL"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  // Relative, so that the page works below a path of a proxy too.
  base: "./",
  plugins: [react()],
  build: {
    target: "es2022",
    // Nothing inline: the page's policy forbids it.
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: true,
  },
  server: {
    proxy: Object.fromEntries(["/api", "/v1", "/mcp", "/health"].map((path) => [path, gateway])),
  },
});
