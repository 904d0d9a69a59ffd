//! Starting a child at the least cost, and waiting for it without a thread or a poll loop.
//!
//! `clone(CLONE_VM | CLONE_VFORK)` on a stack of its own, as glibc's `posix_spawn` does it: the cost does not grow with
//! our memory (a `fork` copies page tables and leaves us with page faults to pay during the run). `posix_spawn` itself
//! can set neither CPUs nor the personality; setting them on our own thread for the child to inherit would leak into
//! the links that are done between runs.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Enough for a handful of system calls.
const STACK_BYTES: usize = 64 << 10;

/// Which step of the child failed before the program ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Clone,
    Files,
    Folder,
    Cpus,
    Exec,
}

/// All that the child does between its birth and `execve`, prepared so that it only makes system calls.
pub struct Launch<'a> {
    pub program: &'a CStr,
    /// Null-terminated.
    pub argv: &'a [*const c_char],
    /// Null-terminated, valid for the call.
    pub environment: *const *const c_char,
    pub folder: &'a CStr,
    /// stdin, stdout, stderr.
    pub files: [RawFd; 3],
    pub cpus: &'a [u64],
    pub fixed_addresses: bool,
}

/// A child that runs, in a process group of its own.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    /// The moment before it was cloned.
    pub started: Instant,
}

/// The child's stack, allocated once.
pub struct Spawner {
    stack: Vec<u128>,
}

struct Shared<'a> {
    launch: &'a Launch<'a>,
    failed: Option<(Step, c_int)>,
}

impl Spawner {
    #[must_use]
    pub fn new() -> Spawner {
        Spawner { stack: vec![0; STACK_BYTES / size_of::<u128>()] }
    }

    /// Returns when the child has executed the program, or with the step that failed.
    pub fn spawn(&mut self, launch: &Launch) -> Result<Child, (Step, io::Error)> {
        let mut shared = Shared { launch, failed: None };
        let mut pidfd: c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the child runs `child` on `self.stack`, which it leaves by execve or _exit; we sleep until then
        // (CLONE_VFORK), so `shared` outlives it and is not touched by two at once. Signals are blocked meanwhile, so
        // that no handler of ours runs in the child's borrowed memory. The stack grows down from its 16-aligned end.
        let (started, pid) = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let top: *mut c_void = self.stack.as_mut_ptr_range().end.cast();
            let started = Instant::now();
            let pid = libc::clone(child, top, flags, (&raw mut shared).cast(), &raw mut pidfd);
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            (started, if pid < 0 { Err(error) } else { Ok(pid) })
        };
        let pid = pid.map_err(|e| (Step::Clone, e))?;
        if pidfd < 0 {
            // Linux before 5.2 ignores the flag.
            reap(pid, libc::SIGKILL);
            return Err((Step::Clone, io::Error::from_raw_os_error(libc::ENOSYS)));
        }
        // SAFETY: the kernel has just given us this descriptor.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        if let Some((step, errno)) = shared.failed {
            reap(pid, 0);
            return Err((step, io::Error::from_raw_os_error(errno)));
        }
        Ok(Child { pid, pidfd, started })
    }
}

/// Runs in the child, in our memory: system calls only, no allocation, no lock, no panic.
extern "C" fn child(shared: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a valid, exclusive `Shared`.
    let shared = unsafe { &mut *shared.cast::<Shared>() };
    let failed = prepare_and_exec(shared.launch);
    // SAFETY: reads this thread's errno, which we share with the sleeping parent.
    shared.failed = Some((failed, unsafe { *libc::__errno_location() }));
    // SAFETY: ends the child without running destructors, which belong to the parent.
    unsafe { libc::_exit(127) }
}

fn prepare_and_exec(launch: &Launch) -> Step {
    // SAFETY: plain system calls on descriptors and null-terminated arrays that the parent keeps alive.
    unsafe {
        // A group of its own: the whole of it can be killed, and the terminal's ^C does not reach it.
        libc::setpgid(0, 0);
        // Should we die by SIGKILL, it dies too.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if launch.fixed_addresses {
            let now = libc::personality(0xffff_ffff);
            libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong);
        }
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        let bytes = std::mem::size_of_val(launch.cpus);
        if libc::sched_setaffinity(0, bytes, launch.cpus.as_ptr().cast()) != 0 {
            return Step::Cpus;
        }
        if libc::chdir(launch.folder.as_ptr()) != 0 {
            return Step::Folder;
        }
        for (file, target) in launch.files.into_iter().zip(0..) {
            if libc::dup2(file, target) < 0 {
                return Step::Files;
            }
        }
        // Descriptors that whoever started us left open (a job server, a terminal's socket) are no part of the workload.
        // Linux before 5.11 does not know the call.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        // The Rust runtime ignores SIGPIPE, and ignored signals stay ignored across execve.
        for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(launch.program.as_ptr(), launch.argv.as_ptr(), launch.environment);
    }
    Step::Exec
}

fn reap(pid: libc::pid_t, signal: c_int) {
    // SAFETY: `pid` is our own child, not yet waited for.
    unsafe {
        libc::kill(pid, signal);
        while libc::waitpid(pid, std::ptr::null_mut(), 0) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

impl Child {
    /// Sleeps until the child has ended (`true`) or `timeout` is over. A signal to us ends the sleep early.
    pub fn sleep(&self, timeout: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos() as _,
        };
        // SAFETY: one pollfd, one timespec, both alive.
        match unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) } {
            n if n >= 0 => Ok(n > 0),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => Ok(false),
                e => Err(e),
            },
        }
    }

    /// Kills the child and all that is left of its group.
    pub fn kill_group(&self) {
        // SAFETY: the child is not reaped yet, so its number names its group and no other.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
    }

    /// Kills what the child left behind in its group, and reaps the child: its wait status and its resource usage.
    pub fn reap(self) -> io::Result<(c_int, libc::rusage)> {
        self.kill_group();
        let mut status = 0;
        // SAFETY: both out-parameters are alive; rusage is plain data.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            while libc::wait4(self.pid, &raw mut status, 0, &raw mut usage) < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            usage
        };
        self.await_leftovers();
        Ok((status, usage))
    }

    /// Killed grandchildren need a moment to go; the next run shall not share the machine with them. Not for long:
    /// where process 1 does not reap orphans, they stay in the group as zombies, which cost nothing.
    fn await_leftovers(&self) {
        for _ in 0..50 {
            // SAFETY: signal 0 only asks whether the group has members.
            if unsafe { libc::kill(-self.pid, 0) } != 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An array for `execve`: pointers into `words`, then null.
pub fn pointers(words: &[CString]) -> Vec<*const c_char> {
    words.iter().map(|w| w.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Whether this process may switch address randomisation off; containers commonly forbid it. Restores what was.
#[must_use]
pub fn may_fix_addresses() -> bool {
    // SAFETY: changes and restores a flag of this thread.
    unsafe {
        let now = libc::personality(0xffff_ffff);
        if now < 0 {
            return false;
        }
        let done = libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) >= 0
            && libc::personality(0xffff_ffff) & libc::ADDR_NO_RANDOMIZE != 0;
        libc::personality(now as libc::c_ulong);
        done
    }
}
