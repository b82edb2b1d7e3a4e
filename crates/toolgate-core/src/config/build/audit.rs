//! Builds and checks the settings of the audit log.

use std::time::Duration;

use url::Url;

use super::{ConfigBuilder, FileContext, set_if_some};
use crate::config::file::{AuditSinkTable, AuditTable};
use crate::config::{AuditSettings, AuditSinkSettings};
use crate::secret::Secret;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Shorter keys can be guessed.
const MIN_SEAL_KEY_LEN: usize = 16;

impl ConfigBuilder {
    pub(super) fn add_audit(&mut self, table: AuditTable, context: &mut FileContext<'_>) {
        let AuditTable {
            content,
            retention_days,
            max_size_mb,
            durability,
            on_failure,
            seal_key,
            sink,
        } = table;
        let sink = sink.and_then(|sink| build_sink(sink, context));
        let audit: &mut AuditSettings = &mut self.config.audit;
        set_if_some(&mut audit.content, content);
        // Zero stands for no limit.
        let retention = retention_days.map(|days| (days > 0).then(|| DAY * days));
        set_if_some(&mut audit.retention, retention);
        let max_size = max_size_mb.map(|size| (size > 0).then(|| u64::from(size) << 20));
        set_if_some(&mut audit.max_size, max_size);
        set_if_some(&mut audit.durability, durability);
        set_if_some(&mut audit.on_failure, on_failure);
        if let Some(Secret::Literal(key)) = &seal_key
            && key.len() < MIN_SEAL_KEY_LEN
        {
            let message = format!("`seal_key` must have at least {MIN_SEAL_KEY_LEN} characters");
            context.error("/audit/seal_key", message);
        }
        audit.seal_key = seal_key.or(audit.seal_key.take());
        audit.sink = sink.or(audit.sink.take());
    }
}

fn build_sink(table: AuditSinkTable, context: &mut FileContext<'_>) -> Option<AuditSinkSettings> {
    let AuditSinkTable { file, url, headers } = table;
    match (file, url) {
        (Some(file), None) => Some(AuditSinkSettings::File(file)),
        (None, Some(url)) => {
            let parsed = Url::parse(&url).ok();
            let parsed = parsed.filter(|url| matches!(url.scheme(), "http" | "https"));
            if parsed.is_none() {
                context.error("/audit/sink/url", "`url` must be an http or https URL");
            }
            Some(AuditSinkSettings::Http {
                url: parsed?,
                headers,
            })
        }
        (None, None) | (Some(_), Some(_)) => {
            context.error("/audit/sink", "set either `file` or `url`");
            None
        }
    }
}
