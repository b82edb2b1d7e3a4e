//! The file being built, and the findings about it.

use std::collections::BTreeSet;

use crate::config::document::Document;
use crate::config::{ConfigFinding, Severity};

/// The file being processed, and the findings about it.
pub(super) struct FileContext<'a> {
    pub(super) document: &'a Document,
    pub(super) removed: BTreeSet<String>,
    /// Variables that the file must not use and that were reported.
    pub(super) forbidden_variables: BTreeSet<String>,
    /// Environment variables that project files may use.
    pub(super) project_variables: &'a BTreeSet<String>,
    pub(super) findings: &'a mut Vec<ConfigFinding>,
}

impl FileContext<'_> {
    fn report(&mut self, severity: Severity, pointer: &str, message: impl Into<String>) {
        self.findings.push(ConfigFinding {
            severity,
            location: self.document.location(pointer),
            message: message.into(),
        });
    }

    /// Pointers of the remaining entries of a list, in order; removed entries are skipped.
    pub(super) fn pointers(&self, list: &'static str) -> impl Iterator<Item = String> + use<> {
        let removed = self.removed.clone();
        (0..)
            .map(move |index| format!("{list}/{index}"))
            .filter(move |pointer| !removed.contains(pointer))
    }

    /// Reports the first use of an environment variable that the file of a project may not use.
    pub(super) fn check_variable_use(&mut self, pointer: &str, name: &str) {
        if self.document.is_project()
            && !self.project_variables.contains(name)
            && self.forbidden_variables.insert(name.to_owned())
        {
            let message = format!(
                "the file of a project may not use the environment variable `{name}`; to allow it, add it to `project_env` in your own file, `~/.config/toolgate/toolgate.toml`"
            );
            self.error(pointer, message);
        }
    }

    /// Reports a use of the variable that holds the key of the store as anything else.
    pub(super) fn check_reserved_variable(&mut self, pointer: &str, name: &str) {
        if pointer != "/store/key" {
            let message = format!(
                "the environment variable `{name}` holds the key of the store and cannot be used here"
            );
            self.error(pointer, message);
        }
    }

    pub(super) fn error(&mut self, pointer: &str, message: impl Into<String>) {
        self.report(Severity::Error, pointer, message);
    }

    pub(super) fn warn(&mut self, pointer: &str, message: impl Into<String>) {
        self.report(Severity::Warning, pointer, message);
    }
}
