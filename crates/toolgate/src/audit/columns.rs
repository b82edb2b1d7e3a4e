//! Records as rows of the table `audit`: the one list of columns from which rows are written, read and
//! hashed.

use std::borrow::Cow;

use ring::digest::{SHA256, digest};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::chain::EntryKind;
use super::{AuditKind, AuditRecord};
use crate::store::Statement;

/// SHA-256.
pub(crate) type Digest = [u8; 32];

/// A column that holds a part of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    name: &'static str,
    is_integer: bool,
}

/// Another table whose rows have entries in the chain. Its first column is the id; the number of the
/// entry is in a column `seq`, which is not one of `columns`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReferencedTable {
    pub(crate) name: &'static str,
    /// Kind of its entries.
    pub(crate) kind: EntryKind,
    pub(crate) columns: &'static [Column],
}

/// Columns that hold the content of a record, in the order in which they are hashed.
pub(super) const COLUMNS: [Column; 29] = [
    Column::text("id"),
    Column::text("request_id"),
    Column::text("parent_id"),
    Column::text("run_id"),
    Column::text("caller"),
    Column::text("origin"),
    Column::text("name"),
    Column::text("server"),
    Column::text("tool"),
    Column::text("instead_of"),
    Column::text("arguments"),
    Column::text("verdict"),
    Column::text("rule"),
    Column::text("approval"),
    Column::text("warnings"),
    Column::text("outcome"),
    Column::text("error"),
    Column::text("result"),
    Column::integer("bytes_in"),
    Column::integer("bytes_out"),
    Column::integer("started_at"),
    Column::integer("duration_us"),
    Column::integer("cost_micro_usd"),
    Column::integer("charged"),
    Column::integer("cached"),
    Column::text("script"),
    Column::text("kind"),
    Column::integer("occurrences"),
    Column::text("detail"),
];

/// The value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnValue<'a> {
    Text(Option<Cow<'a, str>>),
    Integer(Option<i64>),
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordRow<'a>(pub(super) [ColumnValue<'a>; COLUMNS.len()]);

impl Column {
    pub(crate) const fn text(name: &'static str) -> Self {
        Self {
            name,
            is_integer: false,
        }
    }

    pub(crate) const fn integer(name: &'static str) -> Self {
        Self {
            name,
            is_integer: true,
        }
    }

    /// Returns the names of columns.
    pub(crate) fn names(columns: &[Self]) -> Vec<&'static str> {
        columns.iter().map(|column| column.name).collect()
    }

    /// Reads the value from a row, in which the column is at a position.
    fn read(&self, row: &AnyRow, at: usize) -> Result<ColumnValue<'static>, sqlx::Error> {
        if self.is_integer {
            return Ok(ColumnValue::Integer(row.try_get(at)?));
        }
        let text: Option<String> = row.try_get(at)?;
        Ok(ColumnValue::Text(text.map(Cow::Owned)))
    }

    /// Reads the value from what [`values_to_json`] returned.
    fn read_json<'a>(&self, json: &'a Map<String, Value>) -> ColumnValue<'a> {
        let given = json.get(self.name);
        if self.is_integer {
            ColumnValue::Integer(given.and_then(Value::as_i64))
        } else {
            ColumnValue::Text(given.and_then(Value::as_str).map(Cow::Borrowed))
        }
    }
}

