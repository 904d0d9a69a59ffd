//! What every rule means, in words: the help of a finding in CI, and of the manual.

/// A rule's name and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// As in [`super::NAMES`] or [`super::check::NAMES`].
    pub name: &'static str,
    /// One sentence without a full stop.
    pub short: &'static str,
    /// Why it matters and what can be done.
    pub help: &'static str,
}

/// Of every rule, by name.
pub const ABOUT: &[About] = &[
    About {
        name: "adjacent-lines",
        short: "Contended data on the two lines of one pair",
        help: "Where an adjacent-line prefetcher is on, lines 2N and 2N+1 travel together: writers of the one disturb \
               users of the other. 128 bytes between them rule it out; measure before paying for it.",
    },
    About {
        name: "drift",
        short: "A deliberate straddle has left the place that was allowed",
        help: "An [[allow]] in the rules names the offset at which the straddle is meant. It lies elsewhere now: move \
               it back, or write down the new place if that is meant too.",
    },
    About {
        name: "fragile",
        short: "Lies well today, and would not after most changes upstream",
        help: "Of the places that a change upstream can give it, most put it on two lines or beside something \
               contended. An alignment of its own makes the place a decision instead of luck.",
    },
    About {
        name: "group",
        short: "A group of members shares a line with another group, or takes more lines than it needs",
        help: "Members between __cacheline_group_begin__ and __cacheline_group_end__ are meant to lie together and \
               apart from other groups. Align the first member of the group, or pad the group before it.",
    },
    About {
        name: "max-size",
        short: "Larger than the rules allow",
        help: "The rule `max-size` bounds the size of a type or an object. Make it smaller (straddle type shows its \
               holes and an order that leaves fewer), or raise the bound.",
    },
    About {
        name: "misaligned",
        short: "Lies at an address that its declaration forbids",
        help: "The linker gave it less alignment than its declaration asks for: look at SUBALIGN and at the \
               alignments in the linker script.",
    },
    About {
        name: "no-match",
        short: "A rule names nothing that is in any image",
        help: "A rule that matches nothing proves nothing: the name was misspelt, renamed, or is not in this \
               configuration. Correct the name, or give the image that has it.",
    },
    About {
        name: "no-straddle",
        short: "Lies on more lines than it needs",
        help: "The rule `no-straddle` asks that it begins where it touches as few lines as its size allows. Align it \
               to its size rounded up to a power of two, at most a line.",
    },
    About {
        name: "offset",
        short: "Lies at another offset than the rules say",
        help: "The rule `offset` fixes where a member or an object lies. Something before it grew, shrank or went \
               away: move it back, or change the rule if the new place is meant.",
    },
    About {
        name: "own-line",
        short: "Something else is on its line",
        help: "The rule `own-line` asks that nothing but padding shares its lines, in front of it or behind. Align it \
               to a line and align what follows, or pad the rest of its last line.",
    },
    About {
        name: "separate",
        short: "Two that must be on different lines are on one",
        help: "The rule `separate` asks that no two of its names touch a common line. Put a line between them, or \
               begin one of them on a line of its own.",
    },
    About {
        name: "shared-elements",
        short: "Contended elements of an array share lines",
        help: "Aligning the start of the array does not separate its elements: their stride must be a line. Align the \
               element's type; the price is told beside it.",
    },
    About {
        name: "shared-line",
        short: "Written data shares a line with other data",
        help: "When one CPU writes one of them, all others lose the line (false sharing). Begin the contended one on a \
               line of its own and align what follows too.",
    },
    About {
        name: "shared-tail",
        short: "The last line of an aligned object is shared",
        help: "Its start is aligned to a line and its end is not: what follows lies on its last line. Align what \
               follows, or pad its size to whole lines.",
    },
    About {
        name: "split-access",
        short: "An access crosses a line",
        help: "One instruction reads or writes bytes of two lines. A locked access of this kind stops the bus (a split \
               lock). Align the data to the width of the access.",
    },
    About {
        name: "straddle",
        short: "Fits one line and lies on two",
        help: "Every use may cost two misses instead of one. Align it to its size rounded up to a power of two.",
    },
    About {
        name: "together",
        short: "Those that must be on one line are not",
        help: "The rule `together` asks that all of its names lie on one line. Put them side by side in an aligned \
               struct, or align the first of them.",
    },
    About {
        name: "true-sharing",
        short: "Many CPUs write one datum",
        help: "A profile saw several CPUs write the same bytes. No layout helps: they contend wherever it lies. Write it \
               less often, or split it by CPU.",
    },
    About {
        name: "write-beside-read",
        short: "Read-mostly data shares a line with data that is written",
        help: "Readers on every CPU lose the line whenever it is written. Move what is only read to another line \
               (__read_mostly), or give the written one a line of its own.",
    },
];

/// Of one rule.
#[must_use]
pub fn about(name: &str) -> Option<&'static About> {
    ABOUT.iter().find(|a| a.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_words_in_order() {
        assert!(ABOUT.is_sorted_by_key(|a| a.name));
        let all = super::super::NAMES.iter().chain(super::super::check::NAMES);
        assert!(all.clone().all(|name| about(name).is_some()));
        assert!(ABOUT.iter().all(|a| all.clone().any(|name| *name == a.name)));
    }
}
