//! Link maps → [`Landing`]: where every input section fell, and in which order.
//!
//! Input: the text that `ld -Map` writes (GNU dialect; others come with their linkers).

/// One input section in the linked file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The file as the map names it: an object, or the archive that holds `member`.
    pub file: String,
    pub member: Option<String>,
    /// The input section's name: `.data.rel.local`.
    pub section: String,
    /// Which of the sections of that name in that file and member, from 0, in the map's order.
    pub index: u32,
    /// The output section that took it in: `.data`.
    pub output: String,
    pub address: u64,
    /// In bytes, in the linked file (merged strings shrink).
    pub size: u64,
}

/// Where everything fell, in address order within each output section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landing {
    pub placed: Vec<Placed>,
}
