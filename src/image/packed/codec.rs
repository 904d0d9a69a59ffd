//! The compressions that kernels are shipped in, each by its own crate; only the frames of lzop and of old lz4, which no
//! crate reads, are taken apart here.

use std::io::{self, Read};

/// One compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Gzip,
    Xz,
    Zstd,
    Bzip2,
    Lzma,
    Lzo,
    /// The frame of `lz4 -l`, the kernel's.
    Lz4,
}

const MAGICS: &[(&[u8], Codec)] = &[
    (b"\x1f\x8b\x08", Codec::Gzip),
    (b"\xfd7zXZ\0", Codec::Xz),
    (b"\x28\xb5\x2f\xfd", Codec::Zstd),
    (b"BZh", Codec::Bzip2),
    (LZOP, Codec::Lzo),
    (b"\x02\x21\x4c\x18", Codec::Lz4),
];

const LZOP: &[u8] = b"\x89LZO\0\r\n\x1a\n";

/// Why nothing came out.
#[derive(Debug)]
pub(super) enum Failure {
    /// More than this many bytes would come out.
    Larger(u64),
    Damaged(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Damaged(error)
    }
}

impl Codec {
    /// By the first bytes.
    pub(super) fn of(bytes: &[u8]) -> Option<Codec> {
        let by_magic = MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, codec)| *codec);
        by_magic.or_else(|| is_lzma(bytes).then_some(Codec::Lzma))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Codec::Gzip => "gzip",
            Codec::Xz => "xz",
            Codec::Zstd => "zstd",
            Codec::Bzip2 => "bzip2",
            Codec::Lzma => "lzma",
            Codec::Lzo => "lzo",
            Codec::Lz4 => "lz4",
        }
    }

    /// All of `bytes`, decompressed: at most `limit` bytes, whatever a header promises.
    pub(super) fn decode(self, bytes: &[u8], limit: u64) -> Result<Vec<u8>, Failure> {
        let mut out = Out { bytes: Vec::new(), limit };
        match self {
            Codec::Gzip => gzip(bytes, &mut out)?,
            Codec::Xz => out.drain(lzma_rust2::XzReader::new_mem_limit(bytes, true, DICTIONARY_KIB))?,
            Codec::Zstd => zstd(bytes, &mut out)?,
            Codec::Bzip2 => out.drain(bzip2::read::MultiBzDecoder::new(bytes))?,
            Codec::Lzma => out.drain(lzma_rust2::LzmaReader::new_mem_limit(bytes, DICTIONARY_KIB, None)?)?,
            Codec::Lzo => lzop(Cursor(bytes), &mut out)?,
            Codec::Lz4 => lz4_legacy(Cursor(bytes), &mut out)?,
        }
        Ok(out.bytes)
    }
}

/// What a decoder may keep of its output. Kernels are compressed with dictionaries of up to 128 MiB.
const DICTIONARY_KIB: u32 = 512 << 10;

/// A stream of lzma alone has no magic; its header is what the tools write: properties 0x5d, a dictionary of whole
/// 64 KiB, and an unknown or a sane length.
fn is_lzma(bytes: &[u8]) -> bool {
    let (Some([0x5d, 0, 0, a, b]), Some(size)) = (bytes.first_chunk(), bytes.get(5..13)) else { return false };
    let size = size.iter().rev().fold(0, |n: u64, b| n << 8 | u64::from(*b));
    (*a, *b) != (0, 0) && (size == u64::MAX || size < 1 << 40)
}

/// What came out so far, and how much may.
struct Out {
    bytes: Vec<u8>,
    limit: u64,
}

impl Out {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.bytes.len() as u64)
    }

    fn drain(&mut self, reader: impl Read) -> Result<(), Failure> {
        let left = self.left();
        let read = reader.take(left.saturating_add(1)).read_to_end(&mut self.bytes)?;
        if read as u64 > left { Err(Failure::Larger(self.limit)) } else { Ok(()) }
    }

    /// Room for `size` more bytes, to be filled by `fill`, which says how many it wrote.
    fn block(&mut self, size: u64, fill: impl FnOnce(&mut [u8]) -> Result<usize, String>) -> Result<(), Failure> {
        let start = self.bytes.len();
        let end = start.saturating_add(usize::try_from(size.min(self.left())).unwrap_or(usize::MAX));
        self.bytes.resize(end, 0);
        let room = self.bytes.get_mut(start..).unwrap_or_default();
        let full = (room.len() as u64) < size;
        let written = fill(room).map_err(|e| if full { Failure::Larger(self.limit) } else { damaged(e).into() })?;
        self.bytes.truncate(start.saturating_add(written));
        Ok(())
    }
}

