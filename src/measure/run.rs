//! One run of one variant: the narrow trait that all effects of measuring hide behind, and the real thing.

use std::ffi::{CString, OsStr, c_char};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::measure::cpus::CpuSet;
use crate::measure::environment::Environment;
use crate::measure::gauges::{Gauges, Outside, Reading};
use crate::measure::slot::Slot;
use crate::measure::spawn::{self, Child, Launch, Spawner, Step};
use crate::measure::stop::StopToken;
use crate::measure::workload::Workload;

/// How much of each output stream is kept, in bytes, from its end.
pub const TAIL: u64 = 64 << 10;

/// A workload that writes more than this to one stream is ended: outputs are held in memory.
pub const MAX_OUTPUT: u64 = 256 << 20;

/// How often a long run is looked at: has the user pressed ^C, is the output too large? A run that is shorter than
/// this is never disturbed, a longer one for about 3 µs each time (3 in 100,000). Rejected: RLIMIT_FSIZE, which would
/// also hit the workload's own files; a sealed memfd, which breaks `echo > /dev/stderr`.
const LOOK: Duration = Duration::from_millis(100);

/// A reading of the gauges that is younger than this serves as the next run's first: neighbours share one.
const FRESH: Duration = Duration::from_millis(1);

/// After SIGKILL, a process goes within milliseconds unless it hangs in the kernel.
const DEATH: Duration = Duration::from_secs(30);

/// A program that another thread has just written may still be open for writing in a child of that thread that has
/// not executed yet (execve(2), ETXTBSY).
const BUSY_TRIES: u32 = 50;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The variant.
    pub binary: &'a Path,
    /// Of a sweep: which of its commands.
    pub workers: Option<u32>,
    /// Bytes of environment added in front of the stack: a multiple of 16, at most 4096.
    pub stack_offset: u32,
    pub time_limit: Duration,
    /// When to kill a run that is under way.
    pub stop: &'a StopToken,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    Signaled(i32),
    /// Killed by us: it ran into the time limit, wrote too much, or the campaign was stopped.
    TimedOut,
    Flooded,
    Stopped,
}

/// A finished run, raw.
#[derive(Clone, Debug)]
pub struct RunResult {
    pub started: Instant,
    pub end: End,
    /// Seconds, from before the process was made until its end was seen.
    pub wall: f64,
    /// Seconds of CPU, with all descendants that were waited for.
    pub user: f64,
    pub sys: f64,
    /// KiB. The kernel carries our own peak over into a child that it starts without copying our memory, and into one
    /// that it starts with a copy of it: at or below `rss_floor`, this says nothing.
    pub max_rss: u64,
    pub rss_floor: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub outside: Outside,
    /// The last [`TAIL`] bytes.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl RunResult {
    /// What went wrong, in words; `None` when it exited with 0.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let what = match self.end {
            End::Exited(0) => return None,
            End::Exited(code) => format!("exits with status {code}"),
            End::Signaled(signal) => format!("dies of {}", signal_name(signal)),
            End::TimedOut => format!("still runs after {:.1} s", self.wall),
            End::Flooded => format!("writes more than {} MiB", MAX_OUTPUT >> 20),
            End::Stopped => "was stopped".to_owned(),
        };
        Some(format!("{what}; {}", self.said()))
    }

    /// The end of its output, on one line: what it complained about, else what it printed.
    #[must_use]
    pub fn said(&self) -> String {
        let of = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
            let last = lines.len().saturating_sub(3);
            let joined = lines.get(last..).unwrap_or_default().join(" | ");
            let cut = joined.chars().count().saturating_sub(300);
            joined.chars().skip(cut).map(|c| if c.is_control() { ' ' } else { c }).collect::<String>()
        };
        match (of(&self.stderr), of(&self.stdout)) {
            (err, out) if err.is_empty() && out.is_empty() => "it prints nothing".to_owned(),
            (err, out) if err.is_empty() => format!("its output ends: {out}"),
            (err, _) => format!("its errors end: {err}"),
        }
    }
}

/// The name where libc knows one: `SIGSEGV`.
fn signal_name(signal: i32) -> String {
    // `signal: 11 (SIGSEGV)`, with or without `(core dumped)`.
    let text = ExitStatus::from_raw(signal & 0x7f).to_string();
    match text.split_once('(').and_then(|(_, rest)| rest.split_once(')')) {
        Some((name, _)) => name.to_owned(),
        None => format!("signal {signal}"),
    }
}

/// Runs variants. The fake beside it answers from a script.
pub trait Runner {
    /// One run, from an idle start to the death of all its processes. An error is the machine's or ours (no process
    /// can be made, the program cannot be executed); a workload that fails is a result.
    fn run(&mut self, job: &Job) -> Result<RunResult>;
}

/// A command, ready to be started.
struct Prepared {
    /// `None`: the only one.
    workers: Option<u32>,
    workload: Workload,
    argv: Vec<*const c_char>,
    environment: Environment,
}

