//! Fails if hot paths take many more instructions than recorded.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::callgrind::{self, CallgrindGateway};
use crate::case::{self, GatewayVariant};
use crate::flags::Flags;
use crate::gateway;
use crate::{print_progress, print_result};

/// Tolerated increase, since compilers and libraries change too.
const MAX_INCREASE: f64 = 0.25;

const GUARDED_CASES: [&str; 8] = [
    "chat",
    "chat, streamed",
    "chat, 150 tools spliced",
    "tools/call, 2025-06-18, http",
    "tools/call, 2026-07-28, http",
    "tools/call, 2025-06-18, stdio",
    "tool/execute",
    "tools/list of 150, 2025-06-18, http",
];

/// Counts by build profile and case; only counts of the same profile are compared.
type RecordedCounts = BTreeMap<String, BTreeMap<String, u64>>;

pub(crate) async fn main(flags: &Flags) -> anyhow::Result<()> {
    if flags.has("if-possible") && !CallgrindGateway::is_possible().await {
        print_result("NOTE: skipping instruction counts, since valgrind is not installed");
        return Ok(());
    }
    let binary = gateway::find_binary(flags.get("binary"))?;
    let build = flags.get("build").unwrap_or("release");
    let times = flags.number("times", callgrind::REQUESTS_PER_CASE)?;
    let file = PathBuf::from(flags.get("file").unwrap_or("benches/instructions.json"));
    let folder = tempfile::tempdir()?;
    let mut counted =
        CallgrindGateway::start(&binary, GatewayVariant::Injecting, folder.path(), times).await?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for case in case::all_cases() {
        if GUARDED_CASES.contains(&case.name.as_str()) {
            print_progress(&case.name);
            counts.insert(case.name.clone(), counted.count(&case).await?.per_request);
        }
    }
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut all: RecordedCounts = serde_json::from_str(&text)?;
    if flags.has("record") {
        all.insert(build.to_owned(), counts.clone());
        fs::write(&file, serde_json::to_string_pretty(&all)? + "\n")?;
        print_result(&format!("recorded in {}", file.display()));
    }
    let recorded = all.remove(build).unwrap_or_default();
    let mut over = Vec::new();
    print_result(&format!(
        "{:40} {:>12} {:>12} {:>8}",
        "case", "instructions", "recorded", "change"
    ));
    for (name, count) in &counts {
        let Some(before) = recorded.get(name) else {
            bail!(
                "`{name}` is not recorded in `{}`; pass `--record`",
                file.display()
            );
        };
        #[allow(clippy::cast_precision_loss, reason = "counts are in the millions")]
        let change = *count as f64 / *before as f64 - 1.0;
        print_result(&format!(
            "{name:40} {count:>12} {before:>12} {:>+7.1}%",
            change * 100.0
        ));
        if change > MAX_INCREASE {
            over.push(name.as_str());
        }
    }
    if over.is_empty() {
        Ok(())
    } else {
        bail!(
            "more than {:.0} % above the recorded counts of the {build} build: {}; if this is intended or the compiler changed, run `make {} RECORD=1`",
            MAX_INCREASE * 100.0,
            over.join(", "),
            if build == "dev" {
                "guard-dev"
            } else {
                "bench-guard"
            }
        )
    }
}
