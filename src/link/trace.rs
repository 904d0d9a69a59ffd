//! Watches a build's process tree through ptrace: only forks and execs stop, nothing is single-stepped.
//!
//! ptrace(2): `PTRACE_SEIZE`, so that job control (group stops) works as without us; the options are inherited by
//! every descendant. Rejected: a shim `ld` in `PATH` (misses `-B`, `--ld-path=` and cargo), and tracing system calls
//! (each would stop twice).

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, c_long, pid_t};

use crate::error::{Error, Result};

/// What to do with a process at its exec stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Go,
    /// Let go, and call [`Watch::exiting`] when it ends.
    GoAndTell,
    /// Hold until this child of ours has ended, then ask [`Watch::ended`].
    HoldFor(pid_t),
}

/// The one who looks at what the build starts. An error ends the build.
pub trait Watch {
    /// `pid` has just exec'ed: its arguments are in place, none of its code has run.
    fn exec(&mut self, pid: pid_t) -> Result<Next>;
    /// Our own child, for which `held` was held, ended with this wait status.
    fn ended(&mut self, held: pid_t, status: c_int) -> Result<Next>;
    /// `pid` ends with this wait status; its files are complete, its parent does not know yet.
    fn exiting(&mut self, pid: pid_t, status: c_int) -> Result<()>;
}

const OPTIONS: c_int = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;

/// How long processes that outlive the build's own command are waited for before they are let go.
const GRACE: Duration = Duration::from_secs(2);

/// How the build ended.
#[derive(Debug)]
pub struct Ended {
    /// The wait status of the build's own command.
    pub status: c_int,
    /// Processes that went on running after it and were let go.
    pub outlived: usize,
}

/// Runs `sh -c SCRIPT sh ARGS…` in a process group of its own, watched. Blocks until it has ended; `stop` ends all of
/// it. `EXITKILL` lets nothing of the build survive us.
pub fn run(mut command: Command, watch: &mut dyn Watch, stop: Option<fn() -> bool>) -> Result<Ended> {
    use std::os::unix::process::CommandExt;
    command.stdin(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| Error::io("starting the build", e))?;
    let root = child.id() as pid_t;
    if let Err(e) = ptrace(libc::PTRACE_SEIZE, root, OPTIONS as c_long) {
        drop(child.kill());
        drop(child.wait());
        return Err(refused(e));
    }
    let watchdog = stop.map(|stop| Watchdog::new(root, stop));
    let (live, held, told) = (HashSet::from([root]), HashMap::new(), HashSet::new());
    let mut tracer = Tracer { watch, root, stop, live, held, told };
    let result = open_gate(&mut child).and_then(|()| tracer.until_the_end());
    if result.is_err() {
        tracer.kill_all();
    }
    drop(watchdog);
    result
}

/// The gate that the child waits at until it is watched: it reads one line before it becomes the build.
pub const GATE: &str = "read -r gate || exit 125; ";

fn open_gate(child: &mut Child) -> Result<()> {
    let mut gate =
        child.stdin.take().ok_or_else(|| Error::machine("starting the build", "it has no standard input"))?;
    gate.write_all(b"\n").map_err(|e| Error::io("starting the build", e))
}

fn refused(e: io::Error) -> Error {
    let error = Error::machine("watching the build with ptrace", e.to_string());
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => error.hint(
            "allow ptrace: in a container `--cap-add=SYS_PTRACE`, on a host kernel.yama.ptrace_scope below 2; not under strace or gdb",
        ),
        _ => error,
    }
}

struct Tracer<'a> {
    watch: &'a mut dyn Watch,
    root: pid_t,
    stop: Option<fn() -> bool>,
    live: HashSet<pid_t>,
    /// Our child → the process held for it.
    held: HashMap<pid_t, pid_t>,
    told: HashSet<pid_t>,
}

