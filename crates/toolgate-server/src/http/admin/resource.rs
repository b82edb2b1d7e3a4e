//! The shared behaviour of configuration entries that the API lists and changes by name: keys, roles,
//! providers and virtual servers.
//!
//! Each kind implements [`AdminResource`] and has thin handlers, because the OpenAPI document needs one
//! documented function per route. What only one kind does, such as generating a key, stays in its module.

use serde_json::{Map, Value};

use super::Deleted;
use super::page::PageParams;
use crate::configuration::{ConfigSnapshot, ConfigTable, EntryChange};
use crate::http::App;
use crate::http::error::ApiError;

/// The API's view of a named entry in a table of the configuration.
pub(super) trait AdminResource: Sized {
    const TABLE: ConfigTable;
    /// Fields that the API returns but does not store. Writes ignore them, so that the output of a read is
    /// valid input.
    const READ_ONLY_FIELDS: &'static [&'static str];

    fn name(&self) -> &str;

    /// Returns the views of all entries, in any order.
    fn all(app: &App, snapshot: &ConfigSnapshot) -> Vec<Self>;

    /// The error if there is no entry with this name.
    fn not_found(name: &str) -> ApiError;
}

/// Returns a page of the entries, ordered by name, and the cursor of the next page.
pub(super) fn list<R: AdminResource>(
    app: &App,
    page: &PageParams,
) -> Result<(Vec<R>, Option<String>), ApiError> {
    let mut entries = R::all(app, &app.configuration().snapshot());
    entries.sort_by(|a, b| a.name().cmp(b.name()));
    page.paginate(entries.into_iter(), |entry| entry.name().to_owned())
}

/// Returns the entry with this name.
pub(super) fn get<R: AdminResource>(app: &App, name: &str) -> Result<R, ApiError> {
    let entries = R::all(app, &app.configuration().snapshot());
    let found = entries.into_iter().find(|entry| entry.name() == name);
    found.ok_or_else(|| R::not_found(name))
}

/// Creates an entry; fails if it exists.
pub(super) async fn create<R: AdminResource>(
    app: &App,
    name: &str,
    entry: Map<String, Value>,
) -> Result<R, ApiError> {
    change(app, name, EntryChange::Create(entry.into())).await
}

/// Creates or replaces an entry.
pub(super) async fn replace<R: AdminResource>(
    app: &App,
    name: &str,
    mut entry: Map<String, Value>,
) -> Result<R, ApiError> {
    drop_read_only_fields::<R>(&mut entry);
    entry.retain(|_, value| !value.is_null());
    change(app, name, EntryChange::Replace(entry.into())).await
}

/// Changes the fields of an entry that are in `fields`; `null` removes a field.
pub(super) async fn patch<R: AdminResource>(
    app: &App,
    name: &str,
    mut fields: Map<String, Value>,
) -> Result<R, ApiError> {
    drop_read_only_fields::<R>(&mut fields);
    change(app, name, EntryChange::Patch(fields)).await
}

/// Deletes an entry.
pub(super) async fn remove<R: AdminResource>(app: &App, name: String) -> Result<Deleted, ApiError> {
    let configuration = app.configuration();
    configuration
        .change_entry(R::TABLE, &name, EntryChange::Remove)
        .await?;
    Ok(Deleted { deleted: name })
}

async fn change<R: AdminResource>(
    app: &App,
    name: &str,
    change: EntryChange,
) -> Result<R, ApiError> {
    let configuration = app.configuration();
    configuration.change_entry(R::TABLE, name, change).await?;
    get(app, name)
}

fn drop_read_only_fields<R: AdminResource>(fields: &mut Map<String, Value>) {
    for read_only in R::READ_ONLY_FIELDS {
        fields.shift_remove(*read_only);
    }
}
