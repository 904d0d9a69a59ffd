//! When to end early: the budget is spent, or the user pressed ^C.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static SIGNALS: AtomicU32 = AtomicU32::new(0);

/// After this many signals the process dies as if there were no handler: something does not look at the token.
const PATIENCE: u32 = 3;

/// Why a campaign ends before its plan does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// SIGINT or SIGTERM.
    Interrupted,
    /// The deadline has passed.
    Budget,
}

/// Asked between runs, and every tenth of a second within one.
#[derive(Clone, Copy, Debug)]
pub struct StopToken {
    deadline: Option<Instant>,
    interrupted: &'static AtomicBool,
}

impl StopToken {
    /// Stops `budget` from now (`None`: never), and on SIGINT or SIGTERM once [`listen`] has been called.
    #[must_use]
    pub fn new(budget: Option<Duration>) -> StopToken {
        let deadline = budget.and_then(|b| Instant::now().checked_add(b));
        StopToken { deadline, interrupted: &INTERRUPTED }
    }

    /// `None`: go on.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Some(StopReason::Interrupted);
        }
        self.deadline.filter(|&d| Instant::now() >= d).map(|_| StopReason::Budget)
    }

    /// How long until the budget is spent; `None` without a budget.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|d| d.saturating_duration_since(Instant::now()))
    }

    /// A token that follows a flag of the caller's, for tests.
    #[cfg(test)]
    pub(crate) fn flag(interrupted: &'static AtomicBool) -> StopToken {
        StopToken { deadline: None, interrupted }
    }
}

/// Only what a signal handler may do: atomics, and at the third signal the default action.
extern "C" fn on_signal(signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    if SIGNALS.fetch_add(1, Ordering::Relaxed) + 1 >= PATIENCE {
        // SAFETY: signal(2) and raise(3) are async-signal-safe (signal-safety(7)).
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

/// Lets SIGINT and SIGTERM end the campaign with what is known instead of killing the process. A signal that was
/// ignored when we started (`nohup`, a background job) stays ignored.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: both structs are plain data, valid when zeroed, and live across the calls. No SA_RESTART: a sleep
        // in poll(2) shall end.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut old) != 0 || old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
            libc::sigemptyset(&raw mut new.sa_mask);
            libc::sigaction(signal, &raw const new, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_and_no_budget_does_not() {
        assert_eq!(StopToken::new(Some(Duration::ZERO)).reason(), Some(StopReason::Budget));
        assert_eq!(StopToken::new(None).reason(), None);
        assert_eq!(StopToken::new(Some(Duration::MAX)).reason(), None);
    }
}
