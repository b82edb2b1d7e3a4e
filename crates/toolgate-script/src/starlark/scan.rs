//! A look at the shape of a script before it is parsed: nesting that the parser's stack would not bear.
//!
//! The parser and the compiler recurse, and a stack that overflows ends the whole process.

use super::lex::{self, Shape, Word};
use super::trouble::Limit;

/// How deep one expression may be: brackets, operators and calls on the way to its innermost part.
const EXPRESSION: usize = 400;

/// How deep brackets may be nested.
const BRACKETS: usize = 80;

/// How deep blocks may be nested.
const BLOCKS: usize = 40;

/// How many `elif` a script may have; each is nested in the one before.
const ELIFS: usize = 200;

/// The most digits of a number.
pub(super) const DIGITS: usize = 4300;

/// How much deeper than an operator a `lambda` goes.
const LAMBDA: usize = 6;

/// Refuses a script that is nested too deeply.
pub(super) fn scan(text: &str) -> Result<(), Limit> {
    blocks(text)?;
    expressions(text, 0)
}

fn blocks(text: &str) -> Result<(), Limit> {
    let mut indents: Vec<usize> = Vec::new();
    for line in text.split('\n') {
        let body = line.trim_start_matches([' ', '\t']);
        if body.is_empty() || body.starts_with('#') {
            continue;
        }
        let indent = line.len() - body.len();
        while indents.last().is_some_and(|open| *open >= indent) {
            indents.pop();
        }
        if indent > 0 {
            indents.push(indent);
        }
        if indents.len() > BLOCKS {
            return Err(Limit::Depth);
        }
    }
    Ok(())
}

fn expressions(text: &str, above: usize) -> Result<(), Limit> {
    if above > EXPRESSION {
        return Err(Limit::Depth);
    }
    let words = lex::words(text);
    // For each open bracket, how deep its current item goes.
    let mut levels = vec![above];
    let mut depth = above;
    let mut elifs = 0;
    for word in &words {
        let spelling = &text[word.start..word.end];
        match (word.shape, spelling) {
            (Shape::Line, _) if levels.len() == 1 => {
                levels = vec![above];
                depth = above;
            }
            (Shape::Sign, "(" | "[" | "{") => {
                add(&mut levels, &mut depth, 1);
                levels.push(0);
            }
            (Shape::Sign, ")" | "]" | "}") if levels.len() > 1 => {
                depth -= levels.pop().unwrap_or(0);
            }
            (Shape::Sign, "," | ";") => {
                if let Some(item) = levels.last_mut() {
                    depth -= std::mem::take(item);
                }
                if levels.len() == 1 {
                    depth = above;
                }
            }
            (Shape::Name, "elif") => elifs += 1,
            (Shape::Name, "lambda") => add(&mut levels, &mut depth, LAMBDA),
            (Shape::Sign, sign) if sign != ":" && sign != "=" => add(&mut levels, &mut depth, 1),
            (Shape::Name, "and" | "or" | "not" | "in" | "if" | "else" | "for") => {
                add(&mut levels, &mut depth, 1);
            }
            (Shape::Number, number) if number.len() > DIGITS => return Err(Limit::Depth),
            (Shape::Text, _) => fields(text, word, depth)?,
            _ => {}
        }
        if depth > EXPRESSION || levels.len() > BRACKETS || elifs > ELIFS {
            return Err(Limit::Depth);
        }
    }
    Ok(())
}

fn add(levels: &mut [usize], depth: &mut usize, more: usize) {
    if let Some(item) = levels.last_mut() {
        *item += more;
    }
    *depth += more;
}

/// Looks into the fields of a formatted text.
fn fields(text: &str, word: &Word, depth: usize) -> Result<(), Limit> {
    let literal = &text[word.start..word.end];
    for field in self::formatted(literal) {
        expressions(&literal[field.0 + 1..field.1], depth + LAMBDA)?;
    }
    Ok(())
}

/// The fields of a formatted text: from each brace to behind its counterpart.
pub(super) fn formatted(literal: &str) -> Vec<(usize, usize)> {
    let Some(open) = literal.find(['"', '\'']) else {
        return Vec::new();
    };
    if !literal[..open].to_ascii_lowercase().contains('f') {
        return Vec::new();
    }
    let bytes = literal.as_bytes();
    let mut fields = Vec::new();
    let mut at = open;
    while at < bytes.len() {
        if bytes[at] == b'{' && bytes.get(at + 1) != Some(&b'{') {
            let end = lex::field_end(literal, at, 0, true);
            fields.push((at, end));
            at = end;
        } else {
            at += if bytes[at] == b'{' { 2 } else { 1 };
        }
    }
    fields
}
