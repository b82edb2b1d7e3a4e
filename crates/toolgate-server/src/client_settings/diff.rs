//! Shows what changes in a file.

/// Unchanged lines that are shown around a change.
const CONTEXT_LINES: usize = 3;

/// Formats the difference between two texts as one hunk of a unified diff. Entries are written in one place,
/// so one hunk is enough.
pub(crate) fn format_diff(name: &str, before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let pairs = old.iter().zip(&new);
    let start = pairs.take_while(|(old, new)| old == new).count();
    let pairs = old[start..].iter().rev().zip(new[start..].iter().rev());
    let same_at_end = pairs.take_while(|(old, new)| old == new).count();
    let (old_end, new_end) = (old.len() - same_at_end, new.len() - same_at_end);
    let first = start.saturating_sub(CONTEXT_LINES);
    let context_after = same_at_end.min(CONTEXT_LINES);
    let range = |end: usize| {
        let count = end + context_after - first;
        format!("{},{count}", if count == 0 { 0 } else { first + 1 })
    };
    let mut diff = vec![
        format!("--- {name}"),
        format!("+++ {name}"),
        format!("@@ -{} +{} @@", range(old_end), range(new_end)),
    ];
    diff.extend(old[first..start].iter().map(|line| format!(" {line}")));
    diff.extend(old[start..old_end].iter().map(|line| format!("-{line}")));
    diff.extend(new[start..new_end].iter().map(|line| format!("+{line}")));
    let after = &new[new_end..new_end + context_after];
    diff.extend(after.iter().map(|line| format!(" {line}")));
    diff.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_change_and_its_surroundings_are_shown() {
        let diff = format_diff("f", "1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\n4\nx\ny\n6\n7\n");
        let expected = "--- f\n+++ f\n@@ -2,6 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n+y\n 6\n 7";
        assert_eq!(diff, expected);
        let created = format_diff("f", "", "a\nb\n");
        assert_eq!(created, "--- f\n+++ f\n@@ -0,0 +1,2 @@\n+a\n+b");
    }
}
