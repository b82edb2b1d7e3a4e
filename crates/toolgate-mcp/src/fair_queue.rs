//! Slots that callers share fairly: each has a maximum, and those who wait take turns, however many
//! each of them has waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// The caller that a slot is counted for: the name of a key. Callers without one count as one, which
/// may have every slot: once keys are defined, only the administrator needs none.
pub type Owner = Option<Arc<str>>;

/// Slots with a queue per caller. Clones share them.
#[derive(Clone, Debug)]
pub struct FairQueue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<QueueState>,
    /// Notified when the last slot is freed.
    idle: Notify,
}

/// Sizes of a [`FairQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    pub slots: usize,
    pub slots_per_owner: usize,
    pub max_waiting: usize,
    pub max_waiting_per_owner: usize,
}

/// What is taken of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueUsage {
    pub in_use: usize,
    pub waiting: usize,
}

#[derive(Debug)]
struct QueueState {
    limits: QueueLimits,
    used: QueueUsage,
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
pub struct Slot {
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
pub enum NoSlot {
    /// Too many wait already.
    QueueFull,
    /// Too many of the owner wait already.
    OwnerQueueFull,
    Closed,
}

impl QueueLimits {
    /// Returns limits under which an owner gets at most three quarters, rounded up, so that others
    /// need not wait for it.
    pub fn shared(slots: usize, max_waiting: usize) -> Self {
        Self {
            slots,
            slots_per_owner: three_quarters(slots),
            max_waiting,
            max_waiting_per_owner: three_quarters(max_waiting),
        }
    }
}

fn three_quarters(number: usize) -> usize {
    number - number / 4
}

impl FairQueue {
    pub fn new(limits: QueueLimits) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(QueueState {
                limits,
                used: QueueUsage::default(),
                last_ticket: 0,
                owners: HashMap::new(),
                turns: VecDeque::new(),
                is_closed: false,
            }),
            idle: Notify::new(),
        }))
    }

    pub fn limits(&self) -> QueueLimits {
        self.0.state.lock().limits
    }

    /// Replaces the sizes. Slots in use beyond them are kept.
    pub fn resize(&self, limits: QueueLimits) {
        self.0.state.lock().limits = limits;
        while self.grant_next() {}
    }

    /// Takes a slot if one is free for the owner.
    pub fn try_acquire(&self, owner: &Owner) -> Option<Slot> {
        let mut state = self.0.state.lock();
        let is_taken = !state.is_closed && state.try_take(owner);
        is_taken.then(|| self.slot(owner))
    }

    /// Waits for a slot.
    pub async fn acquire(&self, owner: &Owner) -> Result<Slot, NoSlot> {
        let (ticket, slot) = {
            let mut state = self.0.state.lock();
            if state.is_closed {
                return Err(NoSlot::Closed);
            }
            if state.try_take(owner) {
                return Ok(self.slot(owner));
            }
            state.enqueue(owner)?
        };
        let _place = QueuePlace {
            queue: self,
            owner,
            ticket,
        };
        slot.await.map_err(|_| NoSlot::Closed)
    }

    /// Ends all waiting; no further slot is given.
    pub fn close(&self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        state.used.waiting = 0;
        state.turns.clear();
        for owner in state.owners.values_mut() {
            owner.waiting.clear();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.0.state.lock().is_closed
    }

    /// Returns what is taken by all owners.
    pub fn usage(&self) -> QueueUsage {
        self.0.state.lock().used
    }

    /// Returns what is taken by one owner.
    pub fn usage_of(&self, owner: &Owner) -> QueueUsage {
        self.0.state.lock().used_by(owner)
    }

    /// Returns the number of free slots.
    pub fn free(&self) -> usize {
        let state = self.0.state.lock();
        state.limits.slots.saturating_sub(state.used.in_use)
    }

    /// Waits until no slot is in use.
    pub async fn wait_idle(&self) {
        loop {
            let idle = self.0.idle.notified();
            if self.usage().in_use == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Grants a free slot to the next waiter. Returns whether there is one.
    fn grant_next(&self) -> bool {
        let next = self.0.state.lock().take_next();
        let is_granted = next.is_some();
        self.grant(next);
        is_granted
    }

    fn grant(&self, next: Option<(Owner, Waiter)>) {
        if let Some((owner, waiter)) = next {
            // If the waiter is gone, the slot is dropped here and passed on to the next.
            let _gone = waiter.granted.send(self.slot(&owner));
        }
    }

    fn slot(&self, owner: &Owner) -> Slot {
        Slot {
            queue: self.clone(),
            owner: owner.clone(),
        }
    }
}

impl QueueState {
    fn used_by(&self, owner: &Owner) -> QueueUsage {
        self.owners
            .get(owner)
            .map_or_else(QueueUsage::default, |state| QueueUsage {
                in_use: state.in_use,
                waiting: state.waiting.len(),
            })
    }

    /// Takes a slot if one is free for the owner.
    fn try_take(&mut self, owner: &Owner) -> bool {
        if self.used.in_use >= self.limits.slots {
            return false;
        }
        let max = match owner {
            Some(_) => self.limits.slots_per_owner,
            None => self.limits.slots,
        };
        match self.owners.get_mut(owner) {
            Some(state) if state.in_use >= max => return false,
            Some(state) => state.in_use += 1,
            None if max == 0 => return false,
            None => {
                let state = OwnerState {
                    in_use: 1,
                    ..OwnerState::default()
                };
                self.owners.insert(owner.clone(), state);
            }
        }
        self.used.in_use += 1;
        true
    }

    /// Queues for a slot unless the queue is full.
    fn enqueue(&mut self, owner: &Owner) -> Result<(u64, oneshot::Receiver<Slot>), NoSlot> {
        if self.used.waiting >= self.limits.max_waiting {
            return Err(NoSlot::QueueFull);
        }
        if owner.is_some() && self.used_by(owner).waiting >= self.limits.max_waiting_per_owner {
            return Err(NoSlot::OwnerQueueFull);
        }
        self.used.waiting += 1;
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let state = self.owners.entry(owner.clone()).or_default();
        let (granted, slot) = oneshot::channel();
        state.waiting.push_back(Waiter { ticket, granted });
        if state.waiting.len() == 1 {
            self.turns.push_back(owner.clone());
        }
        Ok((ticket, slot))
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
            self.used.waiting -= 1;
            if !state.waiting.is_empty() {
                self.turns.push_back(owner.clone());
            }
            return Some((owner, waiter));
        }
        None
    }

    fn release(&mut self, owner: &Owner) {
        self.used.in_use -= 1;
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
        self.used.waiting -= before - state.waiting.len();
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
        let shared = &self.queue.0;
        let next = {
            let mut state = shared.state.lock();
            state.release(&self.owner);
            let next = state.take_next();
            if state.used.in_use == 0 {
                shared.idle.notify_waiters();
            }
            next
        };
        self.queue.grant(next);
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.queue.0.state.lock().leave(self.owner, self.ticket);
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
            max_waiting: 4000,
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
        assert_eq!(
            queue.acquire(&alice).await.unwrap_err(),
            NoSlot::OwnerQueueFull
        );
        let of_bob = queue.acquire(&bob).await.unwrap();
        assert_eq!(queue.usage().in_use, 4);
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
        let state = queue.0.state.lock();
        assert_eq!(state.used, QueueUsage::default());
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
            max_waiting: 1,
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

    #[tokio::test]
    async fn all_owners_together_have_a_maximum_too() {
        let queue = FairQueue::new(QueueLimits::shared(4, 4));
        let (alice, bob) = (owner("alice"), owner("bob"));
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(queue.acquire(&alice).await.unwrap());
        }
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(queue.acquire(&alice))).collect();
        for waiter in &mut waiting {
            assert!(poll!(waiter).is_pending());
        }
        assert_eq!(
            queue.acquire(&alice).await.unwrap_err(),
            NoSlot::OwnerQueueFull
        );
        held.push(queue.acquire(&bob).await.unwrap());
        let mut of_bob = Box::pin(queue.acquire(&bob));
        assert!(poll!(&mut of_bob).is_pending());
        assert_eq!(queue.acquire(&bob).await.unwrap_err(), NoSlot::QueueFull);
        let usage = |in_use, waiting| QueueUsage { in_use, waiting };
        assert_eq!(queue.usage(), usage(4, 4));
        assert_eq!(queue.usage_of(&alice), usage(3, 3));
    }

    #[tokio::test]
    async fn callers_without_a_key_may_have_every_slot() {
        let queue = FairQueue::new(QueueLimits::shared(4, 0));
        let held: Vec<_> = (0..4).map(|_| queue.try_acquire(&None).unwrap()).collect();
        assert!(queue.try_acquire(&None).is_none());
        let mut idle = Box::pin(queue.wait_idle());
        assert!(poll!(&mut idle).is_pending());
        drop(held);
        idle.await;
    }
}
