//! Counts in messages.

/// Returns a number with the singular or plural of what is counted.
pub fn count(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{number} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        for (number, expected) in [(0, "0 entries"), (1, "1 entry"), (2, "2 entries")] {
            assert_eq!(count(number, "entry", "entries"), expected);
        }
    }
}
