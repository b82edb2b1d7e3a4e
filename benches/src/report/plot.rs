//! SVG plot: bars of CPU per request, and growth curves.

use std::fmt::Write as _;

use super::summary::{Spread, Summary};
use crate::run::Results;
use crate::run::growth::GrowthPoint;

const WIDTH: f64 = 900.0;
const LABEL_WIDTH: f64 = 270.0;
const ROW_HEIGHT: f64 = 20.0;
const PANEL_HEIGHT: f64 = 180.0;
const COLORS: [&str; 4] = ["#2563eb", "#94a3b8", "#d97706", "#059669"];

pub(super) fn render(results: &Results, summaries: &[Summary]) -> String {
    let mut body = String::new();
    let mut top = draw_bars(&mut body, summaries, 10.0);
    let mut kinds: Vec<&str> = results.growth.iter().map(|point| point.of).collect();
    kinds.dedup();
    for of in kinds {
        let points: Vec<&GrowthPoint> = results
            .growth
            .iter()
            .filter(|point| point.of == of)
            .collect();
        top = draw_curve(&mut body, of, &points, top + 30.0);
    }
    let height = top + 20.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Draws a bar per case, a thin one for the bare upstream and a mark for the goal, on a square-root
/// scale so that small values remain visible.
fn draw_bars(body: &mut String, summaries: &[Summary], top: f64) -> f64 {
    draw_text(
        body,
        10.0,
        top + 12.0,
        "CPU µs per request at 64 connections (grey: bare upstream; mark: goal; square-root scale)",
    );
    let max = summaries
        .iter()
        .filter_map(|case| case.cpu)
        .map(|cpu| cpu.max);
    let max = max.reduce(f64::max).unwrap_or(1.0).max(1.0);
    let bar_length = |figure: f64| (figure / max).sqrt() * (WIDTH - LABEL_WIDTH - 70.0);
    let mut y = top + 24.0;
    for case in summaries {
        draw_text(body, 10.0, y + 12.0, &case.name);
        if let Some(cpu) = case.cpu {
            draw_rect(
                body,
                &Rect {
                    x: LABEL_WIDTH,
                    y,
                    width: bar_length(cpu.median),
                    height: 10.0,
                },
                COLORS[0],
            );
            draw_text(
                body,
                LABEL_WIDTH + bar_length(cpu.median) + 6.0,
                y + 10.0,
                &format!("{:.0}", cpu.median),
            );
        }
        if let Some(bare) = case.bare_cpu {
            draw_rect(
                body,
                &Rect {
                    x: LABEL_WIDTH,
                    y: y + 11.0,
                    width: bar_length(bare.median),
                    height: 4.0,
                },
                COLORS[1],
            );
        }
        if let Some(goal) = case.goal {
            draw_rect(
                body,
                &Rect {
                    x: LABEL_WIDTH + bar_length(goal),
                    y: y - 1.0,
                    width: 2.0,
                    height: 17.0,
                },
                COLORS[2],
            );
        }
        y += ROW_HEIGHT;
    }
    y
}

/// Draws CPU over size, with a logarithmic size axis and a line per case.
fn draw_curve(body: &mut String, of: &str, points: &[&GrowthPoint], top: f64) -> f64 {
    draw_text(
        body,
        10.0,
        top + 12.0,
        &format!("CPU µs per request over {of}"),
    );
    let cpu = |point: &GrowthPoint| {
        Spread::from_values(
            point
                .measured
                .iter()
                .filter_map(|measurement| measurement.cpu),
        )
        .map_or(0.0, |cpu| cpu.median)
    };
    let max = points
        .iter()
        .map(|point| cpu(point))
        .reduce(f64::max)
        .unwrap_or(1.0)
        .max(1.0);
    #[allow(clippy::cast_precision_loss, reason = "sizes are small")]
    let x = |size: usize| 60.0 + (size as f64).log10() / 4.0 * (WIDTH - 220.0);
    let y = |cpu: f64| top + PANEL_HEIGHT - cpu / max * (PANEL_HEIGHT - 30.0);
    draw_rect(
        body,
        &Rect {
            x: 60.0,
            y: top + PANEL_HEIGHT,
            width: WIDTH - 220.0,
            height: 1.0,
        },
        COLORS[1],
    );
    let mut cases: Vec<&str> = points.iter().map(|point| point.case).collect();
    cases.sort_unstable();
    cases.dedup();
    for (case, color) in cases.into_iter().zip(COLORS) {
        let mut line = String::new();
        for point in points.iter().filter(|point| point.case == case) {
            let (at_x, at_y) = (x(point.size), y(cpu(point)));
            let _ = write!(line, "{at_x:.1},{at_y:.1} ");
            let _ = writeln!(
                body,
                "<circle cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"4\" fill=\"{color}\"/>"
            );
            draw_text(
                body,
                at_x + 6.0,
                at_y - 6.0,
                &format!("{case} {:.0}", cpu(point)),
            );
            draw_text(
                body,
                at_x - 6.0,
                top + PANEL_HEIGHT + 15.0,
                &point.size.to_string(),
            );
        }
        let _ = writeln!(
            body,
            "<polyline points=\"{line}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
        );
    }
    top + PANEL_HEIGHT + 20.0
}

/// Position and size of a rectangle.
struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

fn draw_rect(body: &mut String, rect: &Rect, color: &str) {
    let Rect {
        x,
        y,
        width,
        height,
    } = rect;
    let _ = writeln!(
        body,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>"
    );
}

fn draw_text(body: &mut String, x: f64, y: f64, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\">{content}</text>");
}
