//! Every compiler × language × version of DWARF × form of debug information × machine: what straddle tells of every type
//! and of every global, against the tools that others wrote. The matrix is printed, and kept in [`TABLE`], which
//! scripts/check.sh shows. Where the environment variable `CI` is set, a cell that a missing tool skips fails the test.

mod dies;
mod pahole;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use rayon::prelude::*;
use straddle::image::Image;
use straddle::objects::Objects;
use straddle::rules::types::{TypeAsk, types};
use straddle::types::{DebugSections, Types};

use crate::types::open;
use dies::Dies;

/// Below the folder for what tests leave.
const TABLE: &str = "oracles.txt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    Cpp,
    Rust,
}

struct Machine {
    name: &'static str,
    /// What Debian calls its tools; the tools of x86-64 make i386, too.
    tools: &'static str,
    flags: &'static [&'static str],
    linker: &'static [&'static str],
    clang: &'static str,
    rust: &'static str,
    pointer: u64,
    big_endian: bool,
}

const MACHINES: [Machine; 4] = [
    Machine {
        name: "x86-64",
        tools: "",
        flags: &[],
        linker: &["ld"],
        clang: "x86_64-linux-gnu",
        rust: "x86_64-unknown-linux-gnu",
        pointer: 8,
        big_endian: false,
    },
    Machine {
        name: "i386",
        tools: "",
        flags: &["-m32"],
        linker: &["ld", "-m", "elf_i386"],
        clang: "i686-linux-gnu",
        rust: "i686-unknown-linux-gnu",
        pointer: 4,
        big_endian: false,
    },
    Machine {
        name: "arm64",
        tools: "aarch64-linux-gnu-",
        flags: &[],
        linker: &["aarch64-linux-gnu-ld"],
        clang: "aarch64-linux-gnu",
        rust: "aarch64-unknown-linux-gnu",
        pointer: 8,
        big_endian: false,
    },
    Machine {
        name: "s390x",
        tools: "s390x-linux-gnu-",
        flags: &[],
        linker: &["s390x-linux-gnu-ld"],
        clang: "s390x-linux-gnu",
        rust: "s390x-unknown-linux-gnu",
        pointer: 8,
        big_endian: true,
    },
];

const COMPILERS: [&str; 3] = ["gcc", "clang", "rustc"];
/// Each with its name, and how types begin that must be in every cell.
const LANGUAGES: [(Language, &str, &[&str]); 3] = [
    (Language::C, "C", &["whole", "bits", "tight", "both", "node", "nameless", "either_t"]),
    (Language::Cpp, "C++", &["db::Derived", "db::Derived::Inner", "db::Shard<long", "db::Holder<char", "Local"]),
    (Language::Rust, "Rust", &["cells::Whole", "cells::inner::Shape", "cells::inner::Coded", "cells::inner::Bits"]),
];
const VERSIONS: [u8; 2] = [4, 5];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Compressed,
    Split,
    Dwz,
}

const FORMS: [(Form, &str); 4] =
    [(Form::Plain, "plain"), (Form::Compressed, "compressed"), (Form::Split, "split"), (Form::Dwz, "dwz")];

/// Cells that cannot be, and why.
fn impossible(compiler: &str, language: Language, version: u8, form: Form) -> Option<&'static str> {
    match (compiler, language) {
        ("rustc", Language::C | Language::Cpp) => return Some("rustc compiles Rust alone"),
        ("gcc" | "clang", Language::Rust) => return Some("no compiler of Rust"),
        _ => {}
    }
    let llvm = matches!(compiler, "clang" | "rustc");
    (llvm && version == 5 && form == Form::Dwz).then_some("dwz refuses .debug_addr, which LLVM writes for DWARF 5")
}

/// A type's members, flattened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Layout {
    name: String,
    /// In bytes; `None` where it is not told.
    size: Option<u64>,
    /// In order.
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    path: String,
    /// The first bit, from the start of the type.
    at: u64,
    extent: Extent,
}

/// How much a member takes; nothing where it has no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    Bytes(u64),
    Bits(u64),
}

