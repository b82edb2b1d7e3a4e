//! Writes the results as a text table, JSON and an SVG plot.

mod plot;
pub(crate) mod summary;
mod table;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use summary::Summary;

use crate::print_result;
use crate::run::Results;

pub(crate) fn write(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let summaries: Vec<Summary> = results.cases.iter().map(Summary::from_case).collect();
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let text = table::render(results, &summaries);
    print_result(&text);
    let json = serde_json::json!({"summary": summaries, "results": results});
    let files = [
        ("table.txt", text),
        ("results.json", format!("{json:#}\n")),
        ("plot.svg", plot::render(results, &summaries)),
    ];
    for (name, content) in files {
        fs::write(folder.join(name), content)?;
    }
    let folder = folder.display();
    print_result(&format!(
        "\n{folder}/results.json  {folder}/plot.svg  {folder}/table.txt"
    ));
    Ok(())
}
