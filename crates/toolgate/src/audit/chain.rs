//! The hash chain over all entries of the trail.
//!
//! Entries are only ever appended. Each one has a number and the digest of a record, and its hash covers
//! the hash before it, so that a removed, changed or reordered entry breaks the chain. The entries of a
//! transaction form a segment, which is stored as one row together with its seal. The seal is made with a
//! key that is not in the database: an attacker who can write the database but lacks the key cannot
//! repair the chain. Retention deletes segments and empties the last of them, whose seal is where the
//! rest of the chain continues; an entry of its own says so.

use ring::digest::{SHA256, digest};
use ring::hmac;
use sqlx::Row as _;

use super::columns::{Digest, to_digest};
use crate::store::{ProvidedKey, Store, StoreError, StoreTransaction, clock};

/// Purpose for which the key is derived from that of the store.
const PURPOSE: &str = "audit seal";
/// Bytes of a digest.
const DIGEST_BYTES: usize = size_of::<Digest>();

/// What an entry says about its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A call is about to be sent.
    Opened,
    /// A call has ended.
    Closed,
    /// A call was not sent.
    Refused,
    /// A request to a model has ended.
    Model,
    /// Any other event.
    Event,
    /// Retention deleted all entries up to a number, which stands in place of the record's id.
    Retention,
}

/// An entry before it has its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryDraft {
    pub(crate) kind: EntryKind,
    /// Id of the record.
    pub(crate) record: String,
    pub(crate) digest: Digest,
}

/// An entry of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) seq: i64,
    pub(super) kind: String,
    pub(super) record: String,
    /// Milliseconds since the Unix epoch.
    pub(super) at: i64,
    pub(super) digest: Digest,
    pub(super) hash: Digest,
}

/// A position in the chain: everything up to it is covered by the hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChainHead {
    pub(crate) seq: i64,
    pub(crate) hash: Digest,
}

/// Where entries were appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    /// Number of the first entry.
    pub(crate) first: i64,
    /// The new end of the chain.
    pub(crate) head: ChainHead,
}

/// Key that seals the chain.
#[derive(Clone, Debug)]
pub(crate) struct SealKey {
    key: hmac::Key,
    /// Tells seals of different keys apart.
    pub(super) id: Vec<u8>,
}

impl ChainHead {
    /// Returns the hash in hexadecimal.
    pub(crate) fn hash_text(&self) -> String {
        to_hex(&self.hash)
    }
}

impl EntryKind {
    const ALL: [Self; 6] = [
        Self::Opened,
        Self::Closed,
        Self::Refused,
        Self::Model,
        Self::Event,
        Self::Retention,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Model => "model",
            Self::Event => "event",
            Self::Retention => "retention",
        }
    }

    /// Returns the byte that stands for the kind in a stored segment.
    fn to_byte(self) -> u8 {
        match self {
            Self::Opened => b'o',
            Self::Closed => b'c',
            Self::Refused => b'r',
            Self::Model => b'm',
            Self::Event => b'e',
            Self::Retention => b'd',
        }
    }
}

impl Entry {
    /// Computes the hash of an entry that follows `before`.
    pub(super) fn compute_hash(&self, before: &Digest) -> Digest {
        let mut bytes = Vec::with_capacity(160);
        bytes.extend(before);
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.at.to_be_bytes());
        for text in [&self.kind, &self.record] {
            bytes.extend(text.len().to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend(self.digest);
        to_digest(digest(&SHA256, &bytes).as_ref())
    }
}

impl SealKey {
    /// Derives the key from that of the store.
    pub(crate) fn of_store(store: &Store) -> Self {
        Self::new(&store.derive_key(PURPOSE))
    }

    /// Derives the key from that of a store, which is kept elsewhere.
    pub(crate) fn of_provided_key(key: &ProvidedKey) -> Self {
        Self::new(&key.derive_key(PURPOSE))
    }

    pub(crate) fn new(secret: &[u8]) -> Self {
        let id = digest(&SHA256, &[b"toolgate audit key id\0", secret].concat());
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            id: id.as_ref()[..8].to_vec(),
        }
    }

    pub(super) fn seal(&self, head: &ChainHead, at: i64) -> Vec<u8> {
        hmac::sign(&self.key, &sealed_bytes(head, at))
            .as_ref()
            .to_vec()
    }

    pub(super) fn verifies(&self, head: &ChainHead, at: i64, mac: &[u8]) -> bool {
        hmac::verify(&self.key, &sealed_bytes(head, at), mac).is_ok()
    }
}

/// Formats bytes in hexadecimal.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses bytes in hexadecimal.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn sealed_bytes(head: &ChainHead, at: i64) -> Vec<u8> {
    [&head.seq.to_be_bytes()[..], &head.hash, &at.to_be_bytes()].concat()
}

/// Returns the end of the chain.
pub(super) async fn head(transaction: &mut StoreTransaction) -> Result<ChainHead, StoreError> {
    let row = sqlx::query("SELECT seq, hash FROM audit_segments ORDER BY seq DESC LIMIT 1")
        .fetch_optional(&mut **transaction)
        .await?;
    let Some(row) = row else {
        return Ok(ChainHead::default());
    };
    let hash: Vec<u8> = row.try_get(1)?;
    Ok(ChainHead {
        seq: row.try_get(0)?,
        hash: to_digest(&hash),
    })
}

