//! A linker's command line, word by word: which words name inputs, folders, the output, or files that it writes.
//!
//! Dialects: GNU ld, gold, lld and mold share these options (ld(1), `ld.lld --help`, mold(1)).

use std::path::Path;

use serde::{Deserialize, Serialize};

/// One word of the command line, as far as a replay has to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Kept as it is.
    Plain(String),
    /// Names an input: `prefix` is the option glued to it (`--version-script=`), `text` the path as written, `input`
    /// which of the link's inputs it is (`None`: it was not read from there; kept as it is).
    Input { prefix: String, text: String, input: Option<usize> },
    /// Names a folder that is searched, for `-rpath-link` a list of them with colons. Made absolute when captured.
    Folder { prefix: String, text: String },
}

/// A command line, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// All words after the program's name, without those that name a file to write.
    pub words: Vec<Word>,
    /// What `-o` says; `a.out` by default.
    pub output: String,
    /// `-r`: makes an object, not a program.
    pub relocatable: bool,
    pub shared: bool,
    /// The linker plugins' paths.
    pub plugins: Vec<String>,
    /// gcc's plugin was told to write which symbol won; its compiler needs that file for link-time optimisation.
    pub resolution: bool,
    pub sysroot: Option<String>,
}

/// What an option does with its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Plain,
    Input,
    Folder,
    Output,
    /// A file that the linker writes beside its output: dropped, a replay must not touch the user's files.
    Written,
    Plugin,
    PluginOption,
}

/// Long options that take a value, glued with `=` or as the next word, with one dash or two.
const LONG: &[(&str, Value)] = &[
    ("script", Value::Input),
    ("dT", Value::Input),
    ("default-script", Value::Input),
    ("version-script", Value::Input),
    ("dynamic-list", Value::Input),
    ("export-dynamic-symbol-list", Value::Input),
    ("retain-symbols-file", Value::Input),
    ("just-symbols", Value::Input),
    ("mri-script", Value::Input),
    ("remap-inputs-file", Value::Input),
    ("section-ordering-file", Value::Input),
    ("symbol-ordering-file", Value::Input),
    ("call-graph-ordering-file", Value::Input),
    ("library-path", Value::Folder),
    ("rpath-link", Value::Folder),
    ("output", Value::Output),
    ("Map", Value::Written),
    ("dependency-file", Value::Written),
    ("out-implib", Value::Written),
    ("reproduce", Value::Written),
    ("time-trace-file", Value::Written),
    ("print-archive-stats", Value::Written),
    ("print-symbol-order", Value::Written),
    ("print-gc-sections-file", Value::Written),
    ("why-extract", Value::Written),
    ("plugin", Value::Plugin),
    ("plugin-opt", Value::PluginOption),
    ("assert", Value::Plain),
    ("audit", Value::Plain),
    ("auxiliary", Value::Plain),
    ("defsym", Value::Plain),
    ("depaudit", Value::Plain),
    ("dynamic-linker", Value::Plain),
    ("entry", Value::Plain),
    ("exclude-libs", Value::Plain),
    ("export-dynamic-symbol", Value::Plain),
    ("filter", Value::Plain),
    ("fini", Value::Plain),
    ("flavor", Value::Plain),
    ("format", Value::Plain),
    ("gpsize", Value::Plain),
    ("hash-size", Value::Plain),
    ("hash-style", Value::Plain),
    ("ignore-unresolved-symbol", Value::Plain),
    ("init", Value::Plain),
    ("library", Value::Plain),
    ("mllvm", Value::Plain),
    ("oformat", Value::Plain),
    ("remap-inputs", Value::Plain),
    ("require-defined", Value::Plain),
    ("rpath", Value::Plain),
    ("section-start", Value::Plain),
    ("soname", Value::Plain),
    ("sort-section", Value::Plain),
    ("spare-dynamic-tags", Value::Plain),
    ("sysroot", Value::Plain),
    ("task-link", Value::Plain),
    ("thread-count", Value::Plain),
    ("trace-symbol", Value::Plain),
    ("undefined", Value::Plain),
    ("unresolved-symbols", Value::Plain),
    ("version-exports-section", Value::Plain),
    ("wrap", Value::Plain),
    ("Tbss", Value::Plain),
    ("Tdata", Value::Plain),
    ("Ttext", Value::Plain),
    ("Ttext-segment", Value::Plain),
    ("Trodata-segment", Value::Plain),
    ("Tldata-segment", Value::Plain),
];

