//! The headers in front of a compressed kernel, and where its payload lies.

use super::codec::Codec;

/// Compressed data, inside a boot wrapper or a file of their own.
pub(super) struct Payload<'a> {
    /// Of the wrapper; empty for a file.
    pub container: &'static str,
    pub data: &'a [u8],
    /// The kernel's build appends the length of what comes out, but to gzip, which has it.
    counted: bool,
}

impl<'a> Payload<'a> {
    pub(super) fn file(bytes: &'a [u8]) -> Payload<'a> {
        Payload { container: "", data: bytes, counted: false }
    }

    /// The compressed bytes alone, and how many come out, where that is written behind them.
    pub(super) fn split(&self, codec: Codec) -> Result<(&'a [u8], Option<u64>), String> {
        if !self.counted || codec == Codec::Gzip {
            return Ok((self.data, None));
        }
        let (data, length) = self.data.split_last_chunk().ok_or("its payload is cut short")?;
        Ok((data, Some(u64::from(u32::from_le_bytes(*length)))))
    }
}

/// The payload of a boot wrapper; `None`: these bytes are none. An error carries the wrapper's name.
pub(super) fn payload(bytes: &[u8]) -> Option<Result<Payload<'_>, (&'static str, String)>> {
    if is_bzimage(bytes) {
        Some(bzimage(bytes).map_err(|problem| ("bzImage", problem)))
    } else if bytes.starts_with(b"MZ") && bytes.get(4..8) == Some(b"zimg") {
        Some(zboot(bytes).map_err(|problem| ("EFI zboot", problem)))
    } else {
        None
    }
}

/// The kernel's Documentation/arch/x86/boot.rst: "HdrS" at 0x202, behind the boot sector's signature.
fn is_bzimage(bytes: &[u8]) -> bool {
    bytes.get(0x1fe..0x200) == Some(&[0x55, 0xaa]) && bytes.get(0x202..0x206) == Some(b"HdrS")
}

fn bzimage(bytes: &[u8]) -> Result<Payload<'_>, String> {
    let cut = || "its header is cut short".to_string();
    let byte = bytes.get(0x1f1).ok_or_else(cut)?;
    let version = half(bytes, 0x206).ok_or_else(cut)?;
    if version < 0x0208 {
        let (major, minor) = (version >> 8, version & 0xff);
        return Err(format!("boot protocol {major}.{minor:02} does not tell where the kernel lies (since 2.08)"));
    }
    let (offset, length) = (word(bytes, 0x248).ok_or_else(cut)?, word(bytes, 0x24c).ok_or_else(cut)?);
    // 0 means 4, for very old loaders.
    let sectors = if *byte == 0 { 4 } else { u64::from(*byte) };
    let data = part(bytes, (sectors + 1) * 512 + offset, length)?;
    Ok(Payload { container: "bzImage", data, counted: true })
}

/// drivers/firmware/efi/libstub/zboot-header.S. The payload's length leaves out the length appended to it.
fn zboot(bytes: &[u8]) -> Result<Payload<'_>, String> {
    let cut = || "its header is cut short".to_string();
    let (offset, length) = (word(bytes, 8).ok_or_else(cut)?, word(bytes, 12).ok_or_else(cut)?);
    Ok(Payload { container: "EFI zboot", data: part(bytes, offset, length)?, counted: false })
}

fn part(bytes: &[u8], start: u64, length: u64) -> Result<&[u8], String> {
    let end = start.saturating_add(length);
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    range
        .and_then(|(start, end)| bytes.get(start..end))
        .ok_or_else(|| format!("it is cut short: its payload ends at {end:#x}, the file at {:#x}", bytes.len()))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?)))
}