/// Runs the workload on this machine.
pub struct Real {
    /// Never empty.
    commands: Vec<Prepared>,
    folder: CString,
    slot: Slot,
    cpus: CpuSet,
    mask: Vec<u64>,
    fixed_addresses: bool,
    null: File,
    stdout: Capture,
    stderr: Capture,
    gauges: Gauges,
    last: Option<Reading>,
    spawner: Spawner,
}

impl Real {
    /// Takes the slot of the workload. The workload sees the environment of this process
    /// (see [`crate::measure::environment`]) and runs on `cpus`.
    pub fn new(workload: Workload, cpus: CpuSet) -> Result<Real> {
        Real::sweep(vec![(None, workload)], cpus)
    }

    /// One command for each worker count, all in one folder and with one slot.
    pub fn sweep(workloads: Vec<(Option<u32>, Workload)>, cpus: CpuSet) -> Result<Real> {
        let Some((_, first)) = workloads.first() else {
            return Err(Error::input("preparing to run the workload", "no command is given"));
        };
        let command = first.command.clone();
        let doing = || format!("preparing to run `{command}`");
        let folder = CString::new(first.folder.as_os_str().as_bytes())
            .map_err(|_| Error::input(doing(), "its folder's name holds a NUL byte"))?;
        let slot = Slot::take(&first.slot)?;
        let prepare = |(workers, workload): (Option<u32>, Workload)| {
            let Workload { program, argv, folder, .. } = &workload;
            let environment = Environment::new(std::env::vars_os(), program, argv, folder)?;
            Ok(Prepared { workers, argv: spawn::pointers(&workload.argv), environment, workload })
        };
        let commands = workloads.into_iter().map(prepare).collect::<Result<Vec<_>>>()?;
        let null = File::open("/dev/null").map_err(|e| Error::io(doing(), e))?;
        let capture = |name| Capture::new(name).map_err(|e| Error::io(doing(), e));
        // SAFETY: asks for a number.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let whole = usize::try_from(online).is_ok_and(|n| n == cpus.numbers().len());
        Ok(Real {
            commands,
            folder,
            slot,
            mask: cpus.mask(),
            fixed_addresses: spawn::may_fix_addresses(),
            null,
            stdout: capture(c"stdout")?,
            stderr: capture(c"stderr")?,
            gauges: Gauges::open(cpus.numbers(), whole),
            last: None,
            spawner: Spawner::new(),
            cpus,
        })
    }

    /// Whether runs have their addresses fixed; containers commonly forbid it.
    #[must_use]
    pub fn fixed_addresses(&self) -> bool {
        self.fixed_addresses
    }

    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// How a job is started.
    fn command(&self, workers: Option<u32>) -> Result<&Workload> {
        let found = self.commands.iter().find(|c| c.workers == workers);
        found.map(|c| &c.workload).ok_or_else(|| unknown(workers))
    }

    fn spawn(&mut self, job: &Job) -> Result<Child> {
        let prepared = self.commands.iter_mut().find(|c| c.workers == job.workers);
        let prepared = prepared.ok_or_else(|| unknown(job.workers))?;
        let launch = Launch {
            program: &prepared.workload.program,
            argv: &prepared.argv,
            environment: prepared.environment.with_offset(job.stack_offset)?,
            folder: &self.folder,
            files: [self.null.as_raw_fd(), self.stdout.0.as_raw_fd(), self.stderr.0.as_raw_fd()],
            cpus: &self.mask,
            fixed_addresses: self.fixed_addresses,
        };
        for _ in 0..BUSY_TRIES {
            match self.spawner.spawn(&launch) {
                Err((Step::Exec, e)) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                done => return done.map_err(|(step, e)| explain(&prepared.workload, &self.cpus, step, e)),
            }
        }
        Err(explain(&prepared.workload, &self.cpus, Step::Exec, io::Error::from_raw_os_error(libc::ETXTBSY)))
    }

    /// Sleeps until the child is dead by itself or by us. `None`: by itself.
    fn watch(&self, child: &Child, job: &Job) -> Result<(Instant, Option<End>)> {
        let command = &self.command(job.workers)?.command;
        let failed = |e| Error::io(format!("waiting for `{command}`"), e);
        let mut killed: Option<(End, Instant)> = None;
        loop {
            let deadline = killed.map_or(job.time_limit, |(_, at)| at.duration_since(child.started) + DEATH);
            let left = deadline.saturating_sub(child.started.elapsed());
            let ended = child.sleep(left.min(LOOK)).map_err(failed)?;
            let now = Instant::now();
            if ended {
                return Ok((now, killed.map(|(end, _)| end)));
            }
            if let Some((_, at)) = killed {
                if now.duration_since(at) >= DEATH {
                    return Err(Error::machine(
                        format!("ending `{command}`"),
                        format!("it is still there {} s after SIGKILL", DEATH.as_secs()),
                    ));
                }
                continue;
            }
            let why = if now.duration_since(child.started) >= job.time_limit {
                End::TimedOut
            } else if job.stop.reason().is_some() {
                End::Stopped
            } else if self.stdout.length().max(self.stderr.length()) > MAX_OUTPUT {
                End::Flooded
            } else {
                continue;
            };
            child.kill_group();
            killed = Some((why, now));
        }
    }
}

