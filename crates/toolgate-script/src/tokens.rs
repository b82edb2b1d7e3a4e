//! To be written.

pub fn count(text: &str) -> usize {
    text.len()
}
