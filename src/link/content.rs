//! What a file is, by its content: its form, its soname, whether it was compiled for link-time optimisation.

use object::read::archive::ArchiveFile;
use object::read::elf::{Dyn, FileHeader};
use object::{FileKind, Object, ObjectKind, ObjectSection, ObjectSymbol, SymbolKind, elf};

use crate::link::stored::Form;

/// The form of an input.
#[must_use]
pub fn form(bytes: &[u8]) -> Form {
    match FileKind::parse(bytes) {
        Ok(FileKind::Archive) => Form::Archive,
        Ok(FileKind::Elf32 | FileKind::Elf64) => match object::File::parse(bytes).map(|f| f.kind()) {
            Ok(ObjectKind::Relocatable) => Form::Object,
            Ok(ObjectKind::Dynamic) => Form::SharedObject,
            _ => Form::Other,
        },
        _ if bytes.starts_with(b"!<thin>\n") => Form::Archive,
        _ if bytes.starts_with(BITCODE) => Form::Object,
        _ if std::str::from_utf8(bytes).is_ok() => Form::Script,
        _ => Form::Other,
    }
}

/// LLVM's bitcode: `BC C0 DE`.
const BITCODE: &[u8] = b"BC\xC0\xDE";

/// Whether an object holds an intermediate language that the linker has still to compile: gcc's `.gnu.lto_*`, LLVM's
/// bitcode. Fat objects hold both; the linker's plugin takes the language, so they count.
#[must_use]
pub fn is_lto(bytes: &[u8]) -> bool {
    if bytes.starts_with(BITCODE) {
        return true;
    }
    let Ok(file) = object::File::parse(bytes) else { return false };
    file.sections().any(|s| s.name_bytes().is_ok_and(|n| n.starts_with(b".gnu.lto_")))
}

/// The members of an archive that [`is_lto`].
#[must_use]
pub fn lto_members(bytes: &[u8]) -> Vec<String> {
    let Ok(archive) = ArchiveFile::parse(bytes) else { return Vec::new() };
    let members = archive.members().flatten();
    let lto = members.filter(|m| m.data(bytes).is_ok_and(is_lto));
    lto.map(|m| String::from_utf8_lossy(m.name()).into_owned()).collect()
}

/// Whether an input is LLVM's bitcode, or an archive with such a member.
#[must_use]
pub fn holds_bitcode(bytes: &[u8]) -> bool {
    each_object(bytes).any(|object| object.starts_with(BITCODE))
}

/// Whether an object, a linked file or a member of an archive has a section whose name begins so.
#[must_use]
pub fn has_section(bytes: &[u8], name: &str) -> bool {
    let has = |object: &[u8]| {
        let file = object::File::parse(object).ok()?;
        file.sections().any(|s| s.name_bytes().is_ok_and(|n| n.starts_with(name.as_bytes()))).then_some(())
    };
    each_object(bytes).any(|object| has(object).is_some())
}

/// The members of an archive, or what is none itself.
fn each_object(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let archive = ArchiveFile::parse(bytes).ok();
    let itself = archive.is_none().then_some(bytes);
    let members = archive
        .into_iter()
        .flat_map(move |a| a.members().flatten().filter_map(|m| m.data(bytes).ok()).collect::<Vec<_>>());
    itself.into_iter().chain(members)
}

/// The source that an object was compiled from, as its first `STT_FILE` symbol names it.
#[must_use]
pub fn source(bytes: &[u8]) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let symbol = file.symbols().find(|s| s.kind() == SymbolKind::File)?;
    let name = String::from_utf8_lossy(symbol.name_bytes().ok()?).replace(char::is_control, "?");
    (!name.is_empty()).then_some(name)
}

/// Whether a shared object names itself.
#[must_use]
pub fn has_soname(bytes: &[u8]) -> bool {
    match FileKind::parse(bytes) {
        Ok(FileKind::Elf64) => soname_in::<elf::FileHeader64<object::Endianness>>(bytes),
        Ok(FileKind::Elf32) => soname_in::<elf::FileHeader32<object::Endianness>>(bytes),
        _ => false,
    }
}

fn soname_in<Elf: FileHeader<Endian = object::Endianness>>(bytes: &[u8]) -> bool {
    let read = || -> object::Result<bool> {
        let header = Elf::parse(bytes)?;
        let endian = header.endian()?;
        let Some((dynamic, _)) = header.sections(endian, bytes)?.dynamic(endian, bytes)? else { return Ok(false) };
        Ok(dynamic.iter().any(|d| d.d_tag(endian) == elf::DT_SONAME))
    };
    read().unwrap_or(false)
}

/// The build id's description bytes and where they lie in the file.
#[must_use]
pub fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    object::File::parse(bytes).ok()?.build_id().ok()?.map(<[u8]>::to_vec)
}

/// Who linked an ELF file, as far as it says so itself.
#[must_use]
pub fn linked_by(bytes: &[u8]) -> Option<&'static str> {
    let file = object::File::parse(bytes).ok()?;
    let comment = file.section_by_name(".comment").and_then(|s| s.data().ok()).unwrap_or_default();
    let says = |word: &[u8]| comment.windows(word.len()).any(|w| w == word);
    if says(b"Linker: LLD") {
        Some("lld")
    } else if says(b"mold ") {
        Some("mold")
    } else if file.section_by_name(".note.gnu.gold-version").is_some() {
        Some("gold")
    } else if file.section_by_name(".note.go.buildid").is_some() {
        Some("Go's own linker")
    } else {
        None
    }
}

/// `Some(true)` for a program or shared object, `Some(false)` for another ELF file, `None` for anything else.
#[must_use]
pub fn is_linked_elf(bytes: &[u8]) -> Option<bool> {
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    Some(object::File::parse(bytes).is_ok_and(|f| matches!(f.kind(), ObjectKind::Executable | ObjectKind::Dynamic)))
}
