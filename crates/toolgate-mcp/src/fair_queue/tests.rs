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
