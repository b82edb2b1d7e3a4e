//! Privileges of root.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use super::{Mechanism, Outcome};

/// Capabilities that a server run by root keeps: none lets it read what it may not, or reach the
/// kernel. `DAC_OVERRIDE` and `DAC_READ_SEARCH`, which ignore permissions of files, are not among them.
const HARMLESS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT);

/// Drops all capabilities but the harmless ones, for this process and whatever it executes.
pub(super) fn drop_dangerous() -> Outcome {
    let dropped = || -> rustix::io::Result<()> {
        clear_ambient_capability_set()?;
        for number in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            // The kernel answers with an error from the first number that it does not know.
            let Ok(is_present) = capability_is_in_bounding_set(capability) else {
                break;
            };
            let is_harmless = HARMLESS.contains(capability);
            if is_present && !is_harmless && has_setpcap()? {
                remove_capability_from_bounding_set(capability)?;
            }
        }
        let now = rustix::thread::capabilities(None)?;
        set_capabilities(
            None,
            CapabilitySets {
                effective: now.effective.intersection(HARMLESS),
                permitted: now.permitted.intersection(HARMLESS),
                inheritable: CapabilitySet::empty(),
            },
        )
    };
    dropped()
        .map(|()| Mechanism::Capabilities)
        .map_err(|error| error.to_string())
}

/// Returns whether the bounding set may be changed. A user without it has no capabilities to lose, and
/// `no_new_privs` keeps programs from giving it any.
fn has_setpcap() -> rustix::io::Result<bool> {
    let now = rustix::thread::capabilities(None)?;
    Ok(now.effective.contains(CapabilitySet::SETPCAP))
}
