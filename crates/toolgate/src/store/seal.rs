//! Encrypts entries that may contain secrets, with a key that is kept in a file or provided by the operator.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

use super::StoreError;

pub(super) const KEY_LEN: usize = 32;

#[derive(Clone)]
pub(super) struct StoreCipher {
    cipher: Arc<LessSafeKey>,
    /// Derives keys for other purposes.
    derivation: Arc<hmac::Key>,
}

impl StoreCipher {
    /// Loads the key from a file; `None` if there is no such file.
    pub(super) fn load(file: &Path) -> Result<Option<Self>, StoreError> {
        match fs::read(file) {
            Ok(bytes) => Self::new(&bytes).map(Some).ok_or_else(|| {
                let cause = io::Error::other(format!("it must have {KEY_LEN} bytes"));
                key_error(file, cause)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(key_error(file, error)),
        }
    }

    /// Creates a key and stores it in a file.
    pub(super) fn create(file: &Path) -> Result<Self, StoreError> {
        let key = random::<KEY_LEN>();
        // Written atomically, because a partial key would make all entries unreadable.
        let draft = file.with_extension("new");
        let created = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft);
        created
            .and_then(|mut draft| draft.write_all(&key).and_then(|()| draft.sync_all()))
            .and_then(|()| fs::rename(&draft, file))
            .and_then(|()| match file.parent() {
                // Otherwise a power failure could undo the renaming, but not what was sealed.
                Some(folder) => fs::File::open(folder)?.sync_all(),
                None => Ok(()),
            })
            .map_err(|cause| key_error(file, cause))?;
        Self::new(&key).ok_or_else(|| key_error(file, io::Error::other("the cipher rejected it")))
    }

    /// Creates a random key that is not stored.
    pub(super) fn random() -> Result<Self, StoreError> {
        Self::new(&random::<KEY_LEN>()).ok_or_else(|| StoreError::Key {
            file: "in memory".to_owned(),
            cause: io::Error::other("the cipher rejected it"),
        })
    }

    /// Encrypts a text. If this fails, the text must not be stored.
    pub(super) fn seal(&self, text: &str) -> Result<String, StoreError> {
        let nonce = random::<NONCE_LEN>();
        let mut bytes = text.as_bytes().to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let sealed = self
            .cipher
            .seal_in_place_append_tag(unique, Aad::empty(), &mut bytes);
        sealed.map_err(|_| StoreError::SealFailed)?;
        Ok(STANDARD.encode([&nonce[..], &bytes].concat()))
    }

    pub(super) fn unseal(&self, sealed: &str) -> Option<String> {
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self.cipher.open_in_place(nonce, Aad::empty(), text).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }

    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let cipher = UnboundKey::new(&CHACHA20_POLY1305, key).ok()?;
        Some(Self {
            cipher: Arc::new(LessSafeKey::new(cipher)),
            derivation: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key)),
        })
    }

    /// Derives a key for a purpose.
    pub(super) fn derive(&self, purpose: &str) -> [u8; KEY_LEN] {
        let tag = hmac::sign(&self.derivation, purpose.as_bytes());
        let mut key = [0; KEY_LEN];
        key.copy_from_slice(tag.as_ref());
        key
    }
}

impl fmt::Debug for StoreCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreCipher")
    }
}

fn key_error(file: &Path, cause: io::Error) -> StoreError {
    StoreError::Key {
        file: file.display().to_string(),
        cause,
    }
}

/// Returns cryptographically secure random bytes.
fn random<const N: usize>() -> [u8; N] {
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_unseals() {
        let [cipher, other] = [
            StoreCipher::random().unwrap(),
            StoreCipher::random().unwrap(),
        ];
        let sealed = cipher.seal("secret é").unwrap();
        assert_ne!(sealed, cipher.seal("secret é").unwrap());
        assert_eq!(cipher.unseal(&sealed).as_deref(), Some("secret é"));
        assert_eq!(other.unseal(&sealed), None);
        assert_eq!(cipher.unseal("AAAA"), None);
        assert_eq!(cipher.unseal("not base64!"), None);
    }
}
