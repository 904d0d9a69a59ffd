//! Kernels as they are shipped, made here: a kernel of some bytes, its own table of symbols, every wrapping around it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use straddle::image::{Class, Home, Image, LARGEST, List, Machine, Sizes, SymbolKind, SymbolsFrom, unpack};
use straddle::objects::Objects;
use straddle::open::Bytes;
use straddle::rules::{self, Scan};

/// The parts of the kernel of tests/fuzz/seeds/kallsyms, built once.
struct Kernel {
    whole: Vec<u8>,
    stripped: Vec<u8>,
    /// What nm prints of it: its System.map.
    map: String,
    /// For arm64, as its loader gets it.
    raw: Vec<u8>,
}

static KERNEL: LazyLock<Kernel> = LazyLock::new(|| {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/kallsyms");
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "set -e
        gcc -c {0}/kernel.s -o x86.o
        ld --no-warn-rwx-segments -T {0}/kernel.ld x86.o -o whole
        strip -s whole -o stripped
        nm -n whole | grep -v ' a ' >map
        clang --target=aarch64-linux-gnu -Wa,-defsym,ARM64=1 -c {0}/kernel.s -o arm64.o
        ld.lld -T {0}/kernel.ld --oformat=binary arm64.o -o raw",
        seeds.display()
    );
    let done = Command::new("sh").args(["-c", &script]).current_dir(&folder).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let read = |file: &str| fs::read(folder.path().join(file)).unwrap();
    let map = String::from_utf8(read("map")).unwrap();
    Kernel { whole: read("whole"), stripped: read("stripped"), map, raw: read("raw") }
});

fn scan(image: &Image<'_>) -> Scan {
    rules::scan(image, None, &Default::default()).unwrap()
}

/// What both kinds of list must tell of the kernel: where everything is, and what follows from it.
fn tells_all(image: &Image<'_>, from: SymbolsFrom) {
    assert_eq!((image.symbols_from, image.sizes), (from, Sizes::UpTo));
    let objects = Objects::data(image);
    let found: Vec<_> = objects.list.iter().map(|o| (o.name, o.span.size, o.span.start.0 % 64, o.aliases)).collect();
    // The last reaches to the end of its section.
    let data = [("jiffies", 0x38, 0, 1), ("tasklist_lock", 16, 0x38, 0), ("nr_files", 0x38, 8, 0)];
    assert_eq!(found[found.len().saturating_sub(3)..], data);
    let functions = Objects::functions(image);
    assert_eq!(functions.list.iter().map(|o| (o.name, o.span.size)).collect::<Vec<_>>(), [("work", 16)]);
    let scan = scan(image);
    let findings: Vec<_> = scan.findings.iter().map(|f| (f.rule, f.subject.name.as_str())).collect();
    assert!(findings.contains(&("straddle", "tasklist_lock")), "{findings:?}");
    // nr_files surely shares no line with tasklist_lock, which may end before it.
    assert!(findings.iter().all(|(rule, name)| *rule != "shared-line" || *name != "nr_files"), "{findings:?}");
    let json = serde_json::to_value(&scan).unwrap();
    assert_eq!(json["image"]["sizes"], "up-to");
    let mut out = Vec::new();
    straddle::report::table::write(&straddle::report::scan::page(&scan, straddle::report::page::View::All), &mut out)
        .unwrap();
    let table = String::from_utf8(out).unwrap();
    assert!(table.contains("size (bytes, up to)") && table.contains("may straddle"), "{table}");
}

#[test]
fn a_stripped_kernel_names_itself() {
    let kernel = &*KERNEL;
    let whole = Image::parse(&kernel.whole, "whole").unwrap();
    assert_eq!((whole.symbols_from, whole.sizes), (SymbolsFrom::Symtab, Sizes::Exact));
    let image = Image::parse(&kernel.stripped, "stripped").unwrap();
    tells_all(&image, SymbolsFrom::Kallsyms);
    assert_eq!(image.problems, Vec::<String>::new());
    // By another reader: nm, of the file before it was stripped.
    let map = List::parse(&kernel.map, "map", SymbolsFrom::SystemMap).unwrap();
    let map: BTreeMap<&str, u64> = map.symbols.iter().map(|s| (s.name.as_ref(), s.address)).collect();
    assert_eq!(image.symbols.len(), 12);
    for symbol in &image.symbols {
        assert_eq!(map.get(symbol.name.as_ref()), Some(&symbol.value), "{}", symbol.name);
        assert!(matches!(symbol.home, Home::Section(_)) || symbol.kind == SymbolKind::Untyped, "{symbol:?}");
    }
    assert_eq!(serde_json::to_value(scan(&image).image.symbols_from).unwrap(), "kallsyms");
}

