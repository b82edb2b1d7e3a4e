//! How many tokens a text is to a model.
//!
//! The encoding's tables take tens of megabytes when they are first used, so this is for workers,
//! which are ended and replaced, and for benchmarks; a gateway asks a worker.

/// Counts by o200k, the encoding of OpenAI's models since GPT-4o.
pub fn count(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton()
        .encode_ordinary(text)
        .len()
}
