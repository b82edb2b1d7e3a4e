//! Memory that is held for callers: request bodies, responses that are being sent, and messages that
//! wait for a client. It is counted in all and per key, for as long as something holds it, whether or not
//! the request that it came with is still open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use toolgate_core::config::Share;

use crate::metrics::Bound;

/// Counts the memory that is held for all callers. Clones share the counts.
#[derive(Clone, Debug)]
pub struct HeldBytes(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    share: Share,
    all: usize,
    /// By key; callers without one count as one.
    per_key: HashMap<Option<Arc<str>>, usize>,
}

/// Memory held for one caller, which counts until this is dropped.
#[derive(Debug)]
pub struct Hold {
    held: HeldBytes,
    key: Option<Arc<str>>,
    bytes: AtomicUsize,
}

/// A share that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldFull {
    /// That of all callers together.
    All,
    /// That of the caller's key.
    Key,
}

impl HeldBytes {
    pub(crate) fn new(share: Share) -> Self {
        Self(Arc::new(Mutex::new(Counts {
            share,
            all: 0,
            per_key: HashMap::new(),
        })))
    }

    pub(crate) fn set_share(&self, share: Share) {
        self.0.lock().share = share;
    }

    /// Returns a hold for a caller that counts nothing yet.
    pub fn hold(&self, key: Option<&Arc<str>>) -> Hold {
        Hold {
            held: self.clone(),
            key: key.cloned(),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Fails if more is held for a key than its share.
    pub fn check(&self, key: Option<&Arc<str>>) -> Result<(), HeldFull> {
        let counts = self.0.lock();
        if counts.of_key(&key.cloned()) > counts.share.max_per_key {
            return Err(HeldFull::Key);
        }
        Ok(())
    }

    /// Returns how much is held for a key.
    pub fn of_key(&self, key: Option<&Arc<str>>) -> usize {
        self.0.lock().of_key(&key.cloned())
    }
}

impl Counts {
    fn of_key(&self, key: &Option<Arc<str>>) -> usize {
        self.per_key.get(key).copied().unwrap_or(0)
    }

    fn check_room(&self, key: &Option<Arc<str>>, bytes: usize) -> Result<(), HeldFull> {
        if self.of_key(key) + bytes > self.share.max_per_key {
            return Err(HeldFull::Key);
        }
        if self.all + bytes > self.share.max {
            return Err(HeldFull::All);
        }
        Ok(())
    }

    fn add(&mut self, key: &Option<Arc<str>>, bytes: usize) {
        if bytes == 0 {
            return; // an entry without bytes would never be removed
        }
        self.all += bytes;
        *self.per_key.entry(key.clone()).or_default() += bytes;
    }

    fn remove(&mut self, key: &Option<Arc<str>>, bytes: usize) {
        self.all -= bytes;
        if let Some(of_key) = self.per_key.get_mut(key) {
            *of_key -= bytes;
            if *of_key == 0 {
                self.per_key.remove(key);
            }
        }
    }
}

impl Hold {
    /// Counts further bytes unless a share is used up.
    pub fn try_grow(&self, bytes: usize) -> Result<(), HeldFull> {
        let mut counts = self.held.0.lock();
        counts.check_room(&self.key, bytes)?;
        counts.add(&self.key, bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts further bytes beyond any limit, where they cannot be refused.
    pub fn grow(&self, bytes: usize) {
        self.held.0.lock().add(&self.key, bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes no longer, which must have been counted.
    pub fn shrink(&self, bytes: usize) {
        // The lock orders this with concurrent changes, so no count ever falls below zero.
        let mut counts = self.held.0.lock();
        let bytes = bytes.min(self.bytes.load(Ordering::Relaxed));
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        counts.remove(&self.key, bytes);
    }

    /// Returns whether half of a share is used up, so that what can be given up should be.
    pub(crate) fn is_crowded(&self) -> bool {
        let counts = self.held.0.lock();
        let of_key = counts.of_key(&self.key);
        of_key > counts.share.max_per_key / 2 || counts.all > counts.share.max / 2
    }

    /// Fails if a share has no room for further bytes.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), HeldFull> {
        self.held.0.lock().check_room(&self.key, bytes)
    }

    /// Counts this number of bytes instead of those before, beyond any limit.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.bytes();
        if bytes > before {
            self.grow(bytes - before);
        } else if bytes < before {
            self.shrink(before - bytes);
        }
    }

    /// Returns the number of bytes that are counted.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        if bytes > 0 {
            self.held.0.lock().remove(&self.key, bytes);
        }
    }
}

impl HeldFull {
    /// Returns the limit that is reached.
    pub fn bound(self) -> Bound {
        match self {
            Self::All => Bound::Bodies,
            Self::Key => Bound::BodiesPerKey,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(max: usize, max_per_key: usize) -> HeldBytes {
        HeldBytes::new(Share { max, max_per_key })
    }

    #[test]
    fn bytes_are_bounded_per_key_and_in_all() {
        let held = held(100, 60);
        let (alice, bob) = (Arc::from("alice"), Arc::from("bob"));
        let (of_alice, of_bob) = (held.hold(Some(&alice)), held.hold(Some(&bob)));
        assert_eq!(of_alice.try_grow(60), Ok(()));
        assert_eq!(of_alice.try_grow(1), Err(HeldFull::Key));
        assert_eq!(of_bob.try_grow(41), Err(HeldFull::All));
        assert_eq!(of_bob.try_grow(40), Ok(()));
        assert_eq!(held.check(Some(&alice)), Ok(()));
        of_alice.grow(1);
        assert_eq!(held.check(Some(&alice)), Err(HeldFull::Key));
        drop(of_alice);
        assert_eq!(held.hold(None).try_grow(60), Ok(()));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Open(u8),
        TryGrow(usize, usize),
        Grow(usize, usize),
        Shrink(usize, usize),
        Drop(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (at, bytes) = (0..8_usize, 0..50_usize);
        prop_oneof![
            (0..3_u8).prop_map(Step::Open),
            (at.clone(), bytes.clone()).prop_map(|(at, bytes)| Step::TryGrow(at, bytes)),
            (at.clone(), bytes.clone()).prop_map(|(at, bytes)| Step::Grow(at, bytes)),
            (at.clone(), bytes).prop_map(|(at, bytes)| Step::Shrink(at, bytes)),
            at.prop_map(Step::Drop),
        ]
    }

    proptest! {
        #[test]
        fn count_of_a_key_is_the_sum_of_its_holds(steps in proptest::collection::vec(step(), 0..80)) {
            let held = held(300, 120);
            let keys: [Option<Arc<str>>; 3] = [None, Some("a".into()), Some("b".into())];
            let mut holds: Vec<(usize, Hold)> = Vec::new();
            for step in steps {
                let count = holds.len();
                match step {
                    Step::Open(key) => {
                        let key = usize::from(key);
                        holds.push((key, held.hold(keys[key].as_ref())));
                    }
                    Step::TryGrow(at, bytes) if at < count => drop(holds[at].1.try_grow(bytes)),
                    Step::Grow(at, bytes) if at < count => holds[at].1.grow(bytes),
                    Step::Shrink(at, bytes) if at < count => holds[at].1.shrink(bytes),
                    Step::Drop(at) if at < count => drop(holds.swap_remove(at)),
                    _ => {}
                }
                for (key, name) in keys.iter().enumerate() {
                    let of_key = holds.iter().filter(|(owner, _)| *owner == key);
                    let sum: usize = of_key.map(|(_, hold)| hold.bytes()).sum();
                    prop_assert_eq!(held.of_key(name.as_ref()), sum);
                }
                let all: usize = holds.iter().map(|(_, hold)| hold.bytes()).sum();
                prop_assert_eq!(held.0.lock().all, all);
            }
            drop(holds);
            prop_assert!(held.0.lock().per_key.is_empty());
        }
    }
}