impl Runner for Real {
    fn run(&mut self, job: &Job) -> Result<RunResult> {
        let doing = || format!("reading what `{}` did", job.binary.display());
        self.slot.hold(job.binary)?;
        for output in [&self.stdout, &self.stderr] {
            output.clear().map_err(|e| Error::io("emptying the output buffers", e))?;
        }
        let before = match self.last.take() {
            Some(reading) if reading.age() < FRESH => reading,
            _ => self.gauges.read(),
        };
        let child = self.spawn(job)?;
        let started = child.started;
        let (ended, killed) = self.watch(&child, job)?;
        let (status, usage) = child.reap().map_err(|e| Error::io(doing(), e))?;
        let after = self.gauges.read();
        self.last = Some(after);

        let status = ExitStatus::from_raw(status);
        let end = match (killed, status.code(), status.signal()) {
            (Some(end), ..) => end,
            _ if self.stdout.length().max(self.stderr.length()) > MAX_OUTPUT => End::Flooded,
            (None, Some(code), _) => End::Exited(code),
            (None, None, signal) => End::Signaled(signal.unwrap_or(0)),
        };
        let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
        Ok(RunResult {
            started,
            end,
            wall: ended.saturating_duration_since(started).as_secs_f64(),
            user: seconds(usage.ru_utime),
            sys: seconds(usage.ru_stime),
            max_rss: count(usage.ru_maxrss),
            rss_floor: own_peak(),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            outside: before.until(&after),
            stdout: self.stdout.tail().map_err(|e| Error::io(doing(), e))?,
            stderr: self.stderr.tail().map_err(|e| Error::io(doing(), e))?,
        })
    }
}

/// Why a process could not be started.
fn explain(workload: &Workload, cpus: &CpuSet, step: Step, error: io::Error) -> Error {
    let command = &workload.command;
    let program = OsStr::from_bytes(workload.program.as_bytes()).display();
    match step {
        Step::Clone if error.raw_os_error() == Some(libc::ENOSYS) => {
            Error::machine(format!("running `{command}`"), "this kernel cannot wait for a process (Linux 5.4 can)")
        }
        Step::Clone => Error { kind: crate::error::Kind::Machine, ..Error::io("making a process", error) },
        Step::Files => Error::io(format!("redirecting the output of `{command}`"), error),
        Step::Folder => Error::io(format!("entering {}", workload.folder.display()), error),
        Step::Cpus => {
            Error::io(format!("pinning `{command}` to CPU {}", cpus), error).hint("name a set that this machine allows")
        }
        Step::Exec if error.raw_os_error() == Some(libc::ENOEXEC) => {
            Error::io(format!("executing {program}"), error).hint("a script without `#!` runs as `sh FILE`")
        }
        Step::Exec => Error::io(format!("executing {program}"), error),
    }
}

fn unknown(workers: Option<u32>) -> Error {
    let workers = workers.map_or_else(|| "no number of".to_owned(), |n| n.to_string());
    Error::input("running the workload", format!("there is no command for {workers} workers"))
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 * 1e-6
}

/// Our own peak memory in KiB (exec_mmap() in fs/exec.c carries it over to the child).
fn own_peak() -> u64 {
    // SAFETY: rusage is plain data and lives across the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_maxrss).unwrap_or(0)
}

/// Where an output stream goes: a file in memory, so that the child never waits for a reader and no thread of ours has
/// to read while it runs. Rejected: a pipe, which blocks the writer when full or needs us awake; a file on a disk,
/// whose writing back disturbs later runs.
struct Capture(File);

impl Capture {
    fn new(name: &std::ffi::CStr) -> io::Result<Capture> {
        // SAFETY: a null-terminated name; the descriptor is ours alone. O_APPEND, so that emptying the file also moves
        // the place of the next write.
        unsafe {
            let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let file = File::from(OwnedFd::from_raw_fd(fd));
            if libc::fcntl(fd, libc::F_SETFL, libc::O_APPEND) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Capture(file))
        }
    }

    fn clear(&self) -> io::Result<()> {
        if self.length() > 0 { self.0.set_len(0) } else { Ok(()) }
    }

    fn length(&self) -> u64 {
        self.0.metadata().map_or(0, |m| m.len())
    }

    fn tail(&self) -> io::Result<Vec<u8>> {
        let length = self.length();
        let kept = length.min(TAIL);
        let mut bytes = vec![0; kept as usize];
        self.0.read_exact_at(&mut bytes, length - kept)?;
        Ok(bytes)
    }
}