impl<'a> RecordRow<'a> {
    pub(super) fn new(record: &'a AuditRecord) -> Self {
        let text = |text: &'a str| ColumnValue::Text(Some(Cow::Borrowed(text)));
        let optional =
            |text: &'a Option<String>| ColumnValue::Text(text.as_deref().map(Cow::Borrowed));
        let owned = |text: Option<String>| ColumnValue::Text(text.map(Cow::Owned));
        let raw = |raw: &'a Option<Box<RawValue>>| {
            ColumnValue::Text(raw.as_ref().map(|raw| Cow::Borrowed(raw.get())))
        };
        let integer = |value: i64| ColumnValue::Integer(Some(value));
        let warnings = (!record.warnings.is_empty()).then(|| record.warnings.join("\n"));
        Self([
            text(&record.id),
            text(&record.request_id),
            optional(&record.parent_id),
            optional(&record.run_id),
            optional(&record.caller),
            text(&record.origin),
            text(&record.name),
            optional(&record.server),
            optional(&record.tool),
            optional(&record.instead_of),
            raw(&record.arguments),
            optional(&record.verdict),
            optional(&record.rule),
            optional(&record.approval),
            owned(warnings),
            text(&record.outcome),
            optional(&record.error),
            raw(&record.result),
            integer(record.bytes_in),
            integer(record.bytes_out),
            integer(record.started_at),
            ColumnValue::Integer(record.duration_us),
            integer(record.cost_micro_usd),
            integer(record.charged.into()),
            integer(record.cached.into()),
            owned(record.script.as_ref().map(Value::to_string)),
            text(record.kind.as_str()),
            integer(record.occurrences),
            owned(record.detail.as_ref().map(Value::to_string)),
        ])
    }

    /// Reads the columns, which come first in a row.
    pub(super) fn read(row: &AnyRow) -> Result<RecordRow<'static>, sqlx::Error> {
        let mut values = COLUMNS.map(|_| ColumnValue::Integer(None));
        for (at, value) in values.iter_mut().enumerate() {
            *value = COLUMNS[at].read(row, at)?;
        }
        Ok(RecordRow(values))
    }

    /// Binds the values to a statement.
    pub(super) fn bind<'q>(&'q self, statement: Statement<'q>) -> Statement<'q> {
        bind_values(statement, &self.0)
    }

    pub(super) fn digest(&self) -> Digest {
        digest_values(&self.0)
    }

    /// Returns the approximate size of the row.
    pub(super) fn size(&self) -> usize {
        let sizes = self.0.iter().map(|value| match value {
            ColumnValue::Text(text) => text.as_ref().map_or(1, |text| text.len() + 2),
            ColumnValue::Integer(_) => 6,
        });
        sizes.sum()
    }

    /// Returns the row as JSON with the exact stored values, from which its digest can be computed.
    pub(super) fn to_json(&self) -> Value {
        values_to_json(&COLUMNS, &self.0)
    }

    /// Reads what [`Self::to_json`] returned.
    pub(super) fn from_json(json: &Map<String, Value>) -> RecordRow<'_> {
        RecordRow(COLUMNS.map(|column| column.read_json(json)))
    }

    /// Converts the row to a record. A damaged part is left out, since it must not hide the record,
    /// nor the other records of a page.
    pub(super) fn into_record(self) -> AuditRecord {
        let Self(values) = self;
        let id = match &values[0] {
            ColumnValue::Text(Some(id)) => id.to_string(),
            _ => String::new(),
        };
        let mut columns = Columns {
            values: values.into_iter().enumerate(),
            id,
        };
        AuditRecord {
            id: columns.text(),
            request_id: columns.text(),
            parent_id: columns.optional(),
            run_id: columns.optional(),
            caller: columns.optional(),
            origin: columns.text(),
            name: columns.text(),
            server: columns.optional(),
            tool: columns.optional(),
            instead_of: columns.optional(),
            arguments: columns.raw(),
            verdict: columns.optional(),
            rule: columns.optional(),
            approval: columns.optional(),
            warnings: columns.text().lines().map(ToOwned::to_owned).collect(),
            outcome: columns.text(),
            error: columns.optional(),
            result: columns.raw(),
            bytes_in: columns.integer().unwrap_or(0),
            bytes_out: columns.integer().unwrap_or(0),
            started_at: columns.integer().unwrap_or(0),
            duration_us: columns.integer(),
            cost_micro_usd: columns.integer().unwrap_or(0),
            charged: columns.integer() == Some(1),
            cached: columns.integer() == Some(1),
            script: columns.json(),
            kind: AuditKind::from_name(&columns.text()).unwrap_or_default(),
            occurrences: columns.integer().unwrap_or(1),
            detail: columns.json(),
        }
    }
}

/// Takes the values of a row in the order of [`COLUMNS`].
struct Columns<I> {
    values: I,
    /// Id of the record, for logs.
    id: String,
}

impl<'a, I: Iterator<Item = (usize, ColumnValue<'a>)>> Columns<I> {
    fn optional(&mut self) -> Option<String> {
        match self.values.next() {
            Some((_, ColumnValue::Text(text))) => text.map(Cow::into_owned),
            _ => None,
        }
    }

    /// Returns a text that is never absent in rows written by this program.
    fn text(&mut self) -> String {
        self.optional().unwrap_or_default()
    }

    fn integer(&mut self) -> Option<i64> {
        match self.values.next() {
            Some((_, ColumnValue::Integer(value))) => value,
            _ => None,
        }
    }

    fn raw(&mut self) -> Option<Box<RawValue>> {
        let text = self.optional()?;
        RawValue::from_string(text)
            .inspect_err(|error| self.log(error))
            .ok()
    }

