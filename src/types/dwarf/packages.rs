//! Packages of split debug information (`.dwp`): each unit's share of every section.

use std::collections::HashSet;

use gimli::{DebugCuIndex, DebugTuIndex, DwoId, IndexSectionId, Reader as _, UnitIndex};

use super::sections::Slice;
use super::units::Tables;
use super::{Skipped, skip};

/// The shares of the units with some ids, and of all type units. `indices`: `.debug_cu_index` and `.debug_tu_index`.
pub(super) fn shares<'d>(
    whole: &Tables<'d>,
    indices: [Slice<'d>; 2],
    ids: impl Iterator<Item = DwoId>,
    skipped: &mut Skipped,
) -> Vec<Tables<'d>> {
    let [units, types] = indices;
    let (units, types) = (DebugCuIndex::from(units).index(), DebugTuIndex::from(types).index());
    let damaged = usize::from(units.is_err()) + usize::from(types.is_err());
    skip(skipped, "damaged indices of packages of debug information", damaged);
    let mut shares = Vec::new();
    // Shares of real files do not overlap: what they hold together is not larger than the file.
    let mut left = whole.info.len().saturating_add(whole.types.len());
    let mut add = |index: &UnitIndex<Slice<'d>>, row: u32| {
        let share = share(whole, index, row);
        let size = share.as_ref().map_or(0, |s| s.info.len() + s.types.len());
        let fits = share.filter(|_| size <= left);
        left = left.saturating_sub(size);
        skip(skipped, "damaged units of debug information", usize::from(fits.is_none()));
        shares.extend(fits);
    };
    if let Ok(index) = &units {
        let rows: HashSet<u32> = ids.filter_map(|id| index.find(id.0)).collect();
        let mut rows: Vec<u32> = rows.into_iter().collect();
        rows.sort_unstable();
        rows.into_iter().for_each(|row| add(index, row));
    }
    if let Ok(index) = &types {
        // A row has a dozen bytes.
        let rows = index.unit_count().min(u32::try_from(whole.info.len() + whole.types.len()).unwrap_or(u32::MAX));
        (1..=rows).for_each(|row| add(index, row));
    }
    shares
}

fn share<'d>(whole: &Tables<'d>, index: &UnitIndex<Slice<'d>>, row: u32) -> Option<Tables<'d>> {
    let mut share = *whole;
    // A unit has its own entries only.
    (share.info, share.types) = (Slice::new(&[], whole.info.endian()), Slice::new(&[], whole.info.endian()));
    for section in index.sections(row).ok()? {
        let cut = |from: Slice<'d>| {
            let mut cut = from;
            cut.skip(section.offset as usize).ok()?;
            cut.truncate(section.size as usize).ok()?;
            Some(cut)
        };
        match section.section {
            IndexSectionId::DebugInfo => share.info = cut(whole.info)?,
            IndexSectionId::DebugTypes => share.types = cut(whole.types)?,
            IndexSectionId::DebugAbbrev => share.abbreviations = cut(whole.abbreviations)?,
            IndexSectionId::DebugStrOffsets => share.string_offsets = cut(whole.string_offsets)?,
            IndexSectionId::DebugLine => share.lines = cut(whole.lines)?,
            _ => {}
        }
    }
    Some(share)
}
