//! Content hashes.

use sha2::{Digest as _, Sha256};

/// SHA-256 of `data`, in lowercase hex.
pub fn sha256_hex(data: impl AsRef<[u8]>) -> String {
    let digest = Sha256::digest(data);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
