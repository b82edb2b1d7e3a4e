//! Slots that callers share fairly: each has a maximum, and those who wait take turns, however many
//! each of them has waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The caller that a slot is counted for: the name of a key; callers without one count as one.
pub(crate) type Owner = Option<Arc<str>>;

/// Slots with a queue per caller. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct FairQueue(Arc<Mutex<QueueState>>);

/// Sizes of a [`FairQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    pub(crate) slots: usize,
    pub(crate) slots_per_owner: usize,
    pub(crate) max_waiting_per_owner: usize,
}

#[derive(Debug)]
struct QueueState {
    limits: QueueLimits,
    in_use: usize,
    last_ticket: u64,
    owners: HashMap<Owner, OwnerState>,
    /// Owners with something waiting; the first is served next.
    turns: VecDeque<Owner>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct OwnerState {
    in_use: usize,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    granted: oneshot::Sender<Slot>,
}

/// A slot in use; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Slot {
    queue: FairQueue,
    owner: Owner,
}

/// A place in the queue; dropping it leaves the queue.
struct QueuePlace<'a> {
    queue: &'a FairQueue,
    owner: &'a Owner,
    ticket: u64,
}

/// Reasons why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// Too much of the caller waits already.
    QueueFull,
    Closed,
}

impl FairQueue {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self(Arc::new(Mutex::new(QueueState {
            limits,
            in_use: 0,
            last_ticket: 0,
            owners: HashMap::new(),
            turns: VecDeque::new(),
            is_closed: false,
        })))
    }

    /// Replaces the sizes. Slots in use beyond them are kept.
    pub(crate) fn resize(&self, limits: QueueLimits) {
        self.0.lock().limits = limits;
        while self.grant_next() {}
    }

    /// Takes a slot if one is free for the owner.
    pub(crate) fn try_acquire(&self, owner: &Owner) -> Option<Slot> {
        let mut state = self.0.lock();
        let is_taken = !state.is_closed && state.try_take(owner);
        is_taken.then(|| self.slot(owner))
    }

    /// Waits for a slot.
    pub(crate) async fn acquire(&self, owner: &Owner) -> Result<Slot, NoSlot> {
        let (ticket, slot) = {
            let mut state = self.0.lock();
            if state.is_closed {
                return Err(NoSlot::Closed);
            }
            if state.try_take(owner) {
                return Ok(self.slot(owner));
            }
            state.enqueue(owner).ok_or(NoSlot::QueueFull)?
        };
        let _place = QueuePlace {
            queue: self,
            owner,
            ticket,
        };
        slot.await.map_err(|_| NoSlot::Closed)
    }

    /// Ends all waiting; no further slot is given.
    #[cfg(any(test, feature = "code-mode"))]
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        state.turns.clear();
        for owner in state.owners.values_mut() {
            owner.waiting.clear();
        }
    }

    #[cfg(feature = "code-mode")]
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Returns the number of free slots.
    pub(crate) fn free(&self) -> usize {
        let state = self.0.lock();
        state.limits.slots.saturating_sub(state.in_use)
    }

    /// Grants a free slot to the next waiter. Returns whether there is one.
    fn grant_next(&self) -> bool {
        let next = self.0.lock().take_next();
        let Some((owner, waiter)) = next else {
            return false;
        };
        // If the waiter is gone, the slot is dropped here and passed on to the next.
        let _gone = waiter.granted.send(self.slot(&owner));
        true
    }

    fn slot(&self, owner: &Owner) -> Slot {
        Slot {
            queue: self.clone(),
            owner: owner.clone(),
        }
    }
}

impl QueueState {
    /// Takes a slot if one is free for the owner.
    fn try_take(&mut self, owner: &Owner) -> bool {
        let limits = self.limits;
        let of_owner = self.owners.get(owner).map_or(0, |state| state.in_use);
        let is_free = self.in_use < limits.slots && of_owner < limits.slots_per_owner;
        if is_free {
            self.in_use += 1;
            self.owners.entry(owner.clone()).or_default().in_use += 1;
        }
        is_free
    }

    /// Queues for a slot unless the owner's queue is full.
    fn enqueue(&mut self, owner: &Owner) -> Option<(u64, oneshot::Receiver<Slot>)> {
        let waiting = self
            .owners
            .get(owner)
            .map_or(0, |state| state.waiting.len());
        if waiting >= self.limits.max_waiting_per_owner {
            return None;
        }
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let state = self.owners.entry(owner.clone()).or_default();
        let (granted, slot) = oneshot::channel();
        state.waiting.push_back(Waiter { ticket, granted });
        if state.waiting.len() == 1 {
            self.turns.push_back(owner.clone());
        }
        Some((ticket, slot))
    }

    /// Takes a slot for the next owner whose turn it is and who may have one.
    fn take_next(&mut self) -> Option<(Owner, Waiter)> {
        for _ in 0..self.turns.len() {
            let owner = self.turns.pop_front()?;
            if !self.try_take(&owner) {
                self.turns.push_back(owner);
                continue;
            }
            let state = self.owners.get_mut(&owner)?;
            let waiter = state.waiting.pop_front()?;
            if !state.waiting.is_empty() {
                self.turns.push_back(owner.clone());
            }
            return Some((owner, waiter));
        }
        None
    }

