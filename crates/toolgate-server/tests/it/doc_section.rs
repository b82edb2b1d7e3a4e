//! Sections of the documentation that tests generate from what they see.

use std::fs;
use std::path::Path;

use parking_lot::Mutex;

/// Environment variable that makes tests write their sections instead of checking them.
const UPDATE_VARIABLE: &str = "TOOLGATE_UPDATE_DOCS";

/// Keeps tests that update the same file apart.
static FILE: Mutex<()> = Mutex::new(());

/// Checks that the section `name` of `docs/mcp.md` is this text, or writes it if `TOOLGATE_UPDATE_DOCS` is set.
pub(crate) fn check_section(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mcp.md");
    let _guard = FILE.lock();
    let document = fs::read_to_string(&file).unwrap();
    let (begin, end) = (
        format!("<!-- begin {name} -->\n"),
        format!("<!-- end {name} -->"),
    );
    let (before, rest) = document.split_once(&begin).unwrap();
    let (section, after) = rest.split_once(&end).unwrap();
    if std::env::var_os(UPDATE_VARIABLE).is_some() {
        fs::write(&file, format!("{before}{begin}{text}{end}{after}")).unwrap();
        return;
    }
    assert!(
        section == text,
        "the section `{name}` of docs/mcp.md is stale; run this test with {UPDATE_VARIABLE}=1. It is:\n{text}"
    );
}

/// Formats a Markdown table.
pub(crate) fn format_table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows = rows.iter().map(|cells| line(cells));
    line(head) + &rule + &rows.collect::<String>()
}