/// What became of a cell.
#[derive(Clone, Debug)]
enum Mark {
    Judged {
        by: &'static str,
        members: usize,
        globals: usize,
    },
    Impossible(&'static str),
    /// For want of a tool.
    Skipped(String),
    Differs(Vec<String>),
}

/// A tool that is not there, by what it is called.
#[derive(Clone, Debug)]
struct Missing(String);

/// What a tool prints.
fn tool(folder: &Path, program: &str, arguments: &[&str]) -> Result<String, Missing> {
    let mut command = Command::new(program);
    // For `no_core`, see rust.rs.
    command.args(arguments).current_dir(folder).env("RUSTC_BOOTSTRAP", "1");
    match command.output() {
        Ok(out) if out.status.success() => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        // `core` is part of the compiler: rust.rs fits some versions of it.
        Ok(out) if program == "rustc" => {
            let error = String::from_utf8_lossy(&out.stderr);
            let first = error.lines().find(|l| l.starts_with("error")).unwrap_or("it says nothing");
            Err(Missing(format!("core for this rustc: {first}")))
        }
        Ok(out) => panic!("{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stderr)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Missing(program.to_string())),
        Err(error) => panic!("{program}: {error}"),
    }
}

/// Cells of one compiler, language, version and machine, which share objects.
struct Group {
    compiler: &'static str,
    language: Language,
    version: u8,
    machine: &'static Machine,
}

impl Group {
    fn cells(&self) -> Vec<Mark> {
        let folder = tempfile::tempdir().unwrap();
        let objects = self.compile(folder.path(), false);
        let judged = |(form, _): (Form, &str)| {
            if let Some(why) = impossible(self.compiler, self.language, self.version, form) {
                return Mark::Impossible(why);
            }
            let cell = objects.clone().and_then(|objects| self.cell(folder.path(), &objects, form));
            cell.unwrap_or_else(|Missing(tool)| Mark::Skipped(tool))
        };
        FORMS.into_iter().map(judged).collect()
    }

    /// Two objects.
    fn compile(&self, folder: &Path, split: bool) -> Result<[String; 2], Missing> {
        let (name, source) = match self.language {
            Language::C => ("a.c", include_str!("c.c")),
            Language::Cpp => ("a.cc", include_str!("cpp.cc")),
            Language::Rust => ("a.rs", include_str!("rust.rs")),
        };
        std::fs::write(folder.join(name), source).unwrap();
        let version = self.version;
        let one = |second: bool| {
            let object = format!("{}{}.o", if split { "split" } else { "whole" }, u8::from(second));
            let mut arguments: Vec<String> = match self.language {
                Language::Rust => {
                    let target = format!("--target={}", self.machine.rust);
                    let dwarf = format!("-Cdwarf-version={version}");
                    let fixed = ["--edition=2024", "--crate-name=cells", "--emit=obj", "-g"];
                    let mut all = [&fixed.map(str::to_string)[..], &[dwarf, target]].concat();
                    // The .dwo file is a temporary one.
                    let splits = ["-Csplit-debuginfo=unpacked", "-Csave-temps"].map(str::to_string);
                    all.extend(splits.into_iter().filter(|_| split));
                    all
                }
                _ => {
                    let fixed = ["-c", "-ffreestanding", "-fno-pie", "-fno-asynchronous-unwind-tables"];
                    let mut all = [&fixed.map(str::to_string)[..], &[format!("-gdwarf-{version}")]].concat();
                    all.extend(self.machine.flags.iter().map(|f| f.to_string()));
                    all.extend((self.language == Language::Cpp).then(|| "-fno-rtti".to_string()));
                    // Without it, clang leaves out types that another unit may tell.
                    all.extend((self.compiler == "clang").then(|| "-fstandalone-debug".to_string()));
                    all.extend((self.compiler == "clang").then(|| format!("--target={}", self.machine.clang)));
                    all.extend(split.then(|| "-gsplit-dwarf".to_string()));
                    all
                }
            };
            if second {
                let rust = ["--cfg=second", "-Cmetadata=second"].map(str::to_string);
                if self.language == Language::Rust { arguments.extend(rust) } else { arguments.push("-DSECOND".into()) }
            }
            arguments.extend(["-o".to_string(), object.clone(), name.to_string()]);
            let program = match (self.compiler, self.language) {
                ("gcc", Language::C) => format!("{}gcc", self.machine.tools),
                ("gcc", _) => format!("{}g++", self.machine.tools),
                ("clang", Language::Cpp) => "clang++".to_string(),
                _ => self.compiler.to_string(),
            };
            tool(folder, &program, &arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
            Ok(object)
        };
        Ok([one(false)?, one(true)?])
    }

    fn cell(&self, folder: &Path, objects: &[String; 2], form: Form) -> Result<Mark, Missing> {
        let split = if form == Form::Split { Some(self.compile(folder, true)?) } else { None };
        let image = format!("{form:?}");
        let [first, second] = split.as_ref().unwrap_or(objects);
        let (linker, flags) = self.machine.linker.split_first().unwrap();
        let compressed = (form == Form::Compressed).then_some("--compress-debug-sections=zlib");
        let link = flags.iter().copied().chain(compressed).chain(["-e", "0", first, second, "-o", &image]);
        tool(folder, linker, &link.collect::<Vec<_>>())?;
        if form == Form::Dwz {
            tool(folder, "dwz", &[&image])?;
        }
        let mut dwo: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        dwo.retain(|path| form == Form::Split && path.extension().is_some_and(|e| e == "dwo"));
        assert_eq!(dwo.len(), if form == Form::Split { 2 } else { 0 });
        let image = folder.join(image);
        let (ours, globals) = ours(&image, &dwo)?;
        let mut wrong = globals.wrong;

        let files = if form == Form::Split { &dwo[..] } else { std::slice::from_ref(&image) };
        let mut theirs = BTreeSet::new();
        for file in files {
            let text = tool(folder, "eu-readelf", &["--debug-dump=info", file.to_str().unwrap()])?;
            let dies = Dies::parse(&text, self.machine.pointer, self.machine.big_endian);
            // The cell is what it is called.
            assert!(text.contains(&format!("Version: {},", self.version)), "{file:?}");
            assert_eq!(dies.has("partial_unit"), form == Form::Dwz, "{file:?}");
            theirs.extend(dies.layouts());
        }
        let has = |name: &&str| theirs.iter().any(|layout| layout.name.starts_with(*name) && !layout.rows.is_empty());
        let (_, _, all) = LANGUAGES.iter().find(|(language, ..)| *language == self.language).unwrap();
        assert_eq!(all.iter().copied().find(|name| !has(name)), None, "{}", self.compiler);
        let members = ours.iter().map(|layout| layout.rows.len()).sum();
        wrong.extend(differences("elfutils", &ours, &theirs));

        let sections = tool(folder, "readelf", &["-SW", image.to_str().unwrap()])?;
        let compressed = sections.lines().any(|l| l.contains(".debug_info") && l.split_whitespace().any(|w| w == "C"));
        assert_eq!(compressed, form == Form::Compressed, "{sections}");

        let mut by = "e";
        if self.language == Language::C && matches!(form, Form::Plain | Form::Compressed) {
            let text = tool(folder, "pahole", &["-E", image.to_str().unwrap()])?;
            wrong.extend(unlike_pahole(&ours, &pahole::layouts(&text)));
            by = "pe";
        }
        if !wrong.is_empty() {
            return Ok(Mark::Differs(wrong));
        }
        Ok(Mark::Judged { by, members, globals: globals.compared })
    }
}

struct Globals {
    compared: usize,
    wrong: Vec<String>,
}

/// Every type that straddle shows, and what it says of globals against `readelf`.
fn ours(path: &Path, dwo: &[PathBuf]) -> Result<(BTreeSet<Layout>, Globals), Missing> {
    let bytes = open(path);
    let image = Image::parse(&bytes, "image").unwrap();
    let mut sections = DebugSections::of(&image).unwrap();
    let halves: Vec<_> = dwo.iter().map(|path| open(path)).collect();
    for half in &halves {
        sections.add_split(&Image::parse(half, "half").unwrap());
    }
    let ask = TypeAsk { name: Some("*"), ..TypeAsk::default() };
    let known = sections.read_named(&|name| ask.wants(name));
    let report = types(&image, &known, &ask).unwrap();
    let layout = |view: straddle::rules::types::TypeView| {
        let row = |m: straddle::rules::types::MemberView| match m.bits {
            Some(bits) => Row { path: m.path, at: m.offset * 8 + bits.first, extent: Extent::Bits(bits.count) },
            None => Row { path: m.path, at: m.offset * 8, extent: Extent::Bytes(m.size.unwrap_or(0)) },
        };
        let mut rows: Vec<Row> = view.members.into_iter().map(row).collect();
        rows.sort();
        Layout { name: view.name, size: Some(view.size), rows }
    };
    let layouts = report.types.into_iter().map(layout).collect();
    Ok((layouts, globals(path, &image, &sections.read())?))
}

fn globals(path: &Path, image: &Image<'_>, types: &Types<'_>) -> Result<Globals, Missing> {
    let text = tool(Path::new("/"), "readelf", &["-sW", path.to_str().unwrap()])?;
    let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    let symbol = |w: Vec<&str>| match w[..] {
        [_, at, size, "OBJECT", _, _, section, name] if section != "UND" => {
            let size = size.strip_prefix("0x").map_or_else(|| size.parse(), |hex| u64::from_str_radix(hex, 16));
            Some((name.to_string(), u64::from_str_radix(at, 16).unwrap(), size.unwrap()))
        }
        _ => None,
    };
    let theirs: BTreeSet<(String, u64, u64)> = words.filter_map(symbol).filter(|(.., size)| *size > 0).collect();
    let objects = Objects::data(image);
    let ours = objects.list.iter().map(|o| (o.name.to_string(), o.span.start.0, o.span.size));
    let ours: BTreeSet<(String, u64, u64)> = ours.collect();
    let mut wrong: Vec<String> =
        ours.symmetric_difference(&theirs).map(|global| format!("readelf and straddle: {global:?}")).collect();
    let mut told: BTreeMap<u64, Vec<Option<u64>>> = BTreeMap::new();
    for variable in &types.variables {
        told.entry(variable.address.0).or_default().push(variable.type_id.and_then(|id| types.table.size(id)));
    }
    for (name, at, size) in &theirs {
        // Tables of virtual functions and bases are the compiler's: no declaration.
        match told.remove(at) {
            None if ["_ZTV", "_ZTT", "_ZTC"].iter().any(|tables| name.starts_with(tables)) => {}
            Some(sizes) if sizes.iter().all(|own| own == &Some(*size)) => {}
            other => wrong.push(format!("{name} at {at:#x} has {size} bytes, its type {other:?}")),
        }
    }
    wrong.extend(told.iter().map(|(at, sizes)| format!("a variable at {at:#x}, where no symbol is: {sizes:?}")));
    wrong.extend(types.skipped.iter().map(|(reason, count)| format!("skipped: {reason}: {count}")));
    Ok(Globals { compared: theirs.len(), wrong })
}

/// Both ways: nothing is missing, nothing is made up.
fn differences(whose: &str, ours: &BTreeSet<Layout>, theirs: &BTreeSet<Layout>) -> Vec<String> {
    let mut wrong = Vec::new();
    for layout in ours.difference(theirs) {
        let named: Vec<&Layout> = theirs.iter().filter(|other| other.name == layout.name).collect();
        wrong.push(match named[..] {
            [] => format!("{whose} has no {}", layout.name),
            [other] => against(whose, layout, other),
            _ => format!("{whose} has {} other {}", named.len(), layout.name),
        });
    }
    let missing = theirs.difference(ours).filter(|layout| ours.iter().all(|own| own.name != layout.name));
    wrong.extend(missing.map(|layout| format!("straddle has no {}", layout.name)));
    wrong
}

fn against(whose: &str, ours: &Layout, theirs: &Layout) -> String {
    let mut text = format!("{}:", ours.name);
    if ours.size != theirs.size {
        write!(text, " size {:?}, {whose} {:?}", ours.size, theirs.size).unwrap();
    }
    let rows = |layout: &Layout| layout.rows.iter().cloned().collect::<BTreeSet<Row>>();
    let (mine, other) = (rows(ours), rows(theirs));
    for (whose, row) in
        mine.difference(&other).map(|r| ("straddle", r)).chain(other.difference(&mine).map(|r| (whose, r)))
    {
        write!(text, " {whose}: {} at {}.{} {:?};", row.path, row.at / 8, row.at % 8, row.extent).unwrap();
    }
    text
}

/// What pahole does not print for itself: types whose only name is a typedef's. It shows them as members.
const NOT_PAHOLES: [&str; 2] = ["nameless", "either_t"];

/// pahole shows each name once, and no size of unions.
fn unlike_pahole(ours: &BTreeSet<Layout>, theirs: &[Layout]) -> Vec<String> {
    let mut wrong = Vec::new();
    for layout in ours {
        match theirs.iter().find(|other| other.name == layout.name) {
            None if NOT_PAHOLES.contains(&layout.name.as_str()) => {}
            None => wrong.push(format!("pahole has no {}", layout.name)),
            Some(other) => {
                let other = Layout { size: other.size.or(layout.size), ..other.clone() };
                wrong.extend((*layout != other).then(|| against("pahole", layout, &other)));
            }
        }
    }
    wrong
}

#[test]
fn every_member_and_every_global_is_where_others_say() {
    let all = COMPILERS.iter().flat_map(|compiler| LANGUAGES.map(|(language, ..)| (*compiler, language)));
    let real = all.filter(|(compiler, language)| impossible(compiler, *language, 4, Form::Plain).is_none());
    let groups: Vec<Group> = real
        .flat_map(|(compiler, language)| MACHINES.iter().map(move |machine| (compiler, language, machine)))
        .flat_map(|(compiler, language, machine)| {
            VERSIONS.map(|version| Group { compiler, language, version, machine })
        })
        .collect();
    let marks: Vec<Vec<Mark>> = groups.par_iter().map(Group::cells).collect();
    let table = table(&groups, &marks);
    println!("{table}");
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(TABLE), &table).unwrap();
    let all = || marks.iter().flatten();
    let failed = all().any(|m| matches!(m, Mark::Differs(_)));
    let skipped = all().any(|m| matches!(m, Mark::Skipped(_)));
    assert!(!failed && (!skipped || std::env::var_os("CI").is_none()), "\n{table}");
}

/// A row for each compiler, language and machine; below it the reasons, each once.
fn table(groups: &[Group], marks: &[Vec<Mark>]) -> String {
    let mut text = String::from(
        "Layouts and globals against others. Who judged: p pahole, e elfutils (globals: readelf, everywhere);\n\
         - no such cell, S skipped, F differs. Forms: plain, compressed, split, dwz.\n\n\
         compiler language machine   DWARF 4       DWARF 5\n",
    );
    let mut notes = BTreeSet::new();
    let (mut members, mut globals, mut judged) = (0, 0, 0);
    for (groups, marks) in groups.chunks(VERSIONS.len()).zip(marks.chunks(VERSIONS.len())) {
        let Group { compiler, language, machine, .. } = &groups[0];
        let language = LANGUAGES.iter().find(|(l, ..)| l == language).unwrap().1;
        let row = format!("{compiler:8} {language:8} {:8}", machine.name);
        text += &row;
        for (group, marks) in groups.iter().zip(marks) {
            text += "  ";
            for (mark, (_, form)) in marks.iter().zip(FORMS) {
                let cell = format!("{compiler} {language} {} DWARF {} {form}", machine.name, group.version);
                let letter = match mark {
                    Mark::Judged { by, members: m, globals: g } => {
                        (members, globals, judged) = (members + m, globals + g, judged + 1);
                        by
                    }
                    Mark::Impossible(why) => {
                        notes.insert(format!("- {compiler} × DWARF {} × {form}: {why}", group.version));
                        "-"
                    }
                    Mark::Skipped(tool) => {
                        notes.insert(format!("{cell}: skipped: no {tool}"));
                        "S"
                    }
                    Mark::Differs(wrong) => {
                        notes.extend(wrong.iter().map(|wrong| format!("{cell}: {wrong}")));
                        "F"
                    }
                };
                write!(text, " {letter:2}").unwrap();
            }
        }
        text.push('\n');
    }
    for (compiler, (language, name, _)) in COMPILERS.iter().flat_map(|c| LANGUAGES.map(|l| (c, l))) {
        let why = impossible(compiler, language, 4, Form::Plain);
        notes.extend(why.map(|why| format!("- {compiler} × {name}: {why}")));
    }
    writeln!(text, "\n{judged} cells agree in {members} members and {globals} globals").unwrap();
    notes.into_iter().for_each(|note| writeln!(text, "{note}").unwrap());
    text
}
