//! The environment of a run: the same bytes in every run, but for one variable that moves the stack.
//!
//! Linux puts the file name, the arguments and the environment above the stack, so their length decides where the
//! stack begins (fs/exec.c, fs/binfmt_elf.c: `create_elf_tables`). Here the variables are sorted, and `STRADDLE_STACK`
//! is first filled so that all of them end on a whole page (a longer `PATH` is then no treatment) and then
//! lengthened by the planned offset.
//!
//! What is kept: everything the user set, since a workload may need it (`LD_LIBRARY_PATH`, `OMP_NUM_THREADS`).
//! Rejected: a short list of known names; a variable that is dropped in silence changes what is measured. Dropped are
//! only those that shells and terminals set by themselves and that differ between two terminals.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};

/// The variable whose length moves the stack.
pub const STACK_VARIABLE: &str = "STRADDLE_STACK";

/// The largest stack offset, in bytes: a page. Phases repeat after it.
pub const MAX_OFFSET: u32 = 4096;

/// The ABI aligns the stack to this, in bytes, so that smaller steps have no effect.
pub const OFFSET_STEP: u32 = 16;

const DROPPED: &[&str] = &["_", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "WINDOWID", "TERM_SESSION_ID", "STY", "TMUX"];

/// Ready for `execve`: nothing is allocated when a run starts.
#[derive(Debug)]
pub struct Environment {
    /// All but the last.
    _variables: Vec<CString>,
    pointers: Vec<*const c_char>,
    /// `STRADDLE_STACK=xxx…`, long enough for the largest offset.
    stack: Vec<u8>,
    /// Where the value ends for an offset of 0.
    end: usize,
    /// Where it ends now.
    cut: usize,
}

impl Environment {
    /// `variables` as the process has them; `program` and `argv` lie on the stack as well and are counted.
    pub fn new(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        program: &CStr,
        argv: &[CString],
        folder: &Path,
    ) -> Result<Environment> {
        let mut kept: Vec<(OsString, OsString)> = variables.into_iter().filter(|(name, _)| keeps(name)).collect();
        kept.push(("PWD".into(), folder.into()));
        kept.sort();
        let variables = kept
            .iter()
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| Error::input("reading the environment", "a variable holds a NUL byte"))?;

        let mut stack = format!("{STACK_VARIABLE}=").into_bytes();
        let strings: usize = [program].into_iter().chain(argv.iter().map(|a| &**a)).map(|s| s.count_bytes() + 1).sum();
        let strings = strings + variables.iter().map(|v| v.count_bytes() + 1).sum::<usize>() + stack.len() + 1;
        let pointers = (argv.len() + variables.len() + 1).next_multiple_of(2) * size_of::<usize>();
        let page = MAX_OFFSET as usize;
        let end = stack.len() + (page - (strings + pointers) % page) % page;
        stack.resize(end + page, b'x');
        stack.push(0);

        let mut all: Vec<*const c_char> = variables.iter().map(|v| v.as_ptr()).collect();
        all.push(stack.as_ptr().cast());
        all.push(std::ptr::null());
        let cut = stack.len() - 1;
        Ok(Environment { _variables: variables, pointers: all, stack, end, cut })
    }

    /// The block for a run whose stack begins `offset` bytes lower: a null-terminated array that is valid until the
    /// next call. `offset` is a multiple of [`OFFSET_STEP`], at most [`MAX_OFFSET`].
    pub fn with_offset(&mut self, offset: u32) -> Result<*const *const c_char> {
        if offset > MAX_OFFSET || !offset.is_multiple_of(OFFSET_STEP) {
            let problem = format!("{offset} is not a multiple of {OFFSET_STEP} up to {MAX_OFFSET}");
            return Err(Error::input("placing the stack of a run", problem));
        }
        let cut = self.end + offset as usize;
        for (at, byte) in [(self.cut, b'x'), (cut, 0)] {
            if let Some(place) = self.stack.get_mut(at) {
                *place = byte;
            }
        }
        self.cut = cut;
        Ok(self.pointers.as_ptr())
    }
}

fn keeps(name: &OsStr) -> bool {
    let ours = name == "PWD" || name.as_bytes().starts_with(b"STRADDLE_");
    !ours && !name.as_bytes().starts_with(b"SSH_") && !DROPPED.iter().any(|d| name == *d)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(variables: &[(&str, &str)], offset: u32) -> Vec<String> {
        let variables = variables.iter().map(|&(k, v)| (k.into(), v.into()));
        let mut env = Environment::new(variables, c"/bin/true", &[c"true".to_owned()], Path::new("/w")).unwrap();
        env.with_offset(4096).unwrap();
        let mut at = env.with_offset(offset).unwrap();
        let mut all = Vec::new();
        // SAFETY: the array is null-terminated and its strings live in `env`.
        unsafe {
            while !(*at).is_null() {
                all.push(CStr::from_ptr(*at).to_str().unwrap().to_owned());
                at = at.add(1);
            }
        }
        all
    }

    fn bytes(block: &[String]) -> usize {
        let pointers = (block.len() + 1).next_multiple_of(2) * 8;
        block.iter().map(|s| s.len() + 1).sum::<usize>() + "/bin/true".len() + 1 + "true".len() + 1 + pointers
    }

    #[test]
    fn the_order_and_the_size_do_not_depend_on_the_terminal() {
        let a = block(&[("PATH", "/bin"), ("SHLVL", "3"), ("A", "1"), ("STRADDLE_X", "y")], 0);
        assert_eq!(a[..3], ["A=1", "PATH=/bin", "PWD=/w"]);
        assert_eq!(a.len(), 4);
        assert_eq!(bytes(&a) % 4096, 0);
        assert_eq!(bytes(&block(&[("PATH", "/usr/local/bin:/bin")], 0)) % 4096, 0);
    }

    #[test]
    fn an_offset_lengthens_one_variable_and_nothing_else() {
        let (a, b) = (block(&[("A", "1")], 0), block(&[("A", "1")], 4096));
        assert_eq!(bytes(&b) - bytes(&a), 4096);
        assert_eq!(a[..a.len() - 1], b[..b.len() - 1]);
        let mut env = Environment::new([], c"x", &[], Path::new("/")).unwrap();
        assert!(env.with_offset(8).is_err() && env.with_offset(4112).is_err());
    }
}
