//! What an object is for, as far as its section and name tell. Flags alone do not: a kernel's `.rodata` is flagged
//! writable and holds what is written only while booting.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde::Serialize;

use super::Object;
use crate::image::{Home, Image, Section, SectionKind};

/// Told apart because only some can be written by two CPUs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Initialised, writable.
    Data,
    /// Zeroed, writable.
    Bss,
    /// A private copy for each CPU: two objects on one line are no false sharing.
    PerCpu,
    /// A private copy for each thread. Its phase depends on the thread.
    Thread,
    /// Written only while starting: ro_after_init, RELRO.
    ReadOnlyAfterInit,
    ReadOnly,
    /// Dead or cold once started.
    Init,
    /// Tables that compilers, linkers and tracing leave behind.
    Metadata(Metadata),
    /// Not part of the running image.
    NotLoaded,
}

/// Which machinery an object of metadata belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metadata {
    /// Between `__start_X` and `__stop_X`: somebody walks it as an array.
    LinkerTable,
    /// Trace events and tracepoints, and what hangs on them.
    Tracing,
    /// `__UNIQUE_ID_*`, parameters, exported symbols, module information.
    Module,
    /// `__func__`, lockdep class keys.
    Compiler,
    /// What crt files and the linker add to every program.
    Startup,
}

impl Class {
    /// May be written while running, by any CPU.
    #[must_use]
    pub fn writable(self) -> bool {
        matches!(self, Class::Data | Class::Bss)
    }

    #[must_use]
    pub fn is_metadata(self) -> bool {
        matches!(self, Class::Metadata(_))
    }

    /// As in `totals.classes`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Data => "data",
            Class::Bss => "bss",
            Class::PerCpu => "per-cpu",
            Class::Thread => "thread",
            Class::ReadOnlyAfterInit => "read-only-after-init",
            Class::ReadOnly => "read-only",
            Class::Init => "init",
            Class::Metadata(Metadata::LinkerTable) => "metadata: linker tables",
            Class::Metadata(Metadata::Tracing) => "metadata: tracing",
            Class::Metadata(Metadata::Module) => "metadata: module information",
            Class::Metadata(Metadata::Compiler) => "metadata: compiler",
            Class::Metadata(Metadata::Startup) => "metadata: startup files",
            Class::NotLoaded => "not-loaded",
        }
    }
}

/// `.data..percpu` and its parts.
pub(super) fn is_per_cpu(section: &str) -> bool {
    section.starts_with(".data..percpu") || section.starts_with(".data.percpu")
}

/// What one image needs for classifying: computed once.
pub(super) struct Classes<'i, 'a> {
    image: &'i Image<'a>,
    /// Class by section, before names are looked at.
    sections: Vec<Class>,
    /// Linker tables, sorted and disjoint.
    tables: Vec<Range<u64>>,
    ro_after_init: Option<Range<u64>>,
    /// X for each kernel trace event `__event_X`.
    events: HashSet<&'i str>,
}

impl<'i, 'a> Classes<'i, 'a> {
    pub(super) fn of(image: &'i Image<'a>) -> Classes<'i, 'a> {
        let mut marks = Marks::default();
        let mut events = HashSet::new();
        for symbol in &image.symbols {
            let Some(name) = symbol.name.strip_prefix("__") else { continue };
            if let Some(event) = name.strip_prefix("event_") {
                events.insert(event);
            } else if matches!(symbol.home, Home::Section(_) | Home::Absolute) {
                marks.add(name, symbol.value);
            }
        }
        let sections = image.sections.iter().map(|s| section_class(s, image.kind.kernel())).collect();
        let (tables, ro_after_init) = if image.kind.relocatable() { (Vec::new(), None) } else { marks.ranges() };
        Classes { image, sections, tables, ro_after_init, events }
    }

    pub(super) fn class(&self, object: &Object<'_>) -> Class {
        let by_section = self.sections.get(object.section as usize).copied().unwrap_or(Class::NotLoaded);
        if matches!(by_section, Class::NotLoaded | Class::Metadata(_)) {
            return by_section;
        }
        if let Some(metadata) = self.metadata(object) {
            return Class::Metadata(metadata);
        }
        let address = object.span.start.0;
        match &self.ro_after_init {
            Some(range) if range.contains(&address) => Class::ReadOnlyAfterInit,
            _ => by_section,
        }
    }

    fn metadata(&self, object: &Object<'_>) -> Option<Metadata> {
        if startup(object) {
            return Some(Metadata::Startup);
        }
        let shared = object.space == super::Space::Shared;
        let address = object.span.start.0;
        let at = self.tables.partition_point(|table| table.start <= address).checked_sub(1);
        if shared && at.and_then(|at| self.tables.get(at)).is_some_and(|table| address < table.end) {
            return Some(Metadata::LinkerTable);
        }
        if object.name.starts_with("__func__") || object.name.starts_with("__PRETTY_FUNCTION__") {
            return Some(Metadata::Compiler);
        }
        self.image.kind.kernel().then(|| self.kernel_metadata(object.name)).flatten()
    }

    fn kernel_metadata(&self, name: &str) -> Option<Metadata> {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        let event = |prefix: &str| name.strip_prefix(prefix).is_some_and(|event| self.events.contains(event));
        if starts(KERNEL_TRACING) || event("event_") {
            return Some(Metadata::Tracing);
        }
        if starts(KERNEL_MODULE) {
            return Some(Metadata::Module);
        }
        // lockdep's and once-only keys: `__key.12`, `___once_key.3`.
        starts(&["__key.", "___once_key.", "__compound_literal."]).then_some(Metadata::Compiler)
    }
}

