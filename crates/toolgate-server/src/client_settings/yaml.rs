//! Edits YAML files in block style by lines, so that everything else in them stays as it is. Files that are
//! written in another way are refused.

use serde_json::{Map, Value};

use super::{ENTRY_NAME, EditError};

/// Indentation of the entry's members below its name.
const INDENT: usize = 2;

/// Sets the entry in a file.
pub(super) fn edit(
    content: &str,
    section: &[&str],
    members: &Map<String, Value>,
) -> Result<String, EditError> {
    let [section] = section else {
        let message = "entries are in one section".to_owned();
        return Err(EditError::Unsupported(message));
    };
    let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
    check_block_style(&lines)?;
    let Some(start) = find_section(&lines, section)? else {
        lines.push(format!("{section}:"));
        lines.extend(entry_lines(INDENT, members));
        return Ok(lines.join("\n") + "\n");
    };
    lines[start] = section_line(&lines[start], section)?;
    let body = start + 1..block_end(&lines, start, 0);
    let children = lines[body.clone()].iter().filter(|line| is_content(line));
    let indent = children.map(|line| indentation(line)).next();
    let indent = indent.unwrap_or(INDENT);
    if indent == 0 {
        let message = format!("`{section}` in it is not a mapping");
        return Err(EditError::Unsupported(message));
    }
    let existing = body.clone().find(|index| {
        indentation(&lines[*index]) == indent && key(&lines[*index]) == Some(ENTRY_NAME)
    });
    let entry = entry_lines(indent, members);
    match existing {
        Some(index) => {
            let end = block_end(&lines, index, indent);
            lines.splice(index..end, entry);
        }
        None => {
            lines.splice(start + 1..start + 1, entry);
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// Returns an error unless the file is one mapping in block style.
fn check_block_style(lines: &[String]) -> Result<(), EditError> {
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        let is_document_start =
            line.trim_end() == "---" && !lines[..index].iter().any(|line| is_content(line));
        if !is_content(line) || is_document_start {
            continue;
        }
        if line.trim_start_matches(' ').starts_with('\t') {
            let message = format!("line {number} is indented with a tab");
            return Err(EditError::Malformed(message));
        }
        let is_item = line.starts_with("- ") || line.trim_end() == "-";
        if indentation(line) == 0 && !is_item && key(line).is_none() {
            let message = format!("line {number} is not `key: value`");
            return Err(EditError::Malformed(message));
        }
    }
    Ok(())
}

/// Returns the line of a top-level section.
fn find_section(lines: &[String], name: &str) -> Result<Option<usize>, EditError> {
    let mut found = lines.iter().enumerate();
    let mut found = found
        .by_ref()
        .filter(|(_, line)| key(line) == Some(name) && indentation(line) == 0);
    let first = found.next().map(|(index, _)| index);
    if found.next().is_some() {
        let message = format!("it has `{name}` twice; remove one of them");
        return Err(EditError::Malformed(message));
    }
    Ok(first)
}

/// Returns the line of a section that can have members. An empty mapping becomes one.
fn section_line(line: &str, name: &str) -> Result<String, EditError> {
    let (head, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.trim();
    if value.is_empty() || value.starts_with('#') {
        return Ok(line.to_owned());
    }
    let rest = ["{}", "null", "~"]
        .into_iter()
        .find_map(|empty| value.strip_prefix(empty));
    match rest.map(str::trim) {
        Some("") => Ok(format!("{head}:")),
        Some(comment) if comment.starts_with('#') => Ok(format!("{head}: {comment}")),
        _ => {
            let message = format!("`{name}` in it is not written in block style");
            Err(EditError::Unsupported(message))
        }
    }
}

/// Returns the line after the block that a line with this indentation starts. Comments and empty lines before
/// the next block belong to that.
fn block_end(lines: &[String], start: usize, indent: usize) -> usize {
    let after = lines.iter().enumerate().skip(start + 1);
    let mut end = start + 1;
    for (index, line) in after {
        if !is_content(line) {
            continue;
        }
        if indentation(line) <= indent {
            break;
        }
        end = index + 1;
    }
    end
}

fn is_content(line: &str) -> bool {
    let text = line.trim();
    !text.is_empty() && !text.starts_with('#')
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns the key of a line `key:` or `key: value`.
fn key(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let (key, rest) = text.split_once(':')?;
    if !(rest.is_empty() || rest.starts_with([' ', '\r'])) || key.starts_with(['-', '{', '[', '#'])
    {
        return None;
    }
    Some(key.trim().trim_matches(['"', '\'']))
}

fn entry_lines(indent: usize, members: &Map<String, Value>) -> Vec<String> {
    let spaces = " ".repeat(indent);
    let inner = " ".repeat(indent + INDENT);
    let mut lines = vec![format!("{spaces}{ENTRY_NAME}:")];
    // JSON is valid YAML, so values need no other notation.
    lines.extend(
        members
            .iter()
            .map(|(name, value)| format!("{inner}{name}: {value}")),
    );
    lines
}
