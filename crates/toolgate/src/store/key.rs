//! The key that seals entries: where it is kept, and in which formats it can be provided.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::StoreError;
use super::data_dir::KEY_FILE;
use super::seal::{KEY_LEN, StoreCipher};

/// Where the key of a store is kept.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum StoreKey {
    /// In `store.key` in the data directory, which is created with a new database.
    #[default]
    DataDir,
    /// Elsewhere. It is never written to the data directory or to a backup.
    Provided(ProvidedKey),
}

/// A key that the operator or the embedding program keeps.
#[derive(Clone)]
pub struct ProvidedKey {
    cipher: StoreCipher,
    origin: String,
}

/// Error returned for a key of another format. It does not contain the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key of the store from {origin} is not valid: it must have {KEY_LEN} bytes, written in base64 or hexadecimal, as `openssl rand -base64 {KEY_LEN}` prints them"
)]
pub struct InvalidStoreKey {
    origin: String,
}

impl ProvidedKey {
    /// Parses a key in base64 or hexadecimal. `origin` describes where it comes from, for errors: `` `FILE` ``.
    pub fn from_text(text: &str, origin: &str) -> Result<Self, InvalidStoreKey> {
        let text = text.trim();
        let bytes = from_hex(text)
            .or_else(|| STANDARD.decode(text).ok())
            .or_else(|| STANDARD_NO_PAD.decode(text).ok());
        Self::new(bytes.as_deref().unwrap_or_default(), origin)
    }

    /// Parses the content of a file: the bytes of the key, as in `store.key`, or a text.
    pub fn from_content(content: &[u8], origin: &str) -> Result<Self, InvalidStoreKey> {
        match std::str::from_utf8(content) {
            Ok(text) if content.len() != KEY_LEN => Self::from_text(text, origin),
            _ => Self::new(content, origin),
        }
    }

    fn new(bytes: &[u8], origin: &str) -> Result<Self, InvalidStoreKey> {
        let origin = origin.to_owned();
        // The cipher accepts only keys of the right length.
        match StoreCipher::new(bytes) {
            Some(cipher) => Ok(Self { cipher, origin }),
            None => Err(InvalidStoreKey { origin }),
        }
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Derives a key for a purpose, as a store with this key does.
    pub(crate) fn derive_key(&self, purpose: &str) -> [u8; KEY_LEN] {
        self.cipher.derive(purpose)
    }
}

impl StoreKey {
    /// Loads the key; `None` if it is to be in the data directory and is not.
    pub(super) fn load(&self, data_dir: &Path) -> Result<Option<StoreCipher>, StoreError> {
        match self {
            Self::DataDir => StoreCipher::load(&data_dir.join(KEY_FILE)),
            Self::Provided(key) => Ok(Some(key.cipher.clone())),
        }
    }

    /// Describes a key that does not fit the database. `fits` tells whether another one does.
    pub(super) fn wrong_key(
        &self,
        data_dir: &Path,
        fits: impl Fn(&StoreCipher) -> bool,
    ) -> StoreError {
        let file = data_dir.join(KEY_FILE);
        let name = file.display().to_string();
        match self {
            Self::DataDir => StoreError::WrongKey(name),
            Self::Provided(key) => {
                let origin = key.origin.clone();
                match StoreCipher::load(&file) {
                    Ok(Some(cipher)) if fits(&cipher) => {
                        StoreError::KeyInDataDir { file: name, origin }
                    }
                    _ => StoreError::WrongProvidedKey(origin),
                }
            }
        }
    }
}

impl fmt::Debug for ProvidedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProvidedKey({})", self.origin)
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * KEY_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let digits = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_accepted_in_every_format_and_never_shown() {
        let bytes: [u8; KEY_LEN] = std::array::from_fn(|index| index as u8 * 7);
        let expected = StoreCipher::new(&bytes).unwrap().derive("x");
        let base64 = STANDARD.encode(bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        for text in [&base64, base64.trim_end_matches('='), &hex] {
            for text in [text.to_owned(), format!(" {text}\n")] {
                let key = ProvidedKey::from_content(text.as_bytes(), "`f`").unwrap();
                assert_eq!(key.derive_key("x"), expected, "{text}");
                let key = ProvidedKey::from_text(&text, "`f`").unwrap();
                assert_eq!(key.derive_key("x"), expected, "{text}");
                assert_eq!(format!("{key:?}"), "ProvidedKey(`f`)");
            }
        }
        let raw = ProvidedKey::from_content(&bytes, "`f`").unwrap();
        assert_eq!(raw.derive_key("x"), expected);
        for wrong in [
            "",
            "secret-text",
            &base64[..40],
            &hex[..62],
            &"é".repeat(32),
        ] {
            let error = ProvidedKey::from_text(wrong, "`f`")
                .unwrap_err()
                .to_string();
            assert!(error.contains("from `f` is not valid"), "{error}");
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
        assert!(ProvidedKey::from_text(&"x".repeat(KEY_LEN), "`f`").is_err());
        assert!(ProvidedKey::from_content(&[0xff; 40], "`f`").is_err());
    }
}
