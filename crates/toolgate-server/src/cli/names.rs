//! Names that users misspell: what exists, and what they may have meant.

use anyhow::bail;
use toolgate_core::nearest::find_nearest;

use crate::remote::RemoteGateway;

/// A kind of names that the gateway knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownNames {
    Servers,
    Keys,
}

impl KnownNames {
    /// Returns the singular, and the command that lists all names.
    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Servers => ("server", "toolgate servers list"),
            Self::Keys => ("key", "toolgate keys list"),
        }
    }

    async fn list(self, remote: &RemoteGateway) -> anyhow::Result<Vec<String>> {
        Ok(match self {
            Self::Servers => {
                let servers = remote.list_servers().await?.into_iter();
                servers.map(|server| server.name).collect()
            }
            Self::Keys => {
                let keys = remote.list_items("api/keys", "keys", &[], usize::MAX);
                let keys = keys.await?.into_iter();
                keys.filter_map(|key| key["name"].as_str().map(str::to_owned))
                    .collect()
            }
        })
    }
}

/// Fails with a suggestion if the gateway does not know a name.
pub(super) async fn check_name(
    remote: &RemoteGateway,
    kind: KnownNames,
    name: &str,
) -> anyhow::Result<()> {
    let known = kind.list(remote).await?;
    if known.iter().any(|known| known == name) {
        return Ok(());
    }
    let (what, command) = kind.describe();
    bail!(
        "there is no {what} `{name}`; {}",
        suggest(name, known.iter().map(String::as_str), command)
    );
}

/// Suggests a similar name, or the command that lists all.
pub(super) fn suggest<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str>,
    command: &str,
) -> String {
    match find_nearest(name, known) {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => format!("list all with `{command}`"),
    }
}
