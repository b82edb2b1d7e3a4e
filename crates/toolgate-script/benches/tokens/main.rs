//! How many prompt tokens tasks take when tools are shown one by one, and when scripts call them.
//!
//! A scripted model makes the obvious calls and nothing else; what it would read is counted by o200k:
//! for every request, the tool definitions and all messages as they are sent. Nothing is run and no
//! model is asked, so the figures are the same each time. `make bench-tokens` runs it on tools that it
//! makes itself, or on those of files (`TOOLS="file.json ..."`), and fails if they are over the goals.

#![allow(
    clippy::expect_used,
    reason = "a bench that cannot start has nothing to say"
)]

mod catalog;
mod conversation;
mod made;
mod records;
mod task;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use catalog::Ballast;
use conversation::Setting;
use task::Task;

/// Beside the five tools that the tasks need.
const SOME: usize = 40;
const MANY: usize = 527;

/// Prompt tokens of all tasks that code mode may take with up to so many tools, and with more.
const FEW: usize = 50;
const GOAL_WITH_FEW: usize = 25_000;
const GOAL_WITH_MANY: usize = 60_000;

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let catalogs: Vec<Vec<Ballast>> = match files.is_empty() {
        true => vec![made::tools(SOME), made::tools(MANY)],
        false => files.iter().flat_map(|file| sizes(&read(file))).collect(),
    };
    let mut is_over = false;
    for ballast in &catalogs {
        let setting = Setting::new(ballast);
        let (table, sum) = table(&setting);
        let goal = match setting.tools <= FEW {
            true => GOAL_WITH_FEW,
            false => GOAL_WITH_MANY,
        };
        is_over |= sum > goal;
        say(&format!("{table}goal for code mode: {goal}\n"));
    }
    match is_over {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn read(file: &str) -> Vec<Ballast> {
    let text = fs::read_to_string(file).expect("a file that can be read");
    let tools = catalog::parse(&text);
    assert!(!tools.is_empty(), "no tools in {file}");
    tools
}

/// Some of the tools, if there are more, and all of them.
fn sizes(tools: &[Ballast]) -> Vec<Vec<Ballast>> {
    match tools.len() > SOME {
        true => vec![tools[..SOME].to_vec(), tools.to_vec()],
        false => vec![tools.to_vec()],
    }
}

/// The table, and what all tasks take in code mode.
fn table(setting: &Setting) -> (String, usize) {
    let mut text = format!(
        "{} tools of {} servers: direct definitions {}, the four tools {}, list {}, file of crm {}\n",
        setting.tools,
        setting.servers,
        setting.direct_tokens,
        setting.script_tokens,
        setting.list_tokens(),
        setting.file_tokens("crm"),
    );
    let _ = writeln!(
        text,
        "{:6}{:>10}{:>10}{:>12}{:>10}{:>9}",
        "task", "requests", "direct", "code mode", "requests", "ratio"
    );
    let (mut direct_sum, mut script_sum) = (0, 0);
    for task in Task::ALL {
        let direct = setting.direct(task);
        let script = setting.script(task);
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
            ratio(direct.tokens, script.tokens)
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
        ratio(direct_sum, script_sum)
    );
    (text, script_sum)
}

fn ratio(direct: usize, script: usize) -> String {
    format!("{:.1}×", direct as f64 / script as f64)
}

#[allow(clippy::print_stdout, reason = "it is what the program is for")]
fn say(text: &str) {
    println!("{text}");
}