/// include/trace/, kernel/trace/, include/linux/syscalls.h, include/linux/static_call.h.
const KERNEL_TRACING: &[&str] = &[
    "__tracepoint_",
    "__tpstrtab_",
    "__bpf_trace_tp_map_",
    "__SCK__tp_func_",
    "__event_",
    "event_class_",
    "event_enter__",
    "event_exit__",
    "trace_event_fields_",
    "trace_event_type_funcs_",
    "print_fmt_",
    "str__",
    "__syscall_meta__",
    "__p_syscall_meta__",
    "types__",
    "args__",
    "TRACE_SYSTEM_",
    "__TRACE_SYSTEM_",
    "___tp_str",
    "__trace_printk_fmt",
];

/// include/linux/{compiler,module,moduleparam,export,dynamic_debug,btf_ids}.h, include/linux/init.h.
const KERNEL_MODULE: &[&str] = &[
    "__UNIQUE_ID_",
    "__param_",
    "__ksymtab",
    "__kstrtab",
    "__kcrctab",
    "__crc_",
    "__modver_",
    "__mod_",
    "__initcall_",
    "__exitcall_",
    "__setup_",
    "__BTF_ID__",
    "__already_done",
    "__bug_table",
    "__ddebug",
];

/// glibc's crt files, gcc's crtstuff.c and the linkers' own.
fn startup(object: &Object<'_>) -> bool {
    object.unit == Some("crtstuff.c")
        || matches!(
            object.name,
            "__dso_handle"
                | "_IO_stdin_used"
                | "__FRAME_END__"
                | "__TMC_END__"
                | "__TMC_LIST__"
                | "_DYNAMIC"
                | "_GLOBAL_OFFSET_TABLE_"
                | "__abi_tag"
                | "_start"
                | "_init"
                | "_fini"
                | "_dl_relocate_static_pie"
                | "__frame_dummy_init_array_entry"
                | "__do_global_dtors_aux_fini_array_entry"
        )
}

fn section_class(section: &Section<'_>, kernel: bool) -> Class {
    let name = section.name.as_ref();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    match () {
        () if !section.loaded => Class::NotLoaded,
        () if section.tls => Class::Thread,
        () if is_per_cpu(name) => Class::PerCpu,
        () if kernel && starts(KERNEL_TABLES) => Class::Metadata(Metadata::LinkerTable),
        () if kernel && starts(KERNEL_INIT) => Class::Init,
        () if starts(&[".data.rel.ro", ".data..ro_after_init", ".init_array", ".fini_array", ".got", ".dynamic"]) => {
            Class::ReadOnlyAfterInit
        }
        () if name == ".rodata" || starts(&[".rodata.", ".rodata1"]) => Class::ReadOnly,
        () if !section.writable || section.executable => Class::ReadOnly,
        () if section.kind == SectionKind::NoBits => Class::Bss,
        () => Class::Data,
    }
}

/// include/asm-generic/vmlinux.lds.h: freed after boot, or only used around suspend.
const KERNEL_INIT: &[&str] =
    &[".init.", ".exit.", ".brk", ".data_nosave", ".x86_cpu_dev.init", ".apicdrivers", ".head."];

/// Tables that generic code walks.
const KERNEL_TABLES: &[&str] = &[
    "__ksymtab",
    "__kcrctab",
    "__param",
    "__modver",
    "__ex_table",
    "__bug_table",
    ".BTF",
    ".orc_",
    ".smp_locks",
    ".alt",
    ".parainstructions",
    ".retpoline_sites",
    ".return_sites",
    ".pci_fixup",
    ".notes",
    ".modinfo",
    "__tracepoints",
    "__jump_table",
    "_ftrace_events",
    "__dyndbg",
    "__trace_printk_fmt",
    "__tracepoint_str",
];

/// Addresses of `__start_X`, `__stop_X` and `__end_X`.
#[derive(Default)]
struct Marks<'i> {
    starts: Vec<(&'i str, u64)>,
    stops: HashMap<&'i str, u64>,
}

impl<'i> Marks<'i> {
    /// `name` without its leading `__`.
    fn add(&mut self, name: &'i str, value: u64) {
        if let Some(table) = name.strip_prefix("start_") {
            self.starts.push((table, value));
        } else if let Some(table) = name.strip_prefix("stop_").or_else(|| name.strip_prefix("end_")) {
            self.stops.insert(table, value);
        }
    }

    /// Linker tables as disjoint sorted ranges, and the kernel's ro_after_init.
    fn ranges(self) -> (Vec<Range<u64>>, Option<Range<u64>>) {
        let (mut tables, mut ro): (Vec<Range<u64>>, _) = (Vec::new(), None);
        for (table, start) in self.starts {
            match self.stops.get(table) {
                Some(&stop) if table == "ro_after_init" => ro = Some(start..stop),
                // `__start_rodata…__end_rodata` bounds a whole section of ordinary objects, not a table.
                _ if matches!(table, "rodata" | "bss" | "init_task" | "data") => {}
                Some(&stop) if stop > start => tables.push(start..stop),
                _ => {}
            }
        }
        tables.sort_unstable_by_key(|t| (t.start, t.end));
        tables.dedup_by(|later, kept| {
            let inside = later.start < kept.end;
            if inside {
                kept.end = kept.end.max(later.end);
            }
            inside
        });
        (tables, ro)
    }
}
