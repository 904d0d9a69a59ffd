//! Layouts as `eu-readelf` prints the entries of debug information, flattened here once more.

use std::collections::{BTreeMap, BTreeSet};

use super::{Extent, Layout, Row};

#[derive(Debug)]
struct Die {
    tag: String,
    parent: Option<usize>,
    children: Vec<usize>,
    attributes: BTreeMap<String, String>,
}

/// Every entry of one file.
#[derive(Debug, Default)]
pub struct Dies {
    list: Vec<Die>,
    at: BTreeMap<u64, usize>,
    pointer: u64,
    big_endian: bool,
}

impl Dies {
    /// Of what `eu-readelf --debug-dump=info` says.
    pub fn parse(text: &str, pointer: u64, big_endian: bool) -> Dies {
        let mut dies = Dies { pointer, big_endian, ..Dies::default() };
        // The entry last seen at each depth, which is told by the indent.
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut last = String::new();
        for line in text.lines() {
            if let Some((offset, rest)) = line.strip_prefix(" [").and_then(|l| l.split_once(']'))
                && let Some((tag, _)) = rest.split_once(" abbrev: ")
            {
                let indent = rest.len() - rest.trim_start().len();
                open.retain(|(outer, _)| *outer < indent);
                let (number, parent) = (dies.list.len(), open.last().map(|(_, die)| *die));
                dies.at.insert(u64::from_str_radix(offset.trim(), 16).unwrap(), number);
                dies.list.push(Die {
                    tag: tag.trim().to_string(),
                    parent,
                    children: Vec::new(),
                    attributes: BTreeMap::new(),
                });
                parent.into_iter().for_each(|parent| dies.list[parent].children.push(number));
                open.push((indent, number));
            } else if let (Some(die), Some((name, value))) = (dies.list.last_mut(), attribute(line)) {
                die.attributes.insert(name.to_string(), value.to_string());
                last = name.to_string();
            } else if let (Some(die), Some((_, value))) = (dies.list.last_mut(), line.split_once("plus_uconst ")) {
                // An expression stands on the line behind its attribute.
                die.attributes.insert(last.clone(), value.trim().to_string());
            }
        }
        dies
    }

    pub fn has(&self, tag: &str) -> bool {
        self.list.iter().any(|die| die.tag == tag)
    }

    /// Every struct, class and union that has a name, its own or only a typedef's.
    pub fn layouts(&self) -> BTreeSet<Layout> {
        let mut all = BTreeSet::new();
        for (number, die) in self.list.iter().enumerate() {
            let of = match die.tag.as_str() {
                "typedef" => self.bare(number).filter(|of| self.name(*of).is_none()),
                _ => Some(number).filter(|_| !die.attributes.contains_key("declaration")),
            };
            let Some(of) = of.filter(|of| self.holds(*of)) else { continue };
            let Some(name) = self.whole_name(number) else { continue };
            let mut rows = Vec::new();
            self.members(of, "", 0, &mut rows);
            rows.sort();
            all.insert(Layout { name, size: self.number(of, "byte_size"), rows });
        }
        all
    }

    fn holds(&self, die: usize) -> bool {
        matches!(self.list[die].tag.as_str(), "structure_type" | "class_type" | "union_type")
    }

