//! Slots that callers share fairly: each has a maximum, and those who wait take turns, however many
//! each of them has waiting.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// The caller that a slot is counted for, usually the name of a key. `None` may have every slot: it is the
/// administrator, or everyone where no keys are defined.
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
    pub const fn shared(slots: usize, max_waiting: usize) -> Self {
        Self {
            slots,
            slots_per_owner: three_quarters(slots),
            max_waiting,
            max_waiting_per_owner: three_quarters(max_waiting),
        }
    }
}

const fn three_quarters(number: usize) -> usize {
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
