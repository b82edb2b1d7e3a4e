//! Rejects scripts that are nested too deeply, before they are parsed.
//!
//! The parser and the compiler recurse, and a stack overflow would kill the whole process.

use super::error::LimitKind;
use crate::lexer::{self, Token, TokenKind};

/// Maximum depth of an expression: brackets, operators and calls around its innermost part.
const MAX_EXPRESSION_DEPTH: usize = 400;

/// Maximum nesting depth of brackets.
const MAX_BRACKET_DEPTH: usize = 80;

/// Maximum nesting depth of blocks.
const MAX_BLOCK_DEPTH: usize = 40;

/// Maximum number of `elif` in a script. The parser nests each one in the one before.
const MAX_ELIFS: usize = 200;

/// Maximum number of digits of a number literal. CPython's default for `int(text)` is the same.
pub(super) const MAX_NUMBER_DIGITS: usize = 4300;

/// Depth that a `lambda` counts for, relative to an operator.
const LAMBDA_DEPTH: usize = 6;

/// Returns [`LimitKind::Depth`] if a script is nested too deeply.
pub(super) fn check_nesting(text: &str) -> Result<(), LimitKind> {
    check_blocks(text)?;
    check_expressions(text, 0)
}

fn check_blocks(text: &str) -> Result<(), LimitKind> {
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
        if indents.len() > MAX_BLOCK_DEPTH {
            return Err(LimitKind::Depth);
        }
    }
    Ok(())
}

fn check_expressions(text: &str, outer_depth: usize) -> Result<(), LimitKind> {
    if outer_depth > MAX_EXPRESSION_DEPTH {
        return Err(LimitKind::Depth);
    }
    let tokens = lexer::tokenize(text);
    // Depth of the current item of each open bracket.
    let mut levels = vec![outer_depth];
    let mut depth = outer_depth;
    let mut elifs = 0;
    for token in &tokens {
        match (token.kind, token.text(text)) {
            (TokenKind::Newline, _) if levels.len() == 1 => {
                levels = vec![outer_depth];
                depth = outer_depth;
            }
            (TokenKind::Operator, "(" | "[" | "{") => {
                deepen(&mut levels, &mut depth, 1);
                levels.push(0);
            }
            (TokenKind::Operator, ")" | "]" | "}") if levels.len() > 1 => {
                depth -= levels.pop().unwrap_or(0);
            }
            (TokenKind::Operator, "," | ";") => {
                if let Some(item) = levels.last_mut() {
                    depth -= std::mem::take(item);
                }
                if levels.len() == 1 {
                    depth = outer_depth;
                }
            }
            (TokenKind::Name, "elif") => elifs += 1,
            (TokenKind::Name, "lambda") => deepen(&mut levels, &mut depth, LAMBDA_DEPTH),
            (TokenKind::Operator, operator) if operator != ":" && operator != "=" => {
                deepen(&mut levels, &mut depth, 1)
            }
            (TokenKind::Name, "and" | "or" | "not" | "in" | "if" | "else" | "for") => {
                deepen(&mut levels, &mut depth, 1);
            }
            (TokenKind::Number, number) if number.len() > MAX_NUMBER_DIGITS => {
                return Err(LimitKind::Depth);
            }
            (TokenKind::String, _) => check_fields(text, token, depth)?,
            _ => {}
        }
        if depth > MAX_EXPRESSION_DEPTH || levels.len() > MAX_BRACKET_DEPTH || elifs > MAX_ELIFS {
            return Err(LimitKind::Depth);
        }
    }
    Ok(())
}

fn deepen(levels: &mut [usize], depth: &mut usize, more: usize) {
    if let Some(item) = levels.last_mut() {
        *item += more;
    }
    *depth += more;
}

/// Checks the expressions inside an f-string.
fn check_fields(text: &str, token: &Token, depth: usize) -> Result<(), LimitKind> {
    let literal = token.text(text);
    for field in lexer::find_fields(literal) {
        check_expressions(&literal[field.0 + 1..field.1], depth + LAMBDA_DEPTH)?;
    }
    Ok(())
}