#[test]
fn a_memory_image_is_read_without_sections() {
    let image = Image::parse(&KERNEL.raw, "Image").unwrap();
    assert_eq!((image.machine.name().as_ref(), image.class), ("aarch64", Class::Elf64));
    tells_all(&image, SymbolsFrom::Kallsyms);
    assert!(image.problems[0].contains("no section table"), "{:?}", image.problems);
    let objects = Objects::data(&image);
    let jiffies = objects.list.iter().find(|o| o.name == "jiffies").unwrap();
    assert_eq!(jiffies.content(&image).unwrap()[..8], 1u64.to_le_bytes());
}

#[test]
fn a_list_names_what_a_kernel_does_not() {
    let kernel = &*KERNEL;
    // Without its last token, the table inside is none.
    let mut mute = kernel.stripped.clone();
    let at = mute.windows(3).rposition(|w| w == b"}\0~").unwrap();
    mute[at] = 0;
    let mut image = Image::parse(&mute, "mute").unwrap();
    assert_eq!(image.symbols_from, SymbolsFrom::None);
    let error = rules::scan(&image, None, &Default::default()).unwrap_err().to_string();
    assert!(error.contains("stripped") && error.contains("kallsyms") && error.contains("--system-map"), "{error}");
    image.take(List::parse(&kernel.map, "map", SymbolsFrom::SystemMap).unwrap()).unwrap();
    tells_all(&image, SymbolsFrom::SystemMap);

    let moved = kernel.map.replace("40 R linux_banner", "48 R linux_banner");
    assert_ne!(moved, kernel.map);
    let error = image.take(List::parse(&moved, "map", SymbolsFrom::SystemMap).unwrap()).unwrap_err();
    assert!(error.to_string().contains("another kernel"), "{error}");

    let mut whole = Image::parse(&kernel.whole, "whole").unwrap();
    whole.take(List::parse(&kernel.map, "map", SymbolsFrom::SystemMap).unwrap()).unwrap();
    assert_eq!((whole.symbols_from, whole.problems.len()), (SymbolsFrom::Symtab, 1));
}

#[test]
fn the_running_kernel_is_what_it_tells() {
    let of_modules = format!("{}ffffffffc0000000 t helper\t[some_module]\n", KERNEL.map);
    let list = List::parse(&of_modules, "/proc/kallsyms", SymbolsFrom::ProcKallsyms).unwrap();
    let image = Image::without_file(list, Machine::named("x86_64").unwrap(), "running").unwrap();
    tells_all(&image, SymbolsFrom::ProcKallsyms);
    assert_eq!(scan(&image).skipped["symbol of a module"], 1);
    assert!(image.problems[0].contains("no section table"), "{:?}", image.problems);

    let hidden: String = KERNEL.map.lines().map(|l| format!("0000000000000000{}\n", &l[16..])).collect();
    let cases = [
        (hidden.as_str(), "kptr_restrict"),
        ("ffffffffffffffff B The real System.map is elsewhere\n", "line 1 is not"),
        ("ffffffff81000000 T _text\nffffffff81000000 T\n", "line 2 is not"),
        ("+1 T _text\n", "line 1 is not"),
        ("", "no symbol"),
    ];
    for (text, want) in cases {
        let error = List::parse(text, "some/list", SymbolsFrom::ProcKallsyms).unwrap_err().to_string();
        assert!(error.contains(want) && error.contains("some/list") && !error.contains('\n'), "{want}: {error}");
    }
    let list = List::parse("ffffffff81000000 T main\n", "list", SymbolsFrom::ProcKallsyms).unwrap();
    let error = Image::without_file(list, Machine::named("x86_64").unwrap(), "running").unwrap_err();
    assert!(error.to_string().contains("labels"), "{error}");
}

/// How each compression is made, by the tool that kernels are built with.
const TOOLS: [(&str, &[&str]); 7] = [
    ("gzip", &["gzip", "-n"]),
    ("xz", &["xz", "--check=crc32", "--x86", "--lzma2=dict=1MiB"]),
    ("zstd", &["zstd", "-q", "-19"]),
    ("bzip2", &["bzip2"]),
    ("lzma", &["xz", "--format=lzma"]),
    ("lzo", &["lzop", "-9"]),
    ("lz4", &["lz4", "-l", "-q", "-9"]),
];

