//! Minimal command-line flags: `--name value` and `--name`.

use std::collections::HashMap;

use anyhow::bail;

#[derive(Debug, Default)]
pub(crate) struct Flags(HashMap<String, String>);

impl Flags {
    /// Parses flags. Empty values count as absent, since make passes unset variables that way.
    pub(crate) fn parse(args: &[String], known: &[&str]) -> anyhow::Result<Self> {
        let mut flags = HashMap::new();
        let mut args = args.iter().peekable();
        while let Some(arg) = args.next() {
            let Some(name) = arg.strip_prefix("--").filter(|name| known.contains(name)) else {
                bail!(
                    "unknown argument `{arg}`; expected --{}",
                    known.join(", --")
                );
            };
            let value = args.next_if(|next| !next.starts_with("--"));
            flags.insert(
                name.to_owned(),
                value.cloned().unwrap_or_else(|| "1".to_owned()),
            );
        }
        flags.retain(|_, value| !value.is_empty());
        Ok(Self(flags))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0")
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> anyhow::Result<T> {
        match self.get(name).map(str::parse) {
            None => Ok(default),
            Some(Ok(number)) => Ok(number),
            Some(Err(_)) => bail!("`--{name}` is not a number"),
        }
    }
}
