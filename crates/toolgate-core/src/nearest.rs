//! Suggestions for misspelled names.

/// Minimum Jaro-Winkler similarity of a suggestion.
const MIN_SIMILARITY: f64 = 0.8;
/// Maximum length of compared texts. Comparing long texts is slow, and real names are short.
const MAX_COMPARED_BYTES: usize = 64;

/// Finds the candidate most similar to `text`, ignoring case, if any is similar enough.
pub fn find_nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if text.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let lower = text.to_lowercase();
    candidates
        .filter(|candidate| candidate.len() <= MAX_COMPARED_BYTES)
        .map(|candidate| {
            let similarity = strsim::jaro_winkler(&lower, &candidate.to_lowercase());
            (similarity, candidate)
        })
        .filter(|(similarity, _)| *similarity > MIN_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