fn compress(tool: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(tool[0])
        .args(&tool[1..])
        .arg("-c")
        .stdin(Stdio::from(file_of(bytes)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{} is needed: {e}", tool[0]));
    let mut out = Vec::new();
    std::io::Read::read_to_end(child.stdout.as_mut().unwrap(), &mut out).unwrap();
    assert!(child.wait().unwrap().success());
    out
}

fn file_of(bytes: &[u8]) -> fs::File {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// A boot sector and one sector of setup; the payload begins 64 bytes behind them.
fn bzimage(payload: &[u8], appended: Option<u32>) -> Vec<u8> {
    let mut out = vec![0; 1024 + 64];
    let length = payload.len() + appended.map_or(0, |_| 4);
    out[0x1f1] = 1;
    out[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    out[0x202..0x206].copy_from_slice(b"HdrS");
    out[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
    out[0x248..0x24c].copy_from_slice(&64u32.to_le_bytes());
    out[0x24c..0x250].copy_from_slice(&(length as u32).to_le_bytes());
    out.extend(payload);
    out.extend(appended.map(u32::to_le_bytes).into_iter().flatten());
    out
}

fn zboot(payload: &[u8]) -> Vec<u8> {
    let mut out = b"MZ\0\0zimg".to_vec();
    out.extend([256u32.to_le_bytes(), (payload.len() as u32).to_le_bytes()].concat());
    out.resize(256, 0);
    out.extend(payload);
    out
}

fn unpacked(bytes: &[u8], limit: u64) -> Result<(Vec<u8>, Option<String>), String> {
    let done = unpack(Bytes::Owned(bytes.to_vec()), "some/file", limit).map_err(|e| e.to_string())?;
    Ok((done.bytes.to_vec(), done.packed))
}

#[test]
fn every_wrapping_is_taken_off() {
    let kernel = &KERNEL.stripped;
    // As on x86, relocations for another load address follow the file.
    let followed = [&kernel[..], &[7; 400]].concat();
    assert_eq!(unpacked(kernel, LARGEST), Ok((kernel.clone(), None)));
    for (name, tool) in TOOLS {
        let payload = compress(tool, &followed);
        let appended = (name != "gzip").then_some(followed.len() as u32);
        let wrapped = [
            (payload.clone(), name.to_string()),
            (bzimage(&payload, appended), format!("bzImage, {name}")),
            (zboot(&payload), format!("EFI zboot, {name}")),
        ];
        for (bytes, packed) in &wrapped {
            assert_eq!(unpacked(bytes, LARGEST), Ok((followed.clone(), Some(packed.clone()))), "{packed}");
            let error = unpacked(bytes, 100).unwrap_err();
            assert!(error.contains("more than 100 bytes"), "{packed}: {error}");
            // Cut anywhere it is an error, or fewer bytes (where a block of a bare file ends), never others.
            let step = (bytes.len() / 60).max(1);
            for end in (0..bytes.len()).step_by(step).chain(bytes.len().saturating_sub(24)..bytes.len()) {
                match unpacked(&bytes[..end], LARGEST) {
                    Ok((part, Some(_))) => assert!(
                        followed.starts_with(&part) && (part.len() < followed.len() || bytes.len() - end <= 8),
                        "{packed} cut at {end}"
                    ),
                    Ok((part, None)) => assert_eq!(part, bytes[..end], "{packed} cut at {end}"),
                    Err(error) => assert!(error.contains("some/file") && !error.contains('\n'), "{error}"),
                }
            }
        }
        if let Some(length) = appended {
            for (wrong, want) in [(length - 1, "more comes out than"), (length + 1, "that it promises")] {
                let error = unpacked(&bzimage(&payload, Some(wrong)), LARGEST).unwrap_err();
                assert!(error.contains(want), "{name}: {error}");
            }
        }
        let mut flipped = bzimage(&payload, appended);
        let at = 1024 + 64 + payload.len() / 2;
        flipped[at] ^= 0x55;
        // Where there is no checksum, other bytes may come out; they are then no kernel, or another one.
        if matches!(name, "gzip" | "xz" | "zstd" | "bzip2") {
            let error = unpacked(&flipped, LARGEST).unwrap_err();
            assert!(error.contains("damaged") || error.contains("promises"), "{name}: {error}");
        }
    }
}

#[test]
fn boot_headers_that_lie_are_told() {
    let payload = compress(TOOLS[0].1, b"no kernel at all");
    let image = bzimage(&payload, None);
    let mut old = image.clone();
    old[0x206] = 7;
    old[0x207] = 2;
    let mut far = image.clone();
    far[0x248..0x24c].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut unknown = image.clone();
    unknown[1024 + 64] = b'?';
    let nested = (0..6).fold(payload.clone(), |inner, _| compress(TOOLS[0].1, &inner));
    for (bytes, want) in [
        (&old, "boot protocol 2.07"),
        (&far, "cut short"),
        (&image[..0x240].to_vec(), "cut short"),
        (&unknown, "no way known here"),
        (&nested, "too many times"),
    ] {
        let error = unpacked(bytes, LARGEST).unwrap_err();
        assert!(error.contains(want), "{want}: {error}");
    }
    let (bytes, packed) = unpacked(&image, LARGEST).unwrap();
    assert_eq!(packed.as_deref(), Some("bzImage, gzip"));
    assert!(Image::parse(&bytes, "some/file").unwrap_err().to_string().contains("text file"));
}

/// The command itself: a packed kernel, and its twin of one moved word.
#[test]
fn the_commands_open_packed_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let length = Some(KERNEL.stripped.len() as u32);
    let vmlinuz = file("vmlinuz", &bzimage(&compress(TOOLS[1].1, &KERNEL.stripped), length));
    let raw = file("Image.gz", &compress(TOOLS[0].1, &KERNEL.raw));
    let map = file("System.map", KERNEL.map.as_bytes());
    let run = |arguments: &[&str]| {
        let out =
            Command::new(env!("CARGO_BIN_EXE_straddle")).args(arguments).args(["--format", "json"]).output().unwrap();
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()
    };
    let (vmlinuz, raw, map) = (vmlinuz.to_str().unwrap(), raw.to_str().unwrap(), map.to_str().unwrap());
    let of = |json: &serde_json::Value| {
        ["packed", "machine", "symbols_from"].map(|key| json["image"][key].as_str().unwrap_or("?").to_string())
    };
    assert_eq!(of(&run(&["scan", vmlinuz])), ["bzImage, xz", "x86_64", "kallsyms"]);
    assert_eq!(of(&run(&["scan", raw])), ["gzip", "aarch64", "kallsyms"]);
    assert_eq!(of(&run(&["scan", vmlinuz, "--system-map", map])), ["bzImage, xz", "x86_64", "system-map"]);
    let diff = run(&["diff", vmlinuz, vmlinuz]);
    assert_eq!(diff["data"]["moved"], 0);
    assert!(diff["problems"][0].as_str().unwrap().contains("without sizes"), "{}", diff["problems"]);
}

/// Both classes, both byte orders: what clang compiles for each machine is read as readelf reads it.
#[test]
fn objects_of_every_machine_are_read() {
    let source = "
        struct pair { long a, b; } pair = {1, 2};
        static char buffer[300]; char *use(void) { return buffer; }
        const short table[7] = {1};
        __attribute__((aligned(256))) long hot = 1;";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.c"), source).unwrap();
    for (target, machine, class, big_endian, line) in [
        ("i686-linux-gnu", "i386", Class::Elf32, false, 64),
        ("arm-linux-gnueabihf", "arm", Class::Elf32, false, 64),
        ("aarch64-linux-gnu", "aarch64", Class::Elf64, false, 64),
        ("riscv64-linux-gnu", "riscv", Class::Elf64, false, 64),
        ("powerpc64le-linux-gnu", "ppc64", Class::Elf64, false, 128),
        ("s390x-linux-gnu", "s390x", Class::Elf64, true, 256),
    ] {
        let target = format!("--target={target}");
        let clang = ["-c", "-O1", "-fdata-sections", target.as_str(), "a.c", "-o", "a.o"];
        assert!(Command::new("clang").args(clang).current_dir(&folder).status().unwrap().success(), "{machine}");
        let path = folder.path().join("a.o");
        let bytes = fs::read(&path).unwrap();
        let image = Image::parse(&bytes, "a.o").unwrap();
        let facts = (image.machine.name().into_owned(), image.class, image.big_endian, image.line_size().bytes());
        assert_eq!(facts, (machine.to_string(), class, big_endian, line));
        let readelf = Command::new("readelf").arg("-sW").arg(&path).output().unwrap();
        let text = String::from_utf8(readelf.stdout).unwrap();
        let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
        let mut want: Vec<(String, u64)> = words
            .filter(|w| w.len() == 8 && w[3] == "OBJECT")
            .map(|w| (w[7].to_string(), w[2].parse().unwrap()))
            .collect();
        let objects = Objects::data(&image);
        let mut ours: Vec<_> = objects.list.iter().map(|o| (o.name.to_string(), o.span.size)).collect();
        want.sort();
        ours.sort();
        assert_eq!(ours, want, "{machine}");
        assert_eq!(ours.len(), 4, "{machine}");
        let pair = objects.list.iter().find(|o| o.name == "pair").unwrap();
        assert_eq!(pair.span.size, 2 * class.pointer_size());
        let bytes = pair.content(&image).unwrap();
        let first = if big_endian { bytes[class.pointer_size() as usize - 1] } else { bytes[0] };
        assert_eq!(first, 1, "{machine}");
        assert_eq!(scan(&image).image.line_size, line);
    }
}
