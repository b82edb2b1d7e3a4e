//! Filters of system calls: of what concerns other processes, and, in the strict profile, of what servers do not need, most of which only root may use: fewer of them mean
//! fewer ways to attack the kernel. Namespaces stay possible, because browsers isolate their pages with them.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{Mechanism, Outcome};

/// Calls that fail as if permission was missing.
const REFUSED_CALLS: &[i64] = &[
    // The kernel itself.
    libc::SYS_acct,
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_perf_event_open,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    // Clock and name of the machine.
    libc::SYS_clock_settime,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    // Other processes.
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_setns,
    // Mounts, and files without their paths.
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_umount2,
    // Keys of the kernel, which do not belong to a process.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
];

/// Further refused calls of this architecture.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_kexec_file_load];
/// `kexec_file_load`, whose number `libc` does not have everywhere.
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[294];

/// Calls that fail as if the kernel did not know them, so that programs do without. What `io_uring` does
/// would pass by this filter.
const UNKNOWN_CALLS: &[i64] = &[
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
];

/// Controls of a terminal, `TIOCSTI` and `TIOCLINUX`, that put characters into its input, as if its user had
/// typed them. A server shares the terminal in which the gateway was started.
const TERMINAL_INPUT_CONTROLS: [u64; 2] = [0x5412, 0x541c];

/// Marks the calls of x32, a second set of numbers for the calls of x86-64.
const X32_FLAG: i64 = 0x4000_0000;
/// Refused calls that have other numbers in x32: `ptrace`, `kexec_load`, `process_vm_readv` and `_writev`.
const X32_CALLS: [i64; 4] = [521, 528, 539, 540];
/// Number of `ioctl` in x32.
const X32_IOCTL: i64 = 514;

/// Makes the calls fail, for this process and whatever it executes.
pub(super) fn block() -> Outcome {
    to_outcome(install())
}

/// Lets processes change their own limits only. With the limits of the gateway, a server could stop it.
pub(super) fn protect_limits() -> Outcome {
    to_outcome(install_limit_filter())
}

fn to_outcome(installed: Result<(), seccompiler::Error>) -> Outcome {
    installed
        .map(|()| Mechanism::Seccomp)
        .map_err(|error| error.to_string())
}

fn install_limit_filter() -> Result<(), seccompiler::Error> {
    // The kernel reads 32 bits of the process number, and 0 stands for the caller. Without new limits, the
    // call only reads.
    let (pid, new_limit) = (0, 2);
    let is_other = SeccompCondition::new(pid, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
    let changes = SeccompCondition::new(new_limit, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let rule = SeccompRule::new(vec![is_other, changes])?;
    let call = libc::SYS_prlimit64;
    let rules = [call, call | X32_FLAG].map(|call| (call, vec![rule.clone()]));
    apply(rules.into(), libc::EPERM)
}

fn install() -> Result<(), seccompiler::Error> {
    let mut refused = match_calls(&[REFUSED_CALLS, REFUSED_HERE, &X32_CALLS].concat());
    let mut controls = Vec::new();
    for control in TERMINAL_INPUT_CONTROLS {
        // The kernel reads 32 bits.
        let length = SeccompCmpArgLen::Dword;
        let condition = SeccompCondition::new(1, length, SeccompCmpOp::Eq, control)?;
        controls.push(SeccompRule::new(vec![condition])?);
    }
    refused.insert(libc::SYS_ioctl, controls.clone());
    refused.insert(X32_IOCTL | X32_FLAG, controls);
    apply(refused, libc::EPERM)?;
    apply(match_calls(UNKNOWN_CALLS), libc::ENOSYS)
}

/// Returns rules that match the calls with any arguments, also as calls of x32. Other architectures have
/// no calls with such numbers.
fn match_calls(calls: &[i64]) -> BTreeMap<i64, Vec<SeccompRule>> {
    let calls = calls.iter().flat_map(|call| [*call, call | X32_FLAG]);
    calls.map(|call| (call, Vec::new())).collect()
}

fn apply(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    error: libc::c_int,
) -> Result<(), seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let action = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?;
    let program = BpfProgram::try_from(filter)?;
    seccompiler::apply_filter(&program)
}
