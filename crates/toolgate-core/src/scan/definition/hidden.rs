//! Finds text that a person who reads a definition does not see.

/// Line ends or blanks in sequence that push the text behind them out of view.
const MAX_LINE_ENDS: usize = 20;
const MAX_BLANKS: usize = 100;

/// Describes the first hidden text; `None` if there is none.
pub(super) fn find(text: &str) -> Option<&'static str> {
    if text.is_ascii() {
        return find_padding(text);
    }
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let after = chars.peek().copied().unwrap_or(' ');
        if is_invisible(c) {
            return Some("invisible characters");
        }
        if is_direction_change(c) {
            return Some("characters that change the direction of text");
        }
        // Joiners are part of emoji and of some scripts, and one variation selector of an emoji.
        let hides_ascii = is_joiner(c) && before.is_ascii() && after.is_ascii();
        let is_sequence = is_variation_selector(c) && is_variation_selector(before);
        if hides_ascii || is_sequence {
            return Some("invisible characters");
        }
        before = c;
    }
    find_padding(text)
}

fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0080}'..='\u{e0fff}'
    )
}

fn is_direction_change(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}')
}

fn find_padding(text: &str) -> Option<&'static str> {
    let (mut line_ends, mut blanks) = (0, 0);
    for byte in text.bytes() {
        match byte {
            b'\n' => {
                line_ends += 1;
                blanks = 0;
            }
            b' ' | b'\t' | b'\r' => blanks += 1,
            _ => (line_ends, blanks) = (0, 0),
        }
        if line_ends >= MAX_LINE_ENDS || blanks >= MAX_BLANKS {
            return Some("text behind many blanks or empty lines");
        }
    }
    None
}
