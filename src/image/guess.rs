//! What a file that is not ELF looks like, and what to do with it: the first bytes usually say.

/// A description ("a gzip file") and the next thing to try.
pub(super) struct Guess {
    pub what: &'static str,
    pub hint: Option<&'static str>,
}

const BY_MAGIC: &[(&[u8], &str, Option<&str>)] = &[
    (b"\x1f\x8b", "a gzip file", Some("gunzip it first")),
    (b"\xfd7zXZ\0", "an xz file", Some("xz -d it first")),
    (b"\x28\xb5\x2f\xfd", "a zstd file", Some("zstd -d it first")),
    (b"BZh", "a bzip2 file", Some("bunzip2 it first")),
    (b"\x02\x21\x4c\x18", "an lz4 file", Some("lz4 -d it first")),
    (b"\x04\x22\x4d\x18", "an lz4 file", Some("lz4 -d it first")),
    (b"!<arch>\n", "a static archive", Some("`ar x` it and name one object, or name the linked file")),
    (b"!<thin>\n", "a thin archive", Some("name one of its objects, or the linked file")),
    (b"BC\xc0\xde", "LLVM bitcode", Some("name the linked file: bitcode has no layout yet")),
    (b"\xde\xc0\x17\x0b", "LLVM bitcode", Some("name the linked file: bitcode has no layout yet")),
    (b"\xcf\xfa\xed\xfe", "a Mach-O file", None),
    (b"\xca\xfe\xba\xbe", "a Mach-O file or Java class", None),
    (b"\0asm", "a WebAssembly module", None),
    (b"#!", "a script", Some("name the program that it starts")),
];

/// Reads only the first bytes.
pub(super) fn guess(bytes: &[u8]) -> Guess {
    // Linux x86 boot protocol: "HdrS" at 0x202.
    if bytes.get(0x202..0x206) == Some(b"HdrS") {
        return Guess { what: "a compressed kernel (bzImage)", hint: Some("name the vmlinux it was made from") };
    }
    for (magic, what, hint) in BY_MAGIC {
        if bytes.starts_with(magic) {
            return Guess { what, hint: *hint };
        }
    }
    if bytes.starts_with(b"MZ") {
        return Guess { what: "a PE or EFI file", hint: Some("for a kernel, name the vmlinux it was made from") };
    }
    let head = bytes.get(..bytes.len().min(256)).unwrap_or_default();
    if !head.is_empty() && head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e)) {
        return Guess { what: "a text file", hint: None };
    }
    Guess { what: "no format known here", hint: None }
}
