//! Lines of the intent log: what they say of a call, and their format.

use std::borrow::Cow;
use std::io;

use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::audit::{AuditKind, AuditRecord};

/// Upper bound of a line that ends a call.
pub(super) const MAX_ENDING_BYTES: u64 = 256;
/// Bytes of the tag that are kept.
const TAG_BYTES: usize = 8;

/// A line of the log: the opening or the end of a call.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Line<'a> {
    pub(super) n: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) open: Option<Opening<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<Ending<'a>>,
}

/// A record as far as it is known before the call is sent, without arguments, which may contain secrets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Opening<'a> {
    pub(super) id: Cow<'a, str>,
    request_id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caller: Option<Cow<'a, str>>,
    origin: Cow<'a, str>,
    name: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instead_of: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verdict: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<Cow<'a, str>>,
    /// Kind of the record.
    kind: Cow<'a, str>,
    bytes_in: i64,
    started_at: i64,
    cost_micro_usd: i64,
    charged: bool,
}

/// What the end of a call adds to its record, without result and error, which may contain secrets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ending<'a> {
    pub(super) id: Cow<'a, str>,
    outcome: Cow<'a, str>,
    bytes_out: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration_us: Option<i64>,
    cost_micro_usd: i64,
    charged: bool,
}

/// A call as far as the log has it.
#[derive(Debug, Default)]
pub(in crate::audit) struct LoggedCall {
    pub(in crate::audit) id: String,
    opening: Option<Opening<'static>>,
    ending: Option<Ending<'static>>,
}

impl<'a> Opening<'a> {
    pub(super) fn new(record: &'a AuditRecord) -> Self {
        let text = |text: &'a str| Cow::Borrowed(text);
        let optional = |text: &'a Option<String>| text.as_deref().map(Cow::Borrowed);
        Self {
            id: text(&record.id),
            request_id: text(&record.request_id),
            parent_id: optional(&record.parent_id),
            run_id: optional(&record.run_id),
            caller: optional(&record.caller),
            origin: text(&record.origin),
            name: text(&record.name),
            server: optional(&record.server),
            tool: optional(&record.tool),
            instead_of: optional(&record.instead_of),
            verdict: optional(&record.verdict),
            rule: optional(&record.rule),
            approval: optional(&record.approval),
            kind: text(record.kind.as_str()),
            bytes_in: record.bytes_in,
            started_at: record.started_at,
            cost_micro_usd: record.cost_micro_usd,
            charged: record.charged,
        }
    }

    fn into_record(self) -> AuditRecord {
        AuditRecord {
            id: self.id.into_owned(),
            request_id: self.request_id.into_owned(),
            parent_id: self.parent_id.map(Cow::into_owned),
            run_id: self.run_id.map(Cow::into_owned),
            caller: self.caller.map(Cow::into_owned),
            origin: self.origin.into_owned(),
            name: self.name.into_owned(),
            server: self.server.map(Cow::into_owned),
            tool: self.tool.map(Cow::into_owned),
            instead_of: self.instead_of.map(Cow::into_owned),
            verdict: self.verdict.map(Cow::into_owned),
            rule: self.rule.map(Cow::into_owned),
            approval: self.approval.map(Cow::into_owned),
            kind: AuditKind::from_name(&self.kind).unwrap_or_default(),
            outcome: "open".to_owned(),
            bytes_in: self.bytes_in,
            started_at: self.started_at,
            cost_micro_usd: self.cost_micro_usd,
            charged: self.charged,
            ..AuditRecord::default()
        }
    }
}

impl<'a> Ending<'a> {
    pub(super) fn new(record: &'a AuditRecord) -> Self {
        Self {
            id: Cow::Borrowed(&record.id),
            outcome: Cow::Borrowed(&record.outcome),
            bytes_out: record.bytes_out,
            duration_us: record.duration_us,
            cost_micro_usd: record.cost_micro_usd,
            charged: record.charged,
        }
    }
}

impl LoggedCall {
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            ..Self::default()
        }
    }

    /// Adds what a later line says.
    pub(super) fn add(
        &mut self,
        opening: Option<Opening<'static>>,
        ending: Option<Ending<'static>>,
    ) {
        self.opening = opening.or(self.opening.take());
        self.ending = ending.or(self.ending.take());
    }

    /// Returns the record of the call, given the one in the database; `None` if that is complete.
    pub(in crate::audit) fn into_record(self, stored: Option<AuditRecord>) -> Option<AuditRecord> {
        if stored
            .as_ref()
            .is_some_and(|stored| stored.outcome != "open")
        {
            return None;
        }
        let opened = self.opening.map(Opening::into_record);
        let mut record = stored.or(opened).unwrap_or_else(|| AuditRecord {
            id: self.id,
            ..AuditRecord::default()
        });
        if let Some(ending) = self.ending {
            record.outcome = ending.outcome.into_owned();
            record.bytes_out = ending.bytes_out;
            record.duration_us = ending.duration_us;
            record.cost_micro_usd = ending.cost_micro_usd;
            record.charged = ending.charged;
        }
        Some(record)
    }
}

impl Line<'_> {
    /// Formats the line in a buffer.
    pub(super) fn format(&self, key: &hmac::Key, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        serde_json::to_writer(&mut *buffer, self)?;
        buffer.extend(tag(key, buffer));
        buffer.push(b'\n');
        Ok(())
    }

    /// Parses a line; `None` if it was cut off, overwritten or is not ours.
    pub(super) fn parse(line: &[u8], key: &hmac::Key) -> Option<Line<'static>> {
        let (json, given) = line.split_at_checked(line.len().checked_sub(2 * TAG_BYTES)?)?;
        // Cheaper than the tag: unused space is one long line of zeros.
        if json.first() != Some(&b'{') || given != tag(key, json) {
            return None;
        }
        serde_json::from_slice(json).ok()
    }
}

/// Returns the tag of a line, in hexadecimal.
fn tag(key: &hmac::Key, json: &[u8]) -> [u8; 2 * TAG_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut tag = [0; 2 * TAG_BYTES];
    for (pair, byte) in tag.chunks_exact_mut(2).zip(hmac::sign(key, json).as_ref()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    tag
}
