//! What came of it: a table for people, JSON for programs, a plot for both.

mod plot;
pub(crate) mod summary;
mod table;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use summary::Summary;

use crate::run::Results;
use crate::say;

pub(crate) fn write(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let summaries: Vec<Summary> = results.cases.iter().map(Summary::of).collect();
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let text = table::all(results, &summaries);
    say(&text);
    let json = serde_json::json!({"summary": summaries, "results": results});
    let files = [
        ("table.txt", text),
        ("results.json", format!("{json:#}\n")),
        ("plot.svg", plot::svg(results, &summaries)),
    ];
    for (name, content) in files {
        fs::write(folder.join(name), content)?;
    }
    let folder = folder.display();
    say(&format!(
        "\n{folder}/results.json  {folder}/plot.svg  {folder}/table.txt"
    ));
    Ok(())
}