/// Gives drafts their place after `head`.
pub(super) fn link(drafts: Vec<EntryDraft>, head: ChainHead, at: i64) -> Vec<Entry> {
    let mut last = head;
    let entries = drafts.into_iter().map(|draft| {
        let mut entry = Entry {
            seq: last.seq + 1,
            kind: draft.kind.as_str().to_owned(),
            record: draft.record,
            at,
            digest: draft.digest,
            hash: [0; 32],
        };
        entry.hash = entry.compute_hash(&last.hash);
        last = ChainHead {
            seq: entry.seq,
            hash: entry.hash,
        };
        entry
    });
    entries.collect()
}

/// Stores entries as a sealed segment at the end of the chain. Returns `None` if there are none.
pub(super) async fn append(
    transaction: &mut StoreTransaction,
    drafts: Vec<EntryDraft>,
    key: &SealKey,
    bytes: i64,
) -> Result<Option<Appended>, StoreError> {
    let before = head(transaction).await?;
    let at = clock::now();
    let encoded = encode_entries(&drafts);
    let linked = link(drafts, before, at);
    let Some(last) = linked.last() else {
        return Ok(None);
    };
    let head = ChainHead {
        seq: last.seq,
        hash: last.hash,
    };
    let statement = sqlx::query(
        "INSERT INTO audit_segments (seq, at, bytes, entries, hash, key_id, mac) VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(head.seq)
    .bind(at)
    .bind(bytes)
    .bind(encoded)
    .bind(&head.hash[..])
    .bind(&key.id)
    .bind(key.seal(&head, at));
    transaction.run(statement).await?;
    Ok(Some(Appended {
        first: before.seq + 1,
        head,
    }))
}

/// Encodes the entries of a segment: for each one the kind, the length of the record's id, the id and
/// the digest.
fn encode_entries(drafts: &[EntryDraft]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(drafts.len() * 80);
    for draft in drafts {
        let length = u16::try_from(draft.record.len()).unwrap_or(u16::MAX);
        bytes.push(draft.kind.to_byte());
        bytes.extend(length.to_be_bytes());
        bytes.extend(&draft.record.as_bytes()[..length.into()]);
        bytes.extend(draft.digest);
    }
    bytes
}

/// Decodes the entries of a segment; `None` if they were damaged.
pub(super) fn decode_entries(bytes: &[u8]) -> Option<Vec<EntryDraft>> {
    let mut drafts = Vec::new();
    let mut rest = bytes;
    while let Some((kind, after)) = rest.split_first() {
        let kind = EntryKind::ALL
            .into_iter()
            .find(|known| known.to_byte() == *kind)?;
        let (length, after) = after.split_first_chunk()?;
        let (record, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
        let (digest, after) = after.split_first_chunk::<DIGEST_BYTES>()?;
        drafts.push(EntryDraft {
            kind,
            record: str::from_utf8(record).ok()?.to_owned(),
            digest: *digest,
        });
        rest = after;
    }
    Some(drafts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_entry_is_covered_by_its_hash() {
        let draft = |record: &str| EntryDraft {
            kind: EntryKind::Closed,
            record: record.to_owned(),
            digest: [7; 32],
        };
        let entries = link(vec![draft("a"), draft("b")], ChainHead::default(), 5);
        let (first, second) = (&entries[0], &entries[1]);
        assert_eq!((first.seq, second.seq), (1, 2));
        assert_eq!(second.hash, second.compute_hash(&first.hash));
        let changes: [fn(&mut Entry); 5] = [
            |entry| entry.seq += 1,
            |entry| entry.kind.push('x'),
            |entry| entry.record.push('x'),
            |entry| entry.at += 1,
            |entry| entry.digest[0] += 1,
        ];
        for change in changes {
            let mut changed = second.clone();
            change(&mut changed);
            assert_ne!(changed.compute_hash(&first.hash), second.hash);
        }
        assert_ne!(second.compute_hash(&[0; 32]), second.hash);
    }

    #[test]
    fn segments_are_decoded_as_they_were_encoded() {
        let drafts: Vec<EntryDraft> = EntryKind::ALL
            .into_iter()
            .zip(0_u8..)
            .map(|(kind, n)| EntryDraft {
                kind,
                record: format!("record {n}"),
                digest: [n; 32],
            })
            .collect();
        let encoded = encode_entries(&drafts);
        assert_eq!(decode_entries(&encoded), Some(drafts.clone()));
        let one = encoded.len() / drafts.len();
        for cut in 0..encoded.len() {
            let is_whole = cut % one == 0;
            assert_eq!(decode_entries(&encoded[..cut]).is_some(), is_whole, "{cut}");
        }
    }

    #[test]
    fn only_the_same_key_verifies_a_seal() {
        let (key, other) = (SealKey::new(b"one"), SealKey::new(b"two"));
        let head = ChainHead {
            seq: 3,
            hash: [1; 32],
        };
        let mac = key.seal(&head, 9);
        assert!(key.verifies(&head, 9, &mac));
        assert!(!key.verifies(&head, 8, &mac));
        assert!(!other.verifies(&head, 9, &mac));
        assert_ne!(key.id, other.id);
    }
}
