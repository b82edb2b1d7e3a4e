//! Token counting.
//!
//! The encoding tables occupy tens of megabytes once loaded. Only workers, which are short-lived, and
//! benchmarks load them; the gateway asks a worker instead.

/// Counts tokens with o200k, the encoding of OpenAI's models since GPT-4o.
pub fn count_tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton()
        .encode_ordinary(text)
        .len()
}
