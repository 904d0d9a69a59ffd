//! Variables by section: of few kernels all, of most only the per-CPU ones.

use super::raw::kind;
use super::table::Reader;
use super::{Skipped, skip};
use crate::image::Image;
use crate::types::Variable;
use crate::units::Addr;

/// By section and address.
pub(super) fn find<'a>(reader: &Reader<'_, 'a>, image: &Image<'_>, skipped: &mut Skipped) -> Vec<Variable<'a>> {
    let mut found = Vec::new();
    let (mut lost, mut damaged) = (0, 0);
    for section in reader.own.records().filter(|r| r.kind == kind::DATASEC) {
        let start = reader.name(section.name).and_then(|name| start(image, name));
        let Some((home, start)) = start else {
            lost += section.triples().len();
            continue;
        };
        for [number, offset, _] in section.triples() {
            let Some(variable) = reader.record(number).filter(|r| r.kind == kind::VAR) else {
                damaged += 1;
                continue;
            };
            found.push(Variable {
                name: reader.name(variable.name),
                linkage_name: None,
                section: home,
                address: Addr(start.saturating_add(offset.into())),
                file: None,
                line: None,
                align: None,
                type_id: reader.type_id(variable.size_or_type, 0),
            });
        }
    }
    skip(skipped, "variables of BTF in sections that the image has not", lost);
    skip(skipped, "variables of BTF that are not there", damaged);
    found.sort_by_key(|v| (v.section, v.address));
    found
}

/// Where a section begins, and its index where places count from it. Without section headers, the kernel's symbols say
/// it of the one that matters.
fn start(image: &Image<'_>, name: &str) -> Option<(Option<u32>, u64)> {
    let section = (0..).zip(&image.sections).find(|(_, s)| s.name == name);
    let section = section.map(|(index, s)| (image.kind.relocatable().then_some(index), s.address));
    let symbol = || image.symbols.iter().find(|s| s.name == "__per_cpu_start" && name == ".data..percpu");
    section.or_else(|| symbol().map(|s| (None, s.value)))
}
