//! How a worker locks itself in, as far as the system helps: no files, no network, no processes, and
//! so much memory and time.

use std::fs::File;
use std::io::{self, Read as _};

#[cfg(unix)]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Seconds of processor time beyond a script's bound, for what the interpreter does around it.
#[cfg(unix)]
const SPARE_SECONDS: u64 = 2;

/// A worker without files, which still knows how large it is.
#[derive(Debug)]
pub(super) struct Locked {
    /// The system's figures about this process, where there are any.
    size: Option<File>,
}

/// Takes away the file system and the network, for this thread and those that it starts.
pub(super) fn files() -> io::Result<Locked> {
    let size = File::open("/proc/self/statm").ok();
    #[cfg(target_os = "linux")]
    landlock()?;
    Ok(Locked { size })
}

#[cfg(target_os = "linux")]
fn landlock() -> io::Result<()> {
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset,
        RulesetAttr as _, Scope,
    };
    // Newer than most kernels: what one does not know is left to the filter of system calls.
    let abi = ABI::V6;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(|rules| rules.scope(Scope::from_all(abi)))
        .and_then(landlock::Ruleset::create)
        .map_err(io::Error::other)?;
    ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(())
}

impl Locked {
    /// Bounds memory to what there is now and `memory` bytes more, and leaves nothing but talking
    /// to the host.
    pub(super) fn wholly(self, memory: u64) -> io::Result<()> {
        let size = self.bytes();
        drop(self);
        #[cfg(unix)]
        {
            most(Resource::Core, 0)?;
            most(Resource::Fsize, 0)?;
            // Scripts stand back behind the gateway.
            let _unless_forbidden = rustix::process::nice(10);
            match size {
                Some(size) => most(Resource::As, size.saturating_add(memory))?,
                None if cfg!(target_os = "linux") => {
                    return Err(io::Error::other(
                        "its size is not known, so memory cannot be bounded",
                    ));
                }
                None => {}
            }
            // The three pipes stay open.
            most(Resource::Nofile, 3)?;
        }
        #[cfg(target_os = "linux")]
        calls::filter()?;
        Ok(())
    }

    /// Bytes of address space in use.
    fn bytes(&self) -> Option<u64> {
        let mut statm = String::new();
        self.size.as_ref()?.read_to_string(&mut statm).ok()?;
        let pages: u64 = statm.split(' ').next()?.parse().ok()?;
        let page = u64::try_from(rustix::param::page_size()).ok()?;
        pages.checked_mul(page)
    }
}

/// Bounds the processor time of the next script, in case that its host can no longer end it.
#[cfg(unix)]
pub(super) fn time(own_ms: u64) -> io::Result<()> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let used = u64::try_from(used.tv_sec).unwrap_or_default();
    let limit = used + own_ms.div_ceil(1000) + SPARE_SECONDS;
    let Rlimit { maximum, .. } = getrlimit(Resource::Cpu);
    let current = Some(limit);
    Ok(setrlimit(Resource::Cpu, Rlimit { current, maximum })?)
}

#[cfg(not(unix))]
pub(super) fn time(_: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn most(resource: Resource, limit: u64) -> io::Result<()> {
    let limit = Some(limit);
    Ok(setrlimit(
        resource,
        Rlimit {
            current: limit,
            maximum: limit,
        },
    )?)
}

#[cfg(target_os = "linux")]
mod calls {
    //! The system calls that remain.

    use std::collections::BTreeMap;
    use std::io;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch,
    };

    /// Memory, locks, signals, time, and the end.
    ///
    /// `rseq` and `set_robust_list` are the first calls of every new thread: the allocator's
    /// background thread may have been started but not yet scheduled when the filter is installed.
    const FREE: &[i64] = &[
        libc::SYS_brk,
        libc::SYS_clock_gettime,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_restart_syscall,
        libc::SYS_rseq,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_yield,
        libc::SYS_set_robust_list,
        libc::SYS_sigaltstack,
    ];

    /// The descriptor of a mapping that has none, as the kernel compares it.
    const NO_FILE: u64 = 0xffff_ffff;
    /// `PR_SET_NAME`, as the kernel compares it.
    const SET_NAME: u64 = libc::PR_SET_NAME.unsigned_abs() as u64;

    pub(super) fn filter() -> io::Result<()> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            FREE.iter().map(|call| (*call, Vec::new())).collect();
        let stream = |most: u64| when(0, SeccompCmpOp::Le, most);
        let data = SeccompCmpOp::MaskedEq(exec());
        let limited = [
            (libc::SYS_read, stream(0)?),
            (libc::SYS_write, stream(2)?),
            (libc::SYS_writev, stream(2)?),
            // Memory without a file behind it, and never code.
            (
                libc::SYS_mmap,
                all(vec![
                    is(2, data.clone(), 0)?,
                    is(4, SeccompCmpOp::Eq, NO_FILE)?,
                ])?,
            ),
            (libc::SYS_mprotect, when(2, data, 0)?),
            // Its own end by a signal, and its own limits.
            (libc::SYS_tgkill, when(0, SeccompCmpOp::Eq, own_pid())?),
            (libc::SYS_prlimit64, when(0, SeccompCmpOp::Eq, 0)?),
            // The allocator's background thread names itself when it starts.
            (libc::SYS_prctl, when(0, SeccompCmpOp::Eq, SET_NAME)?),
        ];
        for (call, rule) in limited {
            rules.insert(call, vec![rule]);
        }
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::KillProcess,
            SeccompAction::Allow,
            arch,
        );
        let program: BpfProgram = filter
            .and_then(BpfProgram::try_from)
            .map_err(io::Error::other)?;
        seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)
    }

    fn exec() -> u64 {
        u64::from(libc::PROT_EXEC.unsigned_abs())
    }

    fn own_pid() -> u64 {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        u64::from(pid.unsigned_abs())
    }

    fn when(argument: u8, compares: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
        all(vec![is(argument, compares, value)?])
    }

    fn all(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
        SeccompRule::new(conditions).map_err(io::Error::other)
    }

    fn is(argument: u8, compares: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compares, value)
            .map_err(io::Error::other)
    }
}