    fn members(&self, of: usize, path: &str, base: u64, rows: &mut Vec<Row>) {
        for child in &self.list[of].children {
            match self.list[*child].tag.as_str() {
                "member" => self.member(*child, None, path, base, rows),
                "inheritance" => self.member(*child, Some(""), path, base, rows),
                "variant_part" => {
                    for inner in &self.list[*child].children {
                        match self.list[*inner].tag.as_str() {
                            // The tag has no name of its own: straddle writes one.
                            "member" => self.member(*inner, Some("{tag}"), path, base, rows),
                            _ => self.members(*inner, path, base, rows),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn member(&self, die: usize, name: Option<&str>, path: &str, base: u64, rows: &mut Vec<Row>) {
        let own = &self.list[die].attributes;
        if own.contains_key("external") || own.contains_key("declaration") {
            return;
        }
        // A virtual base lies where each object says.
        if own.contains_key("virtuality") {
            return;
        }
        let of = self.refers(die, "type").unwrap();
        let at = base + self.number(die, "data_member_location").unwrap_or(0) * 8;
        let at = at + self.number(die, "data_bit_offset").unwrap_or(0);
        let (at, extent) = match (self.number(die, "bit_size"), self.signed(die, "bit_offset")) {
            (None, _) => (at, Extent::Bytes(self.size(of).unwrap_or(0))),
            (Some(bits), None) => (at, Extent::Bits(bits)),
            (Some(bits), Some(from_top)) => {
                let unit = self.number(die, "byte_size").or_else(|| self.size(of)).unwrap() * 8;
                let first = if self.big_endian { from_top } else { i64::try_from(unit - bits).unwrap() - from_top };
                (at.checked_add_signed(first).unwrap(), Extent::Bits(bits))
            }
        };
        let name = name.map(str::to_string).or_else(|| self.name(die)).unwrap_or_default();
        let path = match (path, name.as_str()) {
            (path, "") => path.to_string(),
            ("", name) => name.to_string(),
            (path, name) => format!("{path}.{name}"),
        };
        if !name.is_empty() {
            rows.push(Row { path: path.clone(), at, extent });
        }
        let inner = self.bare(of).filter(|inner| self.holds(*inner));
        inner.into_iter().for_each(|inner| self.members(inner, &path, at, rows));
    }

    /// In bytes; what is not written down is worked out.
    fn size(&self, die: usize) -> Option<u64> {
        if let Some(size) = self.number(die, "byte_size") {
            return Some(size);
        }
        let of = || self.refers(die, "type");
        match self.list[die].tag.as_str() {
            "typedef" | "const_type" | "volatile_type" | "restrict_type" | "atomic_type" => self.size(of()?),
            "pointer_type" | "reference_type" | "rvalue_reference_type" => Some(self.pointer),
            // A function of a class and what to add to its object; both, as the C++ ABI of all these machines says.
            "ptr_to_member_type" if self.list[self.bare(of()?)?].tag == "subroutine_type" => Some(2 * self.pointer),
            // The type of nullptr.
            "unspecified_type" => Some(self.pointer),
            "ptr_to_member_type" => Some(self.pointer),
            "array_type" => {
                let ranges = self.list[die].children.iter().filter(|c| self.list[**c].tag == "subrange_type");
                let count = |range: usize| {
                    self.number(range, "count").or_else(|| u64::try_from(self.signed(range, "upper_bound")? + 1).ok())
                };
                ranges.map(|range| count(*range)).try_fold(self.size(of()?)?, |size, count| Some(size * count?))
            }
            _ => None,
        }
    }

    /// Behind typedefs and qualifiers.
    fn bare(&self, mut die: usize) -> Option<usize> {
        while matches!(self.list[die].tag.as_str(), "typedef" | "const_type" | "volatile_type" | "atomic_type") {
            die = self.refers(die, "type")?;
        }
        Some(die)
    }

    fn whole_name(&self, die: usize) -> Option<String> {
        let name = self.name(die)?;
        let mut scope = self.declared(die).parent;
        let mut words = vec![name];
        while let Some(outer) = scope {
            let tag = self.list[outer].tag.as_str();
            match tag {
                "namespace" => words.push(self.name(outer).unwrap_or_else(|| "(anonymous namespace)".to_string())),
                _ if self.holds(outer) => words.extend(self.name(outer)),
                _ => {}
            }
            scope = self.declared(outer).parent;
        }
        words.reverse();
        Some(words.join("::"))
    }

    /// The entry that declares this one, where that stands elsewhere.
    fn declared(&self, die: usize) -> &Die {
        let other = self.refers(die, "specification").or_else(|| self.refers(die, "abstract_origin"));
        &self.list[other.unwrap_or(die)]
    }

    fn name(&self, die: usize) -> Option<String> {
        let own = |die: &Die| die.attributes.get("name").map(|name| name.trim_matches('"').to_string());
        own(&self.list[die]).or_else(|| own(self.declared(die)))
    }

    fn refers(&self, die: usize, attribute: &str) -> Option<usize> {
        let value = self.list[die].attributes.get(attribute)?;
        let offset = value.trim_start_matches('[').trim_end_matches(']').trim();
        self.at.get(&u64::from_str_radix(offset, 16).unwrap()).copied()
    }

    fn signed(&self, die: usize, attribute: &str) -> Option<i64> {
        let word = self.list[die].attributes.get(attribute)?.split_whitespace().next()?;
        // A negative number in eight bytes is shown without its sign.
        word.parse().ok().or_else(|| Some(word.parse::<u64>().ok()?.cast_signed()))
    }

    fn number(&self, die: usize, attribute: &str) -> Option<u64> {
        u64::try_from(self.signed(die, attribute)?).ok()
    }
}

/// `byte_size            (data1) 8`.
fn attribute(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.trim_start().split_once(' ')?;
    let (_, value) = rest.trim_start().strip_prefix('(')?.split_once(')')?;
    Some((name, value.trim()))
}
