//! Appends to a record: a line is written whole, by one write(2), and a campaign that is killed loses at most the
//! group of runs that was under way.

use std::fs::{File, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::measure::record::{Header, Note, Record, Sample};

/// Whether a record of the same name may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    Replace,
}

/// An open record.
#[derive(Debug)]
pub struct RecordWriter {
    path: PathBuf,
    file: File,
    /// Up to here, all lines are whole.
    good: u64,
    /// All of it is on the disk.
    synced: bool,
    line: Vec<u8>,
}

impl RecordWriter {
    /// Makes a record that begins with `header`. Written beside and renamed, so that no record without a whole header
    /// ever bears the name.
    pub fn create(path: &Path, header: &Header, existing: Existing) -> Result<RecordWriter> {
        let doing = || format!("creating the record {}", path.display());
        if existing == Existing::Refuse && path.symlink_metadata().is_ok() {
            return Err(Error::input(doing(), "there is one already").hint("name another file, or remove it"));
        }
        let folder = match path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        let beside = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(|e| Error::io(doing(), e))?;
        let file = beside.as_file().try_clone().map_err(|e| Error::io(doing(), e))?;
        let mut writer = RecordWriter::append_to(file, path);
        writer.line(header)?;
        writer.sync()?;
        let named = match existing {
            Existing::Refuse => beside.persist_noclobber(path),
            Existing::Replace => beside.persist(path),
        };
        named.map_err(|e| Error::io(doing(), e.error))?;
        Ok(writer)
    }

    /// Opens a record to go on with it. A last line that was torn is taken off: what it told of is run again.
    pub fn reopen(path: &Path) -> Result<(RecordWriter, Record)> {
        let doing = || format!("opening the record {} to go on with it", path.display());
        let bytes = crate::open::map(path)?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default()).into_owned();
        drop(bytes);
        let record =
            Record::parse(&text).map_err(|e| Error { doing: format!("{}: {}", path.display(), e.doing), ..e })?;
        let file = File::options().append(true).open(path).map_err(|e| Error::io(doing(), e))?;
        file.set_len(whole as u64).map_err(|e| Error::io(doing(), e))?;
        Ok((RecordWriter::append_to(file, path), record))
    }

    /// Goes on in an open file.
    fn append_to(file: File, path: &Path) -> RecordWriter {
        let good = file.metadata().map_or(0, |m| m.len());
        RecordWriter { path: path.to_owned(), file, good, synced: false, line: Vec::new() }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one sample.
    pub fn sample(&mut self, sample: &Sample) -> Result<()> {
        self.line(sample)
    }

    /// Appends one note.
    pub fn note(&mut self, note: &Note) -> Result<()> {
        self.line(note)
    }

    /// Waits until all of it is on the disk: at the end of a round.
    pub fn sync(&mut self) -> Result<()> {
        if !self.synced {
            self.file.sync_data().or_else(not_a_file).map_err(|e| self.failed(e))?;
            self.synced = true;
        }
        Ok(())
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        self.line.clear();
        self.synced = false;
        serde_json::to_writer(&mut self.line, value).map_err(|e| self.failed(e.into()))?;
        self.line.push(b'\n');
        if let Err(e) = self.file.write_all(&self.line) {
            // A disk that fills up takes the first part of a line: take it back.
            let _ = self.file.set_len(self.good).and_then(|()| self.file.rewind());
            return Err(self.failed(e));
        }
        self.good += self.line.len() as u64;
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> Error {
        let failed = Error::io(format!("writing the record {}", self.path.display()), error);
        failed.hint("the rounds before are kept; free some space and run again")
    }
}

/// A pipe or a device cannot be synced (EINVAL), and need not.
fn not_a_file(error: std::io::Error) -> std::io::Result<()> {
    if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::measure::campaign::tests::{header, sample};
    use crate::measure::record::Outcome;

    #[test]
    fn a_record_is_a_header_and_a_line_a_sample() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let mut writer = RecordWriter::create(&path, &header(), Existing::Refuse).unwrap();
        writer.sample(&sample()).unwrap();
        writer.sync().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(serde_json::from_str::<Header>(lines[0]).unwrap(), header());
        assert_eq!(serde_json::from_str::<Sample>(lines[1]).unwrap(), sample());
        assert_eq!((lines.len(), text.ends_with('\n')), (2, true));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_record_is_never_overwritten_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        std::fs::write(&path, "precious").unwrap();
        assert!(RecordWriter::create(&path, &header(), Existing::Refuse).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        RecordWriter::create(&path, &header(), Existing::Replace).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("{\"schema\""));
    }

    /// Cut at any byte, a record is gone on with after its last whole line.
    #[test]
    fn a_record_is_reopened_behind_its_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let failed = || Sample { outcome: Outcome::Failed("stürbt".into()), ..sample() };
        let mut writer = RecordWriter::create(&path, &header(), Existing::Refuse).unwrap();
        (0..3).for_each(|_| writer.sample(&failed()).unwrap());
        let whole = std::fs::read(&path).unwrap();
        let first = whole.iter().position(|&b| b == b'\n').unwrap() + 1;
        for cut in first..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut writer, record) = RecordWriter::reopen(&path).unwrap();
            let lines = whole[first..cut].iter().filter(|&&b| b == b'\n').count();
            assert_eq!((record.samples.len(), record.dropped.len()), (lines, 0));
            writer.sample(&failed()).unwrap();
            let again = std::fs::read(&path).unwrap();
            let line = &whole[first..first + (whole.len() - first) / 3];
            assert_eq!(again, [&whole[..first], &line.repeat(lines + 1)].concat(), "cut at {cut}");
        }
    }

    #[test]
    fn a_full_disk_is_the_machines_fault() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let e = RecordWriter::append_to(file, Path::new("r.jsonl")).sample(&sample()).unwrap_err();
        assert_eq!(e.kind, Kind::Machine);
        assert!(e.to_string().contains("r.jsonl"));
    }
}
