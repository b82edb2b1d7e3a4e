//! Fingerprints of texts.

use sha2::{Digest as _, Sha256};

/// SHA-256, in hex.
pub fn sha256(text: impl AsRef<[u8]>) -> String {
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
