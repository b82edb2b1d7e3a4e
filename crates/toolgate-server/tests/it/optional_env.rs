//! Optional parts of the test environment: the browser, the small model and Claude Code. Without one, its
//! tests are skipped on a laptop and fail in CI.

use std::io::Write as _;
use std::path::Path;

/// A part of the test environment that may be missing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OptionalComponent {
    Browser,
    ClaudeCode,
    Model,
}

impl OptionalComponent {
    /// Checks whether the component is installed. If it is not, reports that `test` is skipped, or panics
    /// if the environment variable `CI` is `true`.
    pub(crate) fn check_available(self, test: &str) -> bool {
        let (what, folder, stamp) = match self {
            Self::Browser => ("browser", "tests/env/browser", "node_modules/.browser.json"),
            Self::ClaudeCode => ("Claude Code", "tests/env/claude", "node_modules/.installed"),
            Self::Model => ("model", "tests/env/llm", ".venv/.installed"),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if root.join(folder).join(stamp).exists() {
            return true;
        }
        let reason = format!("{test}: no {what} in {folder}; run `make test-env`");
        let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!is_ci, "{reason}");
        // Not `eprintln`, whose output is captured for passing tests.
        let mut terminal = std::io::stderr();
        writeln!(terminal, "SKIPPED {reason}").unwrap();
        false
    }
}
