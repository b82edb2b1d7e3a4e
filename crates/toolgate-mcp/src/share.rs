//! Makes room for a new entry where callers share a limited number of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use toolgate_core::config::Share;

/// An entry that counts towards the share of its owner.
#[derive(Clone, Debug)]
pub struct SharedEntry<'a, K> {
    pub key: &'a K,
    /// The name of a key; callers without one count as one.
    pub owner: Option<&'a Arc<str>>,
    pub last_used: Instant,
    /// Whether it can be ended to make room.
    pub is_idle: bool,
}

/// A share that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareFull {
    /// That of the owner.
    Owner,
    /// That of all callers together.
    All,
}

/// Returns the entry that must end before its owner can have another one, if any must. The owner's own
/// entries come first; if all places are taken, those of the owner with most.
pub fn make_room<'a, K: Clone>(
    entries: &[SharedEntry<'a, K>],
    owner: Option<&'a Arc<str>>,
    share: Share,
) -> Result<Option<K>, ShareFull> {
    let mut counts: HashMap<Option<&Arc<str>>, usize> = HashMap::new();
    for entry in entries {
        *counts.entry(entry.owner).or_default() += 1;
    }
    let of_owner = counts.get(&owner).copied().unwrap_or(0);
    let (crowded, full) = if of_owner >= share.max_per_key {
        (owner, ShareFull::Owner)
    } else if entries.len() >= share.max {
        let largest = counts.into_iter().max_by_key(|(_, count)| *count);
        (largest.and_then(|(owner, _)| owner), ShareFull::All)
    } else {
        return Ok(None);
    };
    let idle = entries
        .iter()
        .filter(|entry| entry.is_idle && entry.owner == crowded);
    let oldest = idle.min_by_key(|entry| entry.last_used).ok_or(full)?;
    Ok(Some(oldest.key.clone()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn owner_gives_up_its_oldest_idle_entry_and_the_largest_owner_if_all_places_are_taken() {
        let now = Instant::now();
        let (alice, bob, carol): (Arc<str>, Arc<str>, Arc<str>) =
            ("alice".into(), "bob".into(), "carol".into());
        let keys = [0_u64, 1, 2, 3, 4];
        let entry = |at: usize, owner, is_idle| SharedEntry {
            key: &keys[at],
            owner: Some(owner),
            last_used: now + Duration::from_secs(keys[at]),
            is_idle,
        };
        let share = |max, max_per_key| Share { max, max_per_key };
        let entries = [
            entry(1, &bob, true),
            entry(2, &alice, false),
            entry(3, &alice, true),
            entry(4, &alice, true),
        ];
        let room = |owner, share| make_room(&entries, Some(owner), share);
        assert_eq!(room(&alice, share(10, 4)), Ok(None));
        assert_eq!(room(&alice, share(10, 3)), Ok(Some(3)));
        assert_eq!(room(&bob, share(4, 3)), Ok(Some(3)));
        assert_eq!(room(&carol, share(4, 3)), Ok(Some(3)));
        let busy = [entry(1, &alice, false), entry(2, &bob, false)];
        let room = |owner, share| make_room(&busy, Some(owner), share);
        assert_eq!(room(&alice, share(10, 1)), Err(ShareFull::Owner));
        assert_eq!(room(&carol, share(2, 1)), Err(ShareFull::All));
        assert_eq!(make_room(&busy, None, share(10, 1)), Ok(None));
    }
}
