//! Short ids. Ids begin with the time at which they were made, so their ends tell them apart.

use anyhow::bail;

use super::Layout;

/// Characters of an id that are shown on a terminal.
const SHORT_ID_CHARS: usize = 8;

/// Formats an id: its end on a terminal, otherwise all of it.
pub(crate) fn format_id(id: &str) -> String {
    match Layout::of_stdout() {
        Layout::Terminal { .. } => shorten(id).to_owned(),
        Layout::Plain => id.to_owned(),
    }
}

/// Finds the one id that is, ends with or starts with the text.
pub(crate) fn find_by_id<'a>(
    what: &str,
    text: &str,
    ids: impl Iterator<Item = &'a str> + Clone,
) -> anyhow::Result<&'a str> {
    if let Some(exact) = ids.clone().find(|id| *id == text) {
        return Ok(exact);
    }
    let is_match = |id: &&str| !text.is_empty() && (id.ends_with(text) || id.starts_with(text));
    let found: Vec<&str> = ids.filter(is_match).collect();
    match found.as_slice() {
        [id] => Ok(id),
        [] => bail!("there is no {what} `{text}`"),
        several => bail!(
            "`{text}` is ambiguous: {} have such an id; give more of it",
            toolgate_core::plural::count(several.len() as u64, what, &format!("{what}s"))
        ),
    }
}

fn shorten(id: &str) -> &str {
    let start = id.len().saturating_sub(SHORT_ID_CHARS);
    // Ids are ASCII; any other text is shown whole.
    id.get(start..).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_by_any_part_that_is_unique() {
        let ids = ["run_0199-aaaa1111", "run_0199-bbbb2222"];
        let find = |text: &str| find_by_id("run", text, ids.into_iter()).map_err(|e| e.to_string());
        assert_eq!(shorten(ids[0]), "aaaa1111");
        assert_eq!(find("aaaa1111").as_deref(), Ok(ids[0]));
        assert_eq!(find("2222").as_deref(), Ok(ids[1]));
        assert_eq!(find(ids[1]).as_deref(), Ok(ids[1]));
        assert!(find("run_0199").unwrap_err().contains("ambiguous: 2 runs"));
        assert!(find("x").unwrap_err().contains("no run `x`"));
        assert!(find("").is_err());
    }
}
