//! Patched objects and archives, read again and held against the pristine ones.

use std::collections::BTreeMap;

use goblin::archive::Archive;
use goblin::container::{Container, Ctx};
use goblin::elf::{Elf, SectionHeader};

use crate::variant::patch::Edit;

/// Holds a patched object against the pristine one: everything but the edits must be the same, byte for byte; an
/// edited section is its old content, then the pad. The error names section and check.
pub fn patched(pristine: &[u8], patched: &[u8], edits: &BTreeMap<usize, Edit>) -> Result<(), String> {
    let old = headers(pristine).map_err(|e| format!("the pristine object: {e}"))?;
    let new = headers(patched).map_err(|e| format!("the patched object: {e}"))?;
    if old.len() != new.len() {
        return Err("the number of sections changed".into());
    }
    if pristine.get(..64) != patched.get(..64) {
        return Err("the ELF header changed".into());
    }
    for (i, (was, is)) in old.iter().zip(&new).enumerate() {
        let edit = edits.get(&i).copied().unwrap_or_default();
        section(pristine, patched, was, is, edit).map_err(|why| {
            let whole = Elf::parse(pristine).ok();
            let name = whole.as_ref().and_then(|elf| elf.shdr_strtab.get_at(was.sh_name));
            format!("section {i} ({}): {why}", name.unwrap_or("?"))
        })?;
    }
    Ok(())
}

/// The section headers alone: symbols and relocations are content, which is compared as bytes.
fn headers(bytes: &[u8]) -> goblin::error::Result<Vec<SectionHeader>> {
    let header = Elf::parse_header(bytes)?;
    let container = if header.e_ident.get(4) == Some(&goblin::elf::header::ELFCLASS64) {
        Container::Big
    } else {
        Container::Little
    };
    let ctx = Ctx::new(container, header.endianness()?);
    SectionHeader::parse(bytes, header.e_shoff as usize, header.e_shnum as usize, ctx)
}

fn section(pristine: &[u8], patched: &[u8], was: &SectionHeader, is: &SectionHeader, edit: Edit) -> Result<(), String> {
    let rest = |s: &SectionHeader| (s.sh_name, s.sh_type, s.sh_flags, s.sh_addr, s.sh_link, s.sh_info, s.sh_entsize);
    if rest(was) != rest(is) {
        return Err("its header changed beyond size, offset and alignment".into());
    }
    if is.sh_addralign != was.sh_addralign.max(edit.align.unwrap_or(0)) {
        return Err(format!("its alignment became {}", is.sh_addralign));
    }
    if Some(is.sh_size) != was.sh_size.checked_add(edit.pad) {
        return Err(format!("its size became {}", is.sh_size));
    }
    if was.sh_type == goblin::elf::section_header::SHT_NOBITS {
        return Ok(());
    }
    let before = content(pristine, was).ok_or("its old content leaves the file")?;
    let after = content(patched, is).ok_or("its new content leaves the file")?;
    match after.split_at_checked(before.len()) {
        Some((same, _)) if same == before => Ok(()),
        _ => Err("its content changed".into()),
    }
}

fn content<'a>(bytes: &'a [u8], s: &SectionHeader) -> Option<&'a [u8]> {
    let from = usize::try_from(s.sh_offset).ok()?;
    bytes.get(from..from.checked_add(usize::try_from(s.sh_size).ok()?)?)
}

/// Holds a rebuilt archive against the pristine one: the same members in the same order, and a symbol index that sends
/// every symbol to the member it was sent to.
pub fn archive(pristine: &[u8], rebuilt: &[u8]) -> Result<(), String> {
    let old = Archive::parse(pristine).map_err(|e| format!("the pristine archive: {e}"))?;
    let new = Archive::parse(rebuilt).map_err(|e| format!("the rebuilt archive: {e}"))?;
    let (old, new) = (old.summarize(), new.summarize());
    if old.len() != new.len() {
        return Err("the number of members changed".into());
    }
    for ((was, _, symbols), (is, _, now)) in old.iter().zip(&new) {
        if was != is {
            return Err(format!("the member {was} became {is}"));
        }
        if symbols != now {
            return Err(format!("the symbol index of {was} changed"));
        }
    }
    Ok(())
}
