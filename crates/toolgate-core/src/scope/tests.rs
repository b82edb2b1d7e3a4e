//! Compares scopes with an independent implementation of their specification.
//!
//! A [`Case`] is one configuration, caller and request. The gateway and the [`oracle`] evaluate it
//! over the same [`Fixture`] and must agree. `table` covers every combination of the filter levels,
//! `properties` random ones, and `bypass` what an attacker would try.

mod bypass;
mod case;
mod fixture;
mod oracle;
mod properties;
mod removal;
mod table;
mod unusual_names;

use case::Case;
use fixture::Fixture;
use oracle::{OracleItem, OracleItemKind};

use super::{AccessRules, FilterError, Scope};
use crate::name::ServerName;
use crate::policy::{ServerItem, Verdict};

/// Verdict on each tool of a fixture, in order; `None` if the tool is not in scope.
type Verdicts = Vec<Option<Verdict>>;

/// Verdicts of the gateway.
fn verdicts(fixture: &Fixture, case: &Case) -> Result<Verdicts, FilterError> {
    verdicts_with(fixture, case, &AccessRules::new(&case.config(fixture)))
}

fn verdicts_with(
    fixture: &Fixture,
    case: &Case,
    access: &AccessRules,
) -> Result<Verdicts, FilterError> {
    let principal = case.principal(access);
    let view = access.view(&principal, &case.filters);
    let scope = Scope::build(view, fixture.catalog.clone())?;
    let mut verdicts = vec![None; fixture.tools.len()];
    for (entry, judgement) in scope.tools() {
        verdicts[entry.index] = Some(judgement.decision().verdict);
    }
    Ok(verdicts)
}

/// Resources and prompts that each server of a fixture has.
fn items(fixture: &Fixture) -> Vec<OracleItem> {
    let keys = [
        (OracleItemKind::Resource, "doc://a"),
        (OracleItemKind::Resource, "x://b"),
        (OracleItemKind::Prompt, "greet"),
        (OracleItemKind::Prompt, "push"),
    ];
    let item = |server: &String| {
        let server = server.clone();
        keys.map(move |(kind, key)| OracleItem {
            server: server.clone(),
            kind,
            key: key.to_owned(),
        })
    };
    fixture.servers().iter().flat_map(item).collect()
}

/// Verdicts of the gateway on the resources and prompts of a fixture.
fn item_verdicts(fixture: &Fixture, case: &Case) -> Verdicts {
    let access = AccessRules::new(&case.config(fixture));
    let principal = case.principal(&access);
    let view = access.view(&principal, &case.filters);
    let judge = |item: &OracleItem| {
        let server = &ServerName::parse(&item.server).unwrap();
        let key = item.key.as_str();
        let judged = view.judge_item(match item.kind {
            OracleItemKind::Resource => ServerItem::Resource { server, uri: key },
            OracleItemKind::Prompt => ServerItem::Prompt { server, name: key },
        });
        judged.map(|decision| decision.verdict)
    };
    items(fixture).iter().map(judge).collect()
}

/// Ids of the tools that the gateway shows, or the text that it rejects as ambiguous.
fn visible(fixture: &Fixture, case: &Case) -> Result<Vec<String>, String> {
    let verdicts = verdicts(fixture, case).map_err(|error| error.text)?;
    let visible_tools = fixture.tools.iter().zip(verdicts);
    let visible_tools = visible_tools.filter(|(_, verdict)| verdict.is_some());
    Ok(visible_tools.map(|(tool, _)| tool.id()).collect())
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}