    fn json(&mut self) -> Option<Value> {
        let text = self.optional()?;
        serde_json::from_str(&text)
            .inspect_err(|error| self.log(error))
            .ok()
    }

    fn log(&self, error: &serde_json::Error) {
        tracing::warn!(record = self.id, %error, "leaving out unreadable part of an audit record");
    }
}

/// Returns the digest of a row, unambiguously: each value with its type and length.
pub(crate) fn digest_values(values: &[ColumnValue<'_>]) -> Digest {
    // One call for all values is several times cheaper than one for each.
    let mut bytes = Vec::with_capacity(1024);
    for value in values {
        match value {
            ColumnValue::Text(None) | ColumnValue::Integer(None) => bytes.push(0),
            ColumnValue::Text(Some(text)) => {
                bytes.push(1);
                bytes.extend(text.len().to_be_bytes());
                bytes.extend(text.as_bytes());
            }
            ColumnValue::Integer(Some(value)) => {
                bytes.push(2);
                bytes.extend(value.to_be_bytes());
            }
        }
    }
    to_digest(digest(&SHA256, &bytes).as_ref())
}

/// Binds values to a statement.
pub(crate) fn bind_values<'q>(
    statement: Statement<'q>,
    values: &'q [ColumnValue<'_>],
) -> Statement<'q> {
    values
        .iter()
        .fold(statement, |statement, value| match value {
            ColumnValue::Text(text) => statement.bind(text.as_deref()),
            ColumnValue::Integer(value) => statement.bind(*value),
        })
}

impl ReferencedTable {
    /// Reads a row that was selected with all columns.
    fn values(&self, row: &AnyRow) -> Result<Vec<ColumnValue<'static>>, sqlx::Error> {
        let columns = self.columns.iter().enumerate();
        columns.map(|(at, column)| column.read(row, at)).collect()
    }

    pub(super) fn digest(&self, row: &AnyRow) -> Result<Digest, sqlx::Error> {
        Ok(digest_values(&self.values(row)?))
    }

    pub(super) fn row_to_json(&self, row: &AnyRow) -> Result<Value, sqlx::Error> {
        Ok(values_to_json(self.columns, &self.values(row)?))
    }

    /// Returns the digest of what [`Self::row_to_json`] returned.
    pub(super) fn digest_json(&self, json: &Map<String, Value>) -> Digest {
        let values = self.columns.iter().map(|column| column.read_json(json));
        digest_values(&values.collect::<Vec<_>>())
    }
}

fn values_to_json(columns: &[Column], values: &[ColumnValue<'_>]) -> Value {
    let pairs = columns.iter().zip(values).filter_map(|(column, value)| {
        let value = match value {
            ColumnValue::Text(text) => Value::from(text.as_deref()?),
            ColumnValue::Integer(value) => Value::from((*value)?),
        };
        Some((column.name.to_owned(), value))
    });
    Value::Object(pairs.collect())
}

/// Converts the bytes of a SHA-256 digest or tag; other lengths become zeros, which match nothing.
pub(super) fn to_digest(bytes: &[u8]) -> Digest {
    bytes.try_into().unwrap_or([0; 32])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> AuditRecord {
        AuditRecord {
            id: "i".to_owned(),
            arguments: Some(RawValue::from_string(r#"{"a": 1}"#.to_owned()).unwrap()),
            warnings: vec!["one".to_owned(), "two".to_owned()],
            charged: true,
            detail: Some(json!({"before": null})),
            kind: AuditKind::Admin,
            ..AuditRecord::default()
        }
    }

    #[test]
    fn rows_round_trip_through_json_and_records() {
        let record = record();
        let row = RecordRow::new(&record);
        let json = row.to_json();
        let Value::Object(map) = &json else {
            panic!("{json}")
        };
        assert_eq!(RecordRow::from_json(map), row);
        let again = row.clone().into_record();
        assert_eq!(RecordRow::new(&again), row);
    }

    #[test]
    fn digest_depends_on_every_column() {
        let record = record();
        let row = RecordRow::new(&record);
        for (at, column) in COLUMNS.iter().enumerate() {
            let mut changed = row.clone();
            changed.0[at] = match &row.0[at] {
                ColumnValue::Text(text) => {
                    let longer = format!("{}x", text.as_deref().unwrap_or_default());
                    ColumnValue::Text(Some(Cow::Owned(longer)))
                }
                ColumnValue::Integer(value) => ColumnValue::Integer(Some(value.unwrap_or(0) + 1)),
            };
            assert_ne!(changed.digest(), row.digest(), "{}", column.name);
        }
    }
}
