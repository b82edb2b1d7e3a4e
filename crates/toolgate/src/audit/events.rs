//! Records of events that are not attempts: changes, failed authentication, and requests that were refused
//! or need a record for another reason.

use super::chain::EntryKind;
use super::writer::{self, RecordUpdate};
use super::{AdminAction, AuditEntry, AuditKind, AuditLog, AuditRecord};
use crate::call::{CallError, RequestContext};
use crate::caller::Caller;
use crate::store::{ConfigChange, StoreError, StoreTransaction};

impl AuditLog {
    /// Makes changes to the stored configuration together with their record: either both are stored, so
    /// that they survive a power failure, or neither.
    #[doc(hidden)] // for the API of the binary
    pub async fn save(
        &self,
        changes: &[ConfigChange],
        action: AdminAction,
    ) -> Result<(), StoreError> {
        let store = &self.0.store.store;
        let mut transaction = store.begin_durable().await?;
        store.apply_changes(&mut transaction, changes).await?;
        let entry = self.prepare(action.into_record());
        self.commit(transaction, vec![entry]).await
    }

    /// Records something that the administrator did.
    #[doc(hidden)] // for the API of the binary
    pub async fn record_action(&self, action: AdminAction) -> Result<(), StoreError> {
        self.save(&[], action).await
    }

    /// Records failed authentication, which may come fast and is counted then.
    #[doc(hidden)] // for the API of the binary
    pub fn record_auth(&self, peer: &str, name: &str, outcome: &str, occurrences: i64) {
        let record = AuditRecord {
            caller: Some(peer.to_owned()),
            origin: "http".to_owned(),
            occurrences,
            ..AuditRecord::event(AuditKind::Auth, name, outcome)
        };
        self.refuse(RecordUpdate::event(EntryKind::Event, record));
    }

    /// Records calls that were refused together, before any of them was looked at.
    pub(crate) fn record_refused_calls(&self, caller: &Caller, calls: u32, error: &CallError) {
        let record = AuditRecord {
            caller: caller.key().map(|key| key.to_string()),
            origin: caller.origin.as_str().to_owned(),
            error: Some(error.to_string()),
            occurrences: calls.into(),
            ..AuditRecord::event(AuditKind::Tool, "(several calls)", error.code())
        };
        self.refuse(RecordUpdate::event(EntryKind::Refused, record));
    }

    /// Records a request that was refused before its body was read, so that nothing is known of it.
    pub(crate) fn record_unread_request(
        &self,
        caller: &Caller,
        request_id: &str,
        error: &CallError,
    ) {
        let record = AuditRecord {
            request_id: request_id.to_owned(),
            caller: caller.key().map(|key| key.to_string()),
            origin: caller.origin.as_str().to_owned(),
            error: Some(error.to_string()),
            ..AuditRecord::event(AuditKind::Tool, "(not read)", error.code())
        };
        self.refuse(RecordUpdate::event(EntryKind::Refused, record));
    }

    /// Records tools in a request to a model that the provider runs, or that it was refused for them.
    pub(crate) fn record_provider_tools(
        &self,
        caller: &Caller,
        request: &RequestContext,
        tools: &[String],
        is_permitted: bool,
    ) {
        let (kind, outcome) = if is_permitted {
            (EntryKind::Event, "ok")
        } else {
            (EntryKind::Refused, "denied")
        };
        let name = format!("provider: {}", tools.join(", "));
        let event = AuditRecord::event(AuditKind::Tool, &name, outcome);
        let record = AuditRecord {
            request_id: request.id.clone().unwrap_or_else(|| event.id.clone()),
            run_id: request.run.clone(),
            caller: caller.key().map(|key| key.to_string()),
            origin: caller.origin.as_str().to_owned(),
            rule: Some("provider_tools".to_owned()),
            ..event
        };
        let update = RecordUpdate::event(kind, record);
        if is_permitted {
            self.publish(&update.record, None);
            self.enqueue(update);
        } else {
            self.refuse(update);
        }
    }

    /// Returns the entry of an event, ready to be stored.
    pub(crate) fn prepare(&self, mut record: AuditRecord) -> AuditEntry {
        writer::prepare_record(&mut record, None, self.0.settings.load().content);
        AuditEntry {
            kind: EntryKind::Event,
            record: Box::new(record),
        }
    }

    /// Commits a transaction together with entries about it.
    pub(crate) async fn commit(
        &self,
        mut transaction: StoreTransaction,
        entries: Vec<AuditEntry>,
    ) -> Result<(), StoreError> {
        let head = self.0.store.append(&mut transaction, &entries).await?;
        transaction.commit().await?;
        if let Some(sink) = &self.0.sink {
            sink.forward(&entries, head);
        }
        entries
            .iter()
            .for_each(|entry| self.publish(&entry.record, None));
        Ok(())
    }
}