/// Options of one letter; all but the first four take part in nothing but skipping their value.
const SHORT: &[(char, Value)] = &[
    ('o', Value::Output),
    ('L', Value::Folder),
    ('T', Value::Input),
    ('R', Value::Input),
    ('c', Value::Input),
    ('l', Value::Plain),
    ('a', Value::Plain),
    ('A', Value::Plain),
    ('b', Value::Plain),
    ('e', Value::Plain),
    ('f', Value::Plain),
    ('F', Value::Plain),
    ('G', Value::Plain),
    ('h', Value::Plain),
    ('I', Value::Plain),
    ('m', Value::Plain),
    ('O', Value::Plain),
    ('P', Value::Plain),
    ('u', Value::Plain),
    ('y', Value::Plain),
    ('Y', Value::Plain),
    ('z', Value::Plain),
];

impl Words {
    /// Reads the words after the program's name. `@file` must be expanded already ([`expand`]).
    #[must_use]
    pub fn read(args: &[String]) -> Words {
        let mut all = Words { output: "a.out".to_owned(), ..Words::default() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let Some(option) = arg.strip_prefix('-').filter(|o| !o.is_empty()) else {
                all.words.push(Word::Input { prefix: String::new(), text: arg.clone(), input: None });
                continue;
            };
            if let Some((value, prefix, text)) = glued(arg, option) {
                all.take(value, prefix, text);
            } else if let Some(value) = apart(option) {
                let next = args.next().cloned().unwrap_or_default();
                all.take_apart(value, arg, next);
            } else {
                all.flag(arg);
            }
        }
        all
    }

    /// The words as they were written.
    pub fn written(&self) -> impl Iterator<Item = String> {
        self.words.iter().map(|word| match word {
            Word::Plain(text) => text.clone(),
            Word::Input { prefix, text, .. } | Word::Folder { prefix, text } => format!("{prefix}{text}"),
        })
    }

    fn flag(&mut self, arg: &str) {
        let long = arg.trim_start_matches('-');
        match long {
            "shared" | "Bshareable" => self.shared = true,
            "r" | "i" | "relocatable" => self.relocatable = true,
            // They print, or write beside the output; `--cref` goes into the map.
            "M" | "print-map" | "t" | "trace" | "cref" | "save-temps" | "time-trace" | "repro" => return,
            _ => {}
        }
        self.words.push(Word::Plain(arg.to_owned()));
    }

    fn take(&mut self, value: Value, prefix: &str, text: &str) {
        let (prefix, text) = (prefix.to_owned(), text.to_owned());
        match value {
            Value::Written => {}
            Value::Output => self.output = text,
            Value::Input => self.words.push(Word::Input { prefix, text, input: None }),
            Value::Folder => self.words.push(Word::Folder { prefix, text }),
            Value::PluginOption if writes(&text) => self.resolution |= text.contains("fresolution="),
            Value::Plain | Value::Plugin | Value::PluginOption => {
                if value == Value::Plugin {
                    self.plugins.push(text.clone());
                }
                if prefix.trim_start_matches('-') == "sysroot=" {
                    self.sysroot = Some(text.clone());
                }
                self.words.push(Word::Plain(prefix + &text));
            }
        }
    }

    fn take_apart(&mut self, value: Value, option: &str, text: String) {
        match value {
            Value::Written | Value::Output => self.take(value, option, &text),
            Value::PluginOption if writes(&text) => self.resolution |= text.contains("fresolution="),
            Value::Input | Value::Folder => {
                self.words.push(Word::Plain(option.to_owned()));
                self.take(value, "", &text);
            }
            Value::Plain | Value::Plugin | Value::PluginOption => {
                if option.trim_start_matches('-') == "sysroot" {
                    self.sysroot = Some(text.clone());
                }
                self.words.push(Word::Plain(option.to_owned()));
                self.take(value, "", &text);
            }
        }
    }

    /// Whether there is anything to link: a probe such as `ld --version` has no input.
    #[must_use]
    pub fn links_something(&self) -> bool {
        self.words.iter().any(|word| match word {
            Word::Input { prefix, .. } => prefix.is_empty(),
            Word::Plain(text) => text.starts_with("-l"),
            Word::Folder { .. } => false,
        })
    }
}

/// gcc's plugin is told where to write which symbol won; clang's where to leave intermediate files.
fn writes(plugin_option: &str) -> bool {
    let option = plugin_option.trim_start_matches('-');
    ["fresolution=", "obj-path=", "save-temps", "stats-file=", "thinlto-index-only="]
        .iter()
        .any(|w| option.starts_with(w))
}

/// `--name=value` or `-Xvalue`: the kind, the part to keep in front, the value.
fn glued<'a>(arg: &'a str, option: &'a str) -> Option<(Value, &'a str, &'a str)> {
    let long = option.strip_prefix('-').unwrap_or(option);
    if let Some((name, text)) = long.split_once('=')
        && let Some((_, value)) = LONG.iter().find(|(n, _)| *n == name)
    {
        return Some((*value, arg.get(..arg.len() - text.len())?, text));
    }
    if option.starts_with('-') || is_long(long) {
        return None;
    }
    let letter = option.chars().next()?;
    let text = option.get(letter.len_utf8()..).filter(|t| !t.is_empty())?;
    // `-Ttext 0x1000` sets an address, `-Tfile` names a script; only these four letters glue a path to themselves.
    match letter {
        'o' => Some((Value::Output, "-o", text)),
        'L' => Some((Value::Folder, "-L", text)),
        'T' => Some((Value::Input, "-T", text)),
        'R' => Some((Value::Input, "-R", text)),
        _ => None,
    }
}

