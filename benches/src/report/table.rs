//! Plain-text tables.

use std::fmt::Write as _;

use super::summary::{Spread, Summary};
use crate::run::agent_gaps::AgentGap;
use crate::run::growth::GrowthPoint;
use crate::run::script_interference::ScriptInterference;
use crate::run::startup::Startup;
use crate::run::{Memory, Results};

pub(super) fn render(results: &Results, summaries: &[Summary]) -> String {
    let mut text = String::new();
    write_cases(&mut text, summaries);
    write_connections(&mut text, summaries);
    write_growth(&mut text, &results.growth);
    write_process(&mut text, results);
    write_splice_ratios(&mut text, summaries);
    for note in &results.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn write_cases(text: &mut String, summaries: &[Summary]) {
    let _ = writeln!(
        text,
        "{:36} {:>7} {:>11} {:>6} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "case",
        "cpu",
        "min-max",
        "goal",
        "bare",
        "slow",
        "rps",
        "of bare",
        "+p50",
        "+p99",
        "+first",
        "errors",
        "foreign"
    );
    for case in summaries {
        let spread = case
            .cpu
            .map_or_else(String::new, |cpu| format!("{:.0}-{:.0}", cpu.min, cpu.max));
        let full = case
            .throughput
            .iter()
            .find(|one| one.connections == crate::run::CPU_CONNECTIONS);
        let share = full.and_then(|one| Some(one.gate / one.bare?));
        let _ = writeln!(
            text,
            "{:36} {:>7} {spread:>11} {:>6} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6.0}%",
            case.name,
            format_whole(case.cpu.map(|cpu| cpu.median)),
            format_whole(case.goal),
            format_whole(case.bare_cpu.map(|cpu| cpu.median)),
            format_whole(case.slow_cpu.map(|cpu| cpu.median)),
            format_whole(full.map(|one| one.gate)),
            share.map_or_else(dash, |share| format!("{share:.2}")),
            format_exact(case.added.map(|added| added.p50)),
            format_exact(case.added.map(|added| added.p99)),
            format_exact(case.added.map(|added| added.first_p50)),
            case.errors,
            case.foreign * 100.0,
        );
        for error in &case.error_samples {
            let _ = writeln!(text, "    error: {error}");
        }
    }
    let _ = writeln!(
        text,
        "\ncpu: CPU µs per request of the gateway at 64 connections, median of the rounds; bare: of the upstream itself;\n\
         slow: of the gateway at 200 requests per second. rps: best round at 64 connections. +p50, +p99: ms added at 200 requests\n\
         per second; +first: ms added until the first byte of the body. foreign: share of the machine used by other processes."
    );
}

fn write_connections(text: &mut String, summaries: &[Summary]) {
    let several = summaries.iter().filter(|case| case.throughput.len() > 1);
    let mut has_header = false;
    for case in several {
        if !has_header {
            let _ = writeln!(
                text,
                "\n{:36} {:>11} {:>8} {:>8} {:>7} {:>8}",
                "case", "connections", "rps", "bare", "cpu", "p99 ms"
            );
            has_header = true;
        }
        for one in &case.throughput {
            let _ = writeln!(
                text,
                "{:36} {:>11} {:>8.0} {:>8} {:>7} {:>8.2}",
                case.name,
                one.connections,
                one.gate,
                format_whole(one.bare),
                format_whole(one.cpu),
                one.p99
            );
        }
    }
}

fn write_growth(text: &mut String, points: &[GrowthPoint]) {
    if points.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:>7} {:14} {:12} {:>7} {:>8} {:>9} {:>12} {:>9} {:>7}",
        "size", "of", "case", "cpu", "rps", "idle MiB", "loaded MiB", "up ms", "errors"
    );
    for point in points {
        let cpu = Spread::from_values(point.measured.iter().filter_map(|one| one.cpu));
        let rate = point
            .measured
            .iter()
            .map(crate::measure::Measurement::rate)
            .reduce(f64::max);
        let memory = point
            .measured
            .iter()
            .filter_map(|one| one.memory)
            .reduce(f64::max);
        let errors: u64 = point.measured.iter().map(|one| one.seen.errors).sum();
        let _ = writeln!(
            text,
            "{:>7} {:14} {:12} {:>7} {:>8} {:>9.1} {:>12} {:>9.0} {errors:>7}",
            point.size,
            point.of,
            point.case,
            format_whole(cpu.map(|cpu| cpu.median)),
            format_whole(rate),
            point.idle,
            memory.map_or_else(dash, |memory| format!("{memory:.1}")),
            point.connected,
        );
    }
}

