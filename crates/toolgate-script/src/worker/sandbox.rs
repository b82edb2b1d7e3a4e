//! Sandbox of a worker: no files, no network, no processes, and limited memory and CPU time.
//!
//! Linux has all of these restrictions; other Unix systems only have resource limits.

use std::io;

#[cfg(unix)]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// CPU seconds granted beyond a script's time limit, for the interpreter's own work.
#[cfg(unix)]
const EXTRA_CPU_SECONDS: u64 = 2;

/// A process without file access that can still read its own memory usage.
#[derive(Debug)]
pub(super) struct Sandbox {
    /// `/proc/self/statm`, opened before the file system becomes inaccessible.
    #[cfg(target_os = "linux")]
    statm: std::fs::File,
}

/// Revokes access to the file system and the network for this thread and its children.
pub(super) fn restrict_files() -> io::Result<Sandbox> {
    #[cfg(target_os = "linux")]
    let statm = std::fs::File::open("/proc/self/statm")?;
    #[cfg(target_os = "linux")]
    apply_landlock()?;
    Ok(Sandbox {
        #[cfg(target_os = "linux")]
        statm,
    })
}

#[cfg(target_os = "linux")]
fn apply_landlock() -> io::Result<()> {
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset,
        RulesetAttr as _, Scope,
    };
    // Newer than most kernels support. The seccomp filter covers the restrictions a kernel lacks.
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

impl Sandbox {
    /// Limits memory to the current usage plus `memory` bytes (on Linux) and blocks all system calls
    /// other than those needed to run and to talk to the host.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(unused_variables, reason = "memory is limited only on Linux")
    )]
    pub(super) fn restrict_fully(self, memory: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        let max_address_space = self.address_space_bytes()?.saturating_add(memory);
        // Closes `statm`, because no further file may be open below.
        drop(self);
        #[cfg(unix)]
        {
            set_limit(Resource::Core, 0)?;
            set_limit(Resource::Fsize, 0)?;
            // Scripts yield to the gateway. Failing to lower the priority is harmless.
            let _priority = rustix::process::nice(10);
            #[cfg(target_os = "linux")]
            set_limit(Resource::As, max_address_space)?;
            // Standard input, output and error stay open; nothing else can be opened.
            set_limit(Resource::Nofile, 3)?;
        }
        #[cfg(target_os = "linux")]
        seccomp::install_filter()?;
        Ok(())
    }

    /// Returns the bytes of address space in use.
    #[cfg(target_os = "linux")]
    fn address_space_bytes(&self) -> io::Result<u64> {
        // The first number is the size in pages.
        let statm = io::read_to_string(&self.statm)?;
        let size = statm.split(' ').next().unwrap_or("");
        let pages: u64 = size.parse().map_err(|_| {
            io::Error::other("cannot limit memory: the size of the process is unknown")
        })?;
        let page_bytes = u64::try_from(rustix::param::page_size()).map_err(io::Error::other)?;
        Ok(pages.saturating_mul(page_bytes))
    }
}

/// Limits the CPU time of the next script, in case its host is no longer able to stop it.
#[cfg(unix)]
pub(super) fn limit_cpu_time(compute_ms: u64) -> io::Result<()> {
    // The limit counts from the start of the process, so earlier scripts have used part of it.
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let used_seconds = u64::try_from(used.tv_sec).map_err(io::Error::other)?;
    let limit = used_seconds + compute_ms.div_ceil(1000) + EXTRA_CPU_SECONDS;
    let Rlimit { maximum, .. } = getrlimit(Resource::Cpu);
    let current = Some(limit);
    Ok(setrlimit(Resource::Cpu, Rlimit { current, maximum })?)
}

#[cfg(not(unix))]
pub(super) fn limit_cpu_time(_: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn set_limit(resource: Resource, limit: u64) -> io::Result<()> {
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
mod seccomp {
    //! Filter that kills the process on any system call that is not allowed.

    use std::collections::BTreeMap;
    use std::io;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch,
    };

    /// System calls allowed with any arguments: memory, locks, signals, time and exit.
    ///
    /// `rseq` and `set_robust_list` are the first calls of every new thread: the allocator's
    /// background thread may have been started but not yet scheduled when the filter is installed.
    const ALLOWED_CALLS: &[i64] = &[
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

    /// File descriptor `-1` of an anonymous mapping, as the kernel compares it.
    const NO_FILE_DESCRIPTOR: u64 = 0xffff_ffff;
    /// `PR_SET_NAME`, as the kernel compares it.
    const SET_NAME: u64 = libc::PR_SET_NAME.unsigned_abs() as u64;

    pub(super) fn install_filter() -> io::Result<()> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED_CALLS
            .iter()
            .map(|call| (*call, Vec::new()))
            .collect();
        let up_to_fd = |max: u64| rule_when(0, SeccompCmpOp::Le, max);
        let not_executable = SeccompCmpOp::MaskedEq(exec_flag());
        let conditional = [
            (libc::SYS_read, up_to_fd(0)?),
            (libc::SYS_write, up_to_fd(2)?),
            (libc::SYS_writev, up_to_fd(2)?),
            // Anonymous memory only, never executable.
            (
                libc::SYS_mmap,
                rule_when_all(vec![
                    condition(2, not_executable.clone(), 0)?,
                    condition(4, SeccompCmpOp::Eq, NO_FILE_DESCRIPTOR)?,
                ])?,
            ),
            (libc::SYS_mprotect, rule_when(2, not_executable, 0)?),
            // Signals to itself, for aborting, and its own resource limits.
            (libc::SYS_tgkill, rule_when(0, SeccompCmpOp::Eq, own_pid())?),
            (libc::SYS_prlimit64, rule_when(0, SeccompCmpOp::Eq, 0)?),
            // The allocator's background thread names itself when it starts.
            (libc::SYS_prctl, rule_when(0, SeccompCmpOp::Eq, SET_NAME)?),
        ];
        for (call, rule) in conditional {
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

    fn exec_flag() -> u64 {
        u64::from(libc::PROT_EXEC.unsigned_abs())
    }

    fn own_pid() -> u64 {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        u64::from(pid.unsigned_abs())
    }

    fn rule_when(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
        rule_when_all(vec![condition(argument, operator, value)?])
    }

    fn rule_when_all(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
        SeccompRule::new(conditions).map_err(io::Error::other)
    }

    fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
            .map_err(io::Error::other)
    }
}