fn damaged(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// Zeros may follow (padding); anything else is another member, or damage.
fn gzip(mut bytes: &[u8], out: &mut Out) -> Result<(), Failure> {
    while bytes.iter().any(|b| *b != 0) {
        let mut member = flate2::bufread::GzDecoder::new(bytes);
        out.drain(&mut member)?;
        bytes = member.into_inner();
    }
    Ok(())
}

fn zstd(mut bytes: &[u8], out: &mut Out) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let odd = |e: ruzstd::decoding::errors::FrameDecoderError| damaged(e.to_string());
        let mut frame = ruzstd::decoding::StreamingDecoder::new(&mut bytes).map_err(odd)?;
        out.drain(&mut frame)?;
        let decoder = frame.into_frame_decoder();
        if let Some(want) = decoder.get_checksum_from_data()
            && decoder.get_calculated_checksum() != Some(want)
        {
            return Err(damaged("its checksum does not match").into());
        }
    }
    Ok(())
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> io::Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = tail;
        Ok(*head)
    }

    fn big(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }
}

/// What one block of the old frame holds at most (lz4's own `LEGACY_BLOCKSIZE`).
const LZ4_BLOCK: u64 = 8 << 20;

/// Blocks, each behind its length, to the end; a new frame may begin in between.
fn lz4_legacy(mut from: Cursor<'_>, out: &mut Out) -> Result<(), Failure> {
    let magic: [u8; 4] = from.array()?;
    while !from.0.is_empty() {
        let head: [u8; 4] = from.array()?;
        if head == magic {
            continue;
        }
        let length = u32::from_le_bytes(head);
        let block = from.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        out.block(LZ4_BLOCK, |room| lz4_flex::block::decompress_into(block, room).map_err(|e| e.to_string()))?;
    }
    Ok(())
}

/// What one block of lzop holds at most (its `MAX_BLOCK_SIZE`).
const LZO_BLOCK: u32 = 64 << 20;

/// A header, then blocks: two lengths, checksums as the flags say, bytes; a length of zero ends it.
fn lzop(mut from: Cursor<'_>, out: &mut Out) -> Result<(), Failure> {
    const ADLER_OF_OUTPUT: u32 = 1;
    const ADLER_OF_INPUT: u32 = 1 << 1;
    const EXTRA: u32 = 1 << 6;
    const CRC_OF_OUTPUT: u32 = 1 << 8;
    const CRC_OF_INPUT: u32 = 1 << 9;
    const FILTER: u32 = 1 << 11;
    from.take(LZOP.len())?;
    let version = u16::from_be_bytes(from.array()?);
    from.take(2)?;
    // The version needed to extract, and the level, came with 0.940.
    let newer = version >= 0x0940;
    from.take(if newer { 2 } else { 0 })?;
    let [method] = from.array()?;
    if !(1..=3).contains(&method) {
        return Err(damaged(format!("method {method} is not one of lzop's")).into());
    }
    from.take(usize::from(newer))?;
    let flags = from.big()?;
    if flags & FILTER != 0 {
        return Err(damaged("filters are not known here").into());
    }
    // Mode, time (its upper half since 0.940), name, checksum.
    from.take(if newer { 12 } else { 8 })?;
    let [name] = from.array()?;
    from.take(usize::from(name))?;
    from.take(4)?;
    if flags & EXTRA != 0 {
        let length = from.big()?;
        from.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        from.take(4)?;
    }
    let words = |of: [u32; 2]| of.iter().filter(|flag| flags & **flag != 0).count() * 4;
    loop {
        let size = from.big()?;
        if size == 0 {
            return Ok(());
        }
        let packed = from.big()?;
        if size > LZO_BLOCK || packed > size {
            return Err(damaged(format!("a block of {size} bytes in {packed}")).into());
        }
        from.take(words([ADLER_OF_OUTPUT, CRC_OF_OUTPUT]))?;
        // What does not shrink is stored, and has no second checksum.
        from.take(if packed < size { words([ADLER_OF_INPUT, CRC_OF_INPUT]) } else { 0 })?;
        let block = from.take(usize::try_from(packed).unwrap_or(usize::MAX))?;
        if u64::from(size) > out.left() {
            return Err(Failure::Larger(out.limit));
        }
        if packed == size {
            out.bytes.extend_from_slice(block);
            continue;
        }
        out.block(u64::from(size), |room| match lzokay::decompress::decompress(block, room) {
            Ok(written) if written == size as usize => Ok(written),
            Ok(written) => Err(format!("{written} bytes came out of a block of {size}")),
            Err(error) => Err(error.to_string()),
        })?;
    }
}