fn write_process(text: &mut String, results: &Results) {
    let _ = writeln!(text);
    if let Some(Memory {
        idle,
        workers,
        loaded,
        after,
    }) = results.memory
    {
        let _ = writeln!(
            text,
            "memory, 10 servers: {idle:.1} MiB idle, {loaded:.1} at 256 connections, {after:.1} after the run; plus {workers:.1} for script workers"
        );
    }
    for (again, what) in [(false, "first start"), (true, "later start")] {
        let starts: Vec<&Startup> = results
            .start
            .iter()
            .filter(|one| one.again == again)
            .collect();
        let of =
            |figure: fn(&Startup) -> f64| Spread::from_values(starts.iter().map(|one| figure(one)));
        if let (Some(answers), Some(listens), Some(cpu), Some(memory)) = (
            of(|one| one.answers),
            of(|one| one.listens),
            of(|one| one.cpu),
            of(|one| one.memory),
        ) {
            let _ = writeln!(
                text,
                "{what}: first correct response after {:.0} ms ({:.0}-{:.0}), listens after {:.0} ms, {:.0} ms of CPU, {:.1} MiB",
                answers.median, answers.min, answers.max, listens.median, cpu.median, memory.median
            );
        }
    }
    for AgentGap { others, seen } in &results.gaps {
        let _ = writeln!(
            text,
            "agent, from tool result to next model request, {others} other tools in the catalog: {:.0} µs (p99 {:.0}, {} samples)",
            seen.p50, seen.p99, seen.count
        );
    }
    for ScriptInterference {
        what,
        p50,
        p99,
        ended,
        errors,
    } in &results.beside
    {
        let _ = writeln!(
            text,
            "tools/call at a low rate, alongside {}: p50 {p50:.2} ms, p99 {p99:.2} ms, {errors} errors",
            match ended {
                0 => (*what).to_owned(),
                _ => format!("scripts {what} ({ended} finished)"),
            }
        );
    }
    if let Some(binary) = results.binary {
        let _ = writeln!(text, "binary: {binary:.1} MiB");
    }
}

/// Writes the cost of splicing tools relative to the same bytes sent by the caller.
fn write_splice_ratios(text: &mut String, summaries: &[Summary]) {
    let cpu = |name: String| {
        let case = summaries.iter().find(|case| case.name == name);
        case.and_then(|case| case.cpu).map(|cpu| cpu.median)
    };
    for tools in [15, 150] {
        let spliced = cpu(format!("chat, {tools} tools spliced"));
        let sent = cpu(format!("chat, {tools} tools of the caller"));
        if let Some((spliced, sent)) = spliced.zip(sent) {
            let more = (spliced / sent - 1.0) * 100.0;
            let _ = writeln!(
                text,
                "{tools} tools spliced: {more:+.0} % compared with the same bytes sent by the caller"
            );
        }
    }
}

fn format_whole(figure: Option<f64>) -> String {
    figure.map_or_else(dash, |figure| format!("{figure:.0}"))
}

fn format_exact(figure: Option<f64>) -> String {
    figure.map_or_else(dash, |figure| format!("{figure:.2}"))
}

fn dash() -> String {
    "-".to_owned()
}
