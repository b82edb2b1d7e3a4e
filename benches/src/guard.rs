//! Fails if the hot paths take many more instructions than they were recorded with.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::callgrind::{self, Counted};
use crate::case::{self, At};
use crate::flags::Flags;
use crate::gateway;
use crate::{say, tell};

/// How much more is let pass: compilers and libraries change too.
const MARGIN: f64 = 0.25;

const CASES: [&str; 8] = [
    "chat",
    "chat, streamed",
    "chat, 150 tools spliced",
    "tools/call, 2025-06-18, http",
    "tools/call, 2026-07-28, http",
    "tools/call, 2025-06-18, stdio",
    "tool/execute",
    "tools/list of 150, 2025-06-18, http",
];

/// Counts by case, by how the gateway was built: only like is compared with like.
type Recorded = BTreeMap<String, BTreeMap<String, u64>>;

pub(crate) async fn main(flags: &Flags) -> anyhow::Result<()> {
    if flags.has("if-possible") && !Counted::is_possible().await {
        say("NOTE: instructions are not counted, since valgrind is not installed");
        return Ok(());
    }
    let binary = gateway::binary(flags.get("binary"))?;
    let build = flags.get("build").unwrap_or("release");
    let times = flags.number("times", callgrind::TIMES)?;
    let file = PathBuf::from(flags.get("file").unwrap_or("benches/instructions.json"));
    let folder = tempfile::tempdir()?;
    let mut counted = Counted::start(&binary, At::Injecting, folder.path(), times).await?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for case in case::all() {
        if CASES.contains(&case.name.as_str()) {
            tell(&case.name);
            counts.insert(case.name.clone(), counted.count(&case).await?.a_request);
        }
    }
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut all: Recorded = serde_json::from_str(&text)?;
    if flags.has("record") {
        all.insert(build.to_owned(), counts.clone());
        fs::write(&file, serde_json::to_string_pretty(&all)? + "\n")?;
        say(&format!("recorded in {}", file.display()));
    }
    let recorded = all.remove(build).unwrap_or_default();
    let mut over = Vec::new();
    say(&format!(
        "{:40} {:>12} {:>12} {:>8}",
        "case", "instructions", "recorded", "change"
    ));
    for (name, count) in &counts {
        let Some(before) = recorded.get(name) else {
            bail!(
                "`{name}` is not recorded in {}; say --record",
                file.display()
            );
        };
        #[allow(clippy::cast_precision_loss, reason = "they are no more than millions")]
        let change = *count as f64 / *before as f64 - 1.0;
        say(&format!(
            "{name:40} {count:>12} {before:>12} {:>+7.1}%",
            change * 100.0
        ));
        if change > MARGIN {
            over.push(name.as_str());
        }
    }
    match over.is_empty() {
        true => Ok(()),
        false => bail!(
            "more than {:.0} % over what was recorded for the {build} build: {}; if that is meant, or the compiler is another, say `make {} RECORD=1`",
            MARGIN * 100.0,
            over.join(", "),
            if build == "dev" {
                "guard-dev"
            } else {
                "bench-guard"
            }
        ),
    }
}