/// An option whose value is the next word.
fn apart(option: &str) -> Option<Value> {
    let long = option.strip_prefix('-').unwrap_or(option);
    if let Some((_, value)) = LONG.iter().find(|(n, _)| *n == long) {
        // These three take a value only with `=`.
        let only_glued = matches!(long, "why-extract" | "print-archive-stats" | "print-symbol-order");
        return (!only_glued).then_some(*value);
    }
    let mut letters = option.chars();
    let letter = letters.next()?;
    (letters.next().is_none()).then(|| SHORT.iter().find(|(c, _)| *c == letter).map(|(_, v)| *v)).flatten()
}

/// A long option with one dash that begins like `-o…`, `-L…`, `-T…`, `-R…`.
fn is_long(name: &str) -> bool {
    LONG.iter().any(|(n, _)| *n == name)
        || name.starts_with("Ttext=")
        || matches!(name, "omagic" | "relax" | "only-keep-debug")
}

/// Replaces each `@file` by the words in it, as libiberty's `expandargv` does: white space separates, quotes of both
/// kinds and backslashes protect; a file that cannot be read leaves the word as it is. Nested files are followed at
/// most `DEPTH` deep.
pub fn expand(args: &[String], read: &dyn Fn(&Path) -> Option<String>) -> Vec<String> {
    fn go(args: &[String], read: &dyn Fn(&Path) -> Option<String>, depth: u32, out: &mut Vec<String>) {
        const DEPTH: u32 = 20;
        for arg in args {
            match arg.strip_prefix('@').filter(|_| depth < DEPTH).and_then(|file| read(Path::new(file))) {
                Some(text) => go(&split(&text), read, depth + 1, out),
                None => out.push(arg.clone()),
            }
        }
    }
    let mut out = Vec::new();
    go(args, read, 0, &mut out);
    out
}

fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().extend(chars.next()),
            (c, Some(q)) if c == q => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_ascii_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Words {
        Words::read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn inputs(words: &Words) -> Vec<&str> {
        words
            .words
            .iter()
            .filter_map(|w| if let Word::Input { text, .. } = w { Some(text.as_str()) } else { None })
            .collect()
    }

    #[test]
    fn values_are_not_inputs_and_scripts_are() {
        let words = read(
            "-plugin /p.so -plugin-opt=-fresolution=/tmp/r -m elf_x86_64 -z now -dynamic-linker /lib/ld.so -pie -o out \
             crt1.o -T a.ld -Ttext 0x1000 --version-script=v.map -L. -L sub -Map=m --dependency-file d -u main -lfoo \
             -Tglued.ld --sysroot=/s a.o",
        );
        assert_eq!(words.output, "out");
        assert_eq!(inputs(&words), ["crt1.o", "a.ld", "v.map", "glued.ld", "a.o"]);
        assert_eq!(words.plugins, ["/p.so"]);
        assert_eq!(words.sysroot.as_deref(), Some("/s"));
        let plain = |w: &&Word| matches!(w, Word::Plain(t) if t.contains("resolution") || t == "m" || t == "d");
        assert_eq!(words.words.iter().filter(plain).count(), 0, "files that the link writes are dropped: {words:?}");
    }

    #[test]
    fn probes_link_nothing() {
        assert!(!read("--version").links_something());
        assert!(!read("-m elf_x86_64 -V").links_something());
        assert!(read("-lfoo").links_something());
        assert!(read("-r a.o").relocatable);
        assert_eq!(read("-ofoo a.o").output, "foo");
        assert_eq!(read("a.o").output, "a.out");
    }

    #[test]
    fn response_files_nest_and_quote() {
        let file = |p: &Path| match p.to_str()? {
            "a" => Some("one 'two three' @b\n".to_owned()),
            "b" => Some("\"fo\\\"ur\" \"\" @missing".to_owned()),
            "loop" => Some("@loop".to_owned()),
            _ => None,
        };
        let words = |arg: &str| expand(&[arg.to_owned()], &file);
        assert_eq!(words("@a"), ["one", "two three", "fo\"ur", "", "@missing"]);
        assert_eq!(words("@loop"), ["@loop"]);
    }

    proptest! {
        #[test]
        fn no_word_is_lost(paths in proptest::collection::vec("[a-z]{1,8}\\.o", 0..20)) {
            let words = Words::read(&paths);
            prop_assert_eq!(inputs(&words), paths);
        }
    }
}