impl Tracer<'_> {
    fn until_the_end(&mut self) -> Result<Ended> {
        let mut status = None;
        let mut since: Option<Instant> = None;
        let mut outlived = HashSet::new();
        loop {
            let waiting = since.is_some();
            let Some((pid, now)) = wait(waiting)? else { break };
            if self.stop.is_some_and(|stop| stop()) {
                return Err(Error::machine("capturing the build", "interrupted"));
            }
            if pid == 0 {
                if since.is_some_and(|t| t.elapsed() > GRACE) && self.held.is_empty() {
                    self.release(&mut outlived);
                    if since.is_some_and(|t| t.elapsed() > 2 * GRACE) {
                        break;
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            if pid == self.root && (libc::WIFEXITED(now) || libc::WIFSIGNALED(now)) {
                status = Some(now);
                since = Some(Instant::now());
            }
            if outlived.contains(&pid) && libc::WIFSTOPPED(now) {
                detach(pid, now);
                self.live.remove(&pid);
                continue;
            }
            self.event(pid, now)?;
        }
        let status = status.ok_or_else(|| Error::machine("watching the build", "its end was not seen"))?;
        Ok(Ended { status, outlived: outlived.len() })
    }

    fn event(&mut self, pid: pid_t, status: c_int) -> Result<()> {
        if !libc::WIFSTOPPED(status) {
            self.live.remove(&pid);
            self.told.remove(&pid);
            if let Some(held) = self.held.remove(&pid) {
                let next = self.watch.ended(held, status)?;
                self.follow(held, next);
            }
            return Ok(());
        }
        self.live.insert(pid);
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_EXEC => {
                let next = self.watch.exec(pid)?;
                self.follow(pid, next);
            }
            libc::PTRACE_EVENT_EXIT => {
                if self.told.remove(&pid) {
                    self.watch.exiting(pid, message(pid) as c_int)?;
                }
                go_on(pid, 0);
            }
            // A group stop keeps the process stopped as job control wants; SIGTRAP here is a new child or SIGCONT.
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => drop(ptrace(libc::PTRACE_LISTEN, pid, 0)),
            0 => go_on(pid, signal),
            _ => go_on(pid, 0),
        }
        Ok(())
    }

    fn follow(&mut self, pid: pid_t, next: Next) {
        match next {
            Next::Go => go_on(pid, 0),
            Next::GoAndTell => {
                // The option is set on this process alone, so that no other one stops a second time.
                let options = OPTIONS | libc::PTRACE_O_TRACEEXIT;
                if ptrace(libc::PTRACE_SETOPTIONS, pid, options as c_long).is_ok() {
                    self.told.insert(pid);
                }
                go_on(pid, 0);
            }
            Next::HoldFor(child) => {
                self.held.insert(child, pid);
            }
        }
    }

    /// Asks each process that is left to stop once more, to be let go there.
    fn release(&self, outlived: &mut HashSet<pid_t>) {
        for &pid in self.live.iter().filter(|p| !outlived.contains(p)).collect::<Vec<_>>() {
            if ptrace(libc::PTRACE_INTERRUPT, pid, 0).is_ok() {
                outlived.insert(pid);
            }
        }
    }

    fn kill_all(&mut self) {
        for &pid in &self.live {
            kill(pid);
        }
        // The links beside lead a group each: a linker's own helpers go with it.
        for &child in self.held.keys() {
            kill(-child);
        }
        let patience = Instant::now();
        while patience.elapsed() < GRACE {
            match wait(true) {
                Ok(Some((0, _))) => std::thread::sleep(Duration::from_millis(2)),
                Ok(Some((pid, status))) if libc::WIFSTOPPED(status) => {
                    kill(pid);
                    go_on(pid, 0);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// Kills the build when `stop` says so, also while it is silent.
struct Watchdog {
    done: Arc<AtomicBool>,
}

impl Watchdog {
    fn new(root: pid_t, stop: fn() -> bool) -> Watchdog {
        let done = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&done);
        std::thread::spawn(move || {
            while !theirs.load(Ordering::Relaxed) {
                if stop() {
                    // SAFETY: a plain system call; the group is the build's own. Its first death wakes the tracer.
                    unsafe { libc::kill(-root, libc::SIGKILL) };
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Watchdog { done }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

fn ptrace(request: libc::c_uint, pid: pid_t, data: c_long) -> io::Result<c_long> {
    // SAFETY: the requests used here read or write no memory of ours but through `data` of GETEVENTMSG (see there).
    let result = unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<libc::c_void>(), data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The event's message: for an exit the wait status.
fn message(pid: pid_t) -> libc::c_ulong {
    let mut message: libc::c_ulong = 0;
    // SAFETY: GETEVENTMSG writes one unsigned long, which `message` is.
    unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, std::ptr::null_mut::<libc::c_void>(), &raw mut message) };
    message
}

/// Lets a stopped process go on; one that was killed meanwhile is gone, which is no error.
fn go_on(pid: pid_t, signal: c_int) {
    drop(ptrace(libc::PTRACE_CONT, pid, c_long::from(signal)));
}

fn detach(pid: pid_t, status: c_int) {
    let signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
    drop(ptrace(libc::PTRACE_DETACH, pid, c_long::from(signal)));
}

fn kill(pid: pid_t) {
    // SAFETY: a plain system call on a process that we started or trace.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// The next event of *this thread's* children and tracees: `None` when there are none left, pid 0 when `poll` found
/// nothing. `__WNOTHREAD` keeps two captures in one process apart.
fn wait(poll: bool) -> Result<Option<(pid_t, c_int)>> {
    loop {
        let mut status = 0;
        let flags = libc::__WALL | libc::__WNOTHREAD | if poll { libc::WNOHANG } else { 0 };
        // SAFETY: waitpid writes one int, which `status` is.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        if pid >= 0 {
            return Ok(Some((pid, status)));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(Error::io("waiting for the build", error)),
        }
    }
}
