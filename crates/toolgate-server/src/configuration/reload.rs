//! Reloads changed configuration files. Those of a project must be trusted again; until then, their last
//! trusted version stays in force.

use std::path::Path;

use serde_json::{Map, Value};
use toolgate::audit::AdminAction;
use toolgate_core::config::Document;

use super::file_watcher::{FileWatcher, WatchedFiles, texts};
use super::manager::RunningManager;
use super::masking::mask_entry;
use crate::files::{self, ProjectState};

impl RunningManager {
    /// Reloads the files if they have changed.
    pub(super) async fn reload_changed_files(&mut self, watcher: &mut FileWatcher) {
        let files = &self.manager.files;
        let stamps = files::file_stamps(&files.selection, &files.environment);
        if watcher.is_unchanged(stamps) {
            return;
        }
        let loaded = match files::load(&files.selection, &files.environment) {
            Ok(loaded) => loaded,
            // An editor may be replacing the file right now; the next check finds it.
            Err(error) => {
                tracing::debug!(
                    error = format!("{error:#}"),
                    "failed to read configuration files"
                );
                watcher.invalidate();
                return;
            }
        };
        let untrusted = match &loaded.project {
            ProjectState::Untrusted(project) => Some(untrusted_problem(&project.path)),
            ProjectState::Absent | ProjectState::Trusted(_) => None,
        };
        let watched = WatchedFiles::new(&loaded.all_documents(), untrusted.is_none());
        if !watcher.is_settled_change(watched) {
            return;
        }
        let before = self.manager.layers.clone();
        let last_trusted = before.documents.iter().find(|file| file.is_project());
        let documents = loaded.trusted_documents_or(last_trusted);
        self.manager.pending_change = untrusted;
        if texts(&documents) == texts(&before.documents) {
            self.publish(self.build_snapshot(&self.snapshot.load().config));
            return;
        }
        self.manager.layers.documents = documents;
        let outdated = self.manager.layers.drop_outdated();
        let applied = match self.check_lost_restrictions() {
            Ok(()) => self.apply_layers().await,
            Err(lost) => Err(lost),
        };
        match applied {
            Ok(findings) => {
                findings
                    .iter()
                    .for_each(|finding| tracing::warn!(%finding, "configuration warning"));
                tracing::info!("configuration reloaded");
                self.manager.discard_outdated(&outdated).await;
                self.record_reload(&before.documents).await;
            }
            Err(error) => {
                tracing::error!(%error, "configuration change rejected; keeping the previous configuration");
                self.manager.layers = before;
                self.manager.pending_change = Some(format!(
                    "the configuration files have errors, and their previous version stays in force: {error}"
                ));
                self.publish(self.build_snapshot(&self.snapshot.load().config));
            }
        }
    }

    /// Records what has changed in the files. They are in force already, so a failure is only logged.
    async fn record_reload(&self, before: &[Document]) {
        let after = &self.manager.layers.documents;
        let names: Vec<&str> = after
            .iter()
            .map(|document| document.name.as_str())
            .collect();
        let action = AdminAction::new("configuration", "configuration.reload", &names.join(", "))
            .with_change(
                Some(changed_sections(before, after)),
                Some(changed_sections(after, before)),
            );
        if let Err(error) = self.gateway.audit().record_action(action).await {
            tracing::error!(%error, "failed to record the change of the configuration files");
        }
    }
}

fn untrusted_problem(path: &Path) -> String {
    format!(
        "`{}` is not trusted as it is now; what was in force before stays in force until you run `toolgate trust` in its folder",
        path.display()
    )
}

/// Returns the sections of files that differ in other versions of them, by file and with secrets masked.
fn changed_sections(documents: &[Document], others: &[Document]) -> Value {
    let changed = documents.iter().filter_map(|document| {
        let other = others.iter().find(|other| other.name == document.name);
        let sections = document.value.as_object()?.iter();
        let changed = sections.filter(|(name, value)| {
            other.and_then(|other| other.value.get(name.as_str())) != Some(*value)
        });
        let changed: Map<String, Value> = changed
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Some((document.name.clone(), mask_entry(&Value::Object(changed))))
    });
    Value::Object(changed.collect())
}
