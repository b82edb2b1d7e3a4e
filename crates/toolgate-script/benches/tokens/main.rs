//! Counts the prompt tokens of tasks with direct tool calls and with code mode.
//!
//! A scripted model makes exactly the calls each task needs. The benchmark counts what it would read with
//! o200k: for every request, the tool definitions and all messages. It runs no tools and queries no
//! model, so the figures are deterministic. `make bench-tokens` uses a synthetic catalog, or those of files
//! (`TOOLS="file.json ..."`), and fails if the counts exceed the goals.

#![allow(clippy::expect_used, reason = "a benchmark may panic on invalid input")]

mod catalog;
mod conversation;
mod records;
mod synthetic;
mod task;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use catalog::FillerTool;
use conversation::Scenario;
use task::Task;

// Tools in addition to the five that the tasks need.
const SMALL_CATALOG_TOOLS: usize = 40;
const LARGE_CATALOG_TOOLS: usize = 527;

// Maximum prompt tokens of all tasks in code mode, with a small and with a large catalog.
const MAX_SMALL_CATALOG_TOOLS: usize = 50;
const SMALL_CATALOG_GOAL: usize = 25_000;
const LARGE_CATALOG_GOAL: usize = 60_000;

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let catalogs: Vec<Vec<FillerTool>> = if files.is_empty() {
        vec![
            synthetic::generate_tools(SMALL_CATALOG_TOOLS),
            synthetic::generate_tools(LARGE_CATALOG_TOOLS),
        ]
    } else {
        files
            .iter()
            .flat_map(|file| catalog_sizes(&read_catalog(file)))
            .collect()
    };
    let mut exceeds_goal = false;
    for fillers in &catalogs {
        let scenario = Scenario::new(fillers);
        let (table, sum) = format_table(&scenario);
        let goal = if scenario.tools <= MAX_SMALL_CATALOG_TOOLS {
            SMALL_CATALOG_GOAL
        } else {
            LARGE_CATALOG_GOAL
        };
        exceeds_goal |= sum > goal;
        print_report(&format!("{table}goal for code mode: {goal}\n"));
    }
    if exceeds_goal {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn read_catalog(file: &str) -> Vec<FillerTool> {
    let text = fs::read_to_string(file).expect("the catalog file is readable");
    let tools = catalog::parse(&text);
    assert!(!tools.is_empty(), "no tools in {file}");
    tools
}

/// Returns a small subset of the tools, if there are enough, and all of them.
fn catalog_sizes(tools: &[FillerTool]) -> Vec<Vec<FillerTool>> {
    if tools.len() > SMALL_CATALOG_TOOLS {
        vec![tools[..SMALL_CATALOG_TOOLS].to_vec(), tools.to_vec()]
    } else {
        vec![tools.to_vec()]
    }
}

/// Formats the table. Also returns the total tokens of code mode.
fn format_table(scenario: &Scenario) -> (String, usize) {
    let mut text = format!(
        "{} tools of {} servers: direct definitions {}, code mode definitions {}, list {}, file of crm {}\n",
        scenario.tools,
        scenario.servers,
        scenario.direct_tokens,
        scenario.script_tokens,
        scenario.list_tokens(),
        scenario.file_tokens("crm"),
    );
    let _ = writeln!(
        text,
        "{:6}{:>10}{:>10}{:>12}{:>10}{:>9}",
        "task", "requests", "direct", "code mode", "requests", "ratio"
    );
    let (mut direct_sum, mut script_sum) = (0, 0);
    for task in Task::ALL {
        let direct = scenario.direct_cost(task);
        let script = scenario.script_cost(task);
        direct_sum += direct.tokens;
        script_sum += script.tokens;
        let _ = writeln!(
            text,
            "{:6}{:>10}{:>10}{:>12}{:>10}{:>9}",
            task.name(),
            direct.requests,
            direct.tokens,
            script.tokens,
            script.requests,
            format_ratio(direct.tokens, script.tokens)
        );
    }
    let _ = writeln!(
        text,
        "{:6}{:>10}{:>10}{:>12}{:>10}{:>9}",
        "sum",
        "",
        direct_sum,
        script_sum,
        "",
        format_ratio(direct_sum, script_sum)
    );
    (text, script_sum)
}

fn format_ratio(direct: usize, script: usize) -> String {
    format!("{:.1}×", direct as f64 / script as f64)
}

#[allow(clippy::print_stdout, reason = "the program's output")]
fn print_report(text: &str) {
    println!("{text}");
}
