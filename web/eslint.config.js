// Lints for the page: the rules of hooks, and mistakes that the type checker does not catch.

import parser from "@babel/eslint-parser";
import reactHooks from "eslint-plugin-react-hooks";

export default [
  { ignores: ["dist/", "build/", "node_modules/"] },
  {
    files: ["src/**/*.{ts,tsx}", "tests/**/*.ts"],
    plugins: { "react-hooks": reactHooks },
    languageOptions: {
      // typescript-eslint does not support TypeScript 7 yet.
      parser,
      parserOptions: {
        requireConfigFile: false,
        babelOptions: {
          parserOpts: { plugins: ["typescript", "jsx"] },
        },
      },
    },
    rules: {
      ...reactHooks.configs.recommended.rules,
      eqeqeq: "error",
      "no-constant-condition": "error",
      "no-fallthrough": "error",
      "no-self-compare": "error",
      "no-unreachable": "error",
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