    fn release(&mut self, owner: &Owner) {
        self.in_use -= 1;
        if let Some(state) = self.owners.get_mut(owner) {
            state.in_use -= 1;
        }
        self.forget_if_unused(owner);
    }

    fn leave(&mut self, owner: &Owner, ticket: u64) {
        let Some(state) = self.owners.get_mut(owner) else {
            return;
        };
        let before = state.waiting.len();
        state.waiting.retain(|waiter| waiter.ticket != ticket);
        if before > 0 && state.waiting.is_empty() {
            self.turns.retain(|waiting| waiting != owner);
        }
        self.forget_if_unused(owner);
    }

    fn forget_if_unused(&mut self, owner: &Owner) {
        let is_unused = |state: &OwnerState| state.in_use == 0 && state.waiting.is_empty();
        if self.owners.get(owner).is_some_and(is_unused) {
            self.owners.remove(owner);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.queue.0.lock().release(&self.owner);
        self.queue.grant_next();
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.queue.0.lock().leave(self.owner, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    fn queue(slots: usize, slots_per_owner: usize, max_waiting_per_owner: usize) -> FairQueue {
        FairQueue::new(QueueLimits {
            slots,
            slots_per_owner,
            max_waiting_per_owner,
        })
    }

    fn owner(name: &str) -> Owner {
        Some(name.into())
    }

    #[tokio::test]
    async fn an_owner_cannot_take_the_slots_of_others() {
        let queue = queue(4, 3, 2);
        let (alice, bob) = (owner("alice"), owner("bob"));
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(queue.acquire(&alice).await.unwrap());
        }
        let mut first = Box::pin(queue.acquire(&alice));
        let mut second = Box::pin(queue.acquire(&alice));
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        assert_eq!(queue.acquire(&alice).await.unwrap_err(), NoSlot::QueueFull);
        let of_bob = queue.acquire(&bob).await.unwrap();
        assert_eq!(queue.free(), 0);
        drop(of_bob);
        assert!(poll!(&mut first).is_pending(), "alice has her maximum");
        held.pop();
        assert!(first.await.is_ok());
    }

    #[tokio::test]
    async fn those_who_wait_take_turns() {
        let queue = queue(1, 1, 100);
        let (alice, bob) = (owner("alice"), owner("bob"));
        let mut held = queue.acquire(&alice).await.unwrap();
        let mut of_alice: Vec<_> = (0..50).map(|_| Box::pin(queue.acquire(&alice))).collect();
        for waiting in &mut of_alice {
            assert!(poll!(waiting).is_pending());
        }
        let mut of_bob: Vec<_> = (0..2).map(|_| Box::pin(queue.acquire(&bob))).collect();
        for waiting in &mut of_bob {
            assert!(poll!(waiting).is_pending());
        }
        for round in 0..2 {
            drop(held);
            held = of_alice.remove(0).await.unwrap();
            assert!(poll!(&mut of_bob[0]).is_pending(), "round {round}");
            drop(held);
            held = of_bob.remove(0).await.unwrap();
        }
        drop(held);
        assert!(of_alice.remove(0).await.is_ok());
    }

    #[tokio::test]
    async fn dropped_waiters_leave_the_queue() {
        let queue = queue(1, 1, 2000);
        let alice = owner("alice");
        let held = queue.acquire(&alice).await.unwrap();
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(queue.acquire(&alice))).collect();
        for waiter in &mut waiting {
            assert!(poll!(waiter).is_pending());
        }
        let mut last = Box::pin(queue.acquire(&alice));
        assert!(poll!(&mut last).is_pending());
        drop(waiting);
        drop(held);
        drop(last.await.unwrap());
        let state = queue.0.lock();
        assert_eq!(state.in_use, 0);
        assert!(state.owners.is_empty() && state.turns.is_empty());
    }

    #[tokio::test]
    async fn a_granted_slot_that_nobody_takes_is_passed_on() {
        let queue = queue(1, 1, 2);
        let (alice, bob) = (owner("alice"), owner("bob"));
        let held = queue.acquire(&alice).await.unwrap();
        let mut first = Box::pin(queue.acquire(&alice));
        let mut second = Box::pin(queue.acquire(&bob));
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        drop(held);
        // The slot was granted, but not yet received.
        drop(first);
        assert!(second.await.is_ok());
    }

    #[tokio::test]
    async fn more_slots_serve_those_who_wait() {
        let queue = queue(1, 1, 1);
        let held = queue.acquire(&None).await.unwrap();
        assert!(queue.try_acquire(&None).is_none());
        let mut waiting = Box::pin(queue.acquire(&None));
        assert!(poll!(&mut waiting).is_pending());
        queue.resize(QueueLimits {
            slots: 2,
            slots_per_owner: 2,
            max_waiting_per_owner: 1,
        });
        assert!(waiting.await.is_ok());
        drop(held);
        assert!(queue.try_acquire(&owner("bob")).is_some());
    }

    #[tokio::test]
    async fn closing_ends_all_waiting() {
        let queue = queue(1, 1, 1);
        let held = queue.acquire(&None).await.unwrap();
        let mut waiting = Box::pin(queue.acquire(&None));
        assert!(poll!(&mut waiting).is_pending());
        queue.close();
        assert_eq!(waiting.await.unwrap_err(), NoSlot::Closed);
        assert_eq!(queue.acquire(&None).await.unwrap_err(), NoSlot::Closed);
        drop(held);
    }
}
