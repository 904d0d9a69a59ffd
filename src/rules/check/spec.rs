//! What a placement rule says, and which rules cannot both hold.

use std::fmt;

use crate::units::Align;

/// One `[[rule]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Of the file that it stands in.
    pub line: u32,
    pub what: What,
    /// Only images of this word size, in bits.
    pub bits: Option<u32>,
    /// To what objects of a type are aligned.
    pub align: Option<Align>,
    pub why: Option<String>,
}

/// What it asks. Names are objects, types and their members, or globs of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// No two on one line: of several names, matches of different ones; of one glob, all its matches.
    Separate(Vec<String>),
    /// All on one line.
    Together(Vec<String>),
    /// Nothing but padding beside it.
    OwnLine(String),
    /// On no more lines than its size needs.
    NoStraddle(String),
    MaxSize(Bound),
    /// From the start of the type, or the address of an object.
    Offset(Bound),
}

/// `NAME <= 1024`, `NAME % 64 == 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub name: String,
    pub modulo: Option<u64>,
    pub relation: Relation,
    pub value: u64,
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    AtMost,
    AtLeast,
    Less,
    More,
    Equal,
    Unequal,
}

/// A layout that is meant to be as it is, at a certain place: `[[allow]]` with `offset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliberate {
    pub line: u32,
    pub name: String,
    /// From the start of the type, or of an object its phase, in bytes. `None`: anywhere.
    pub offset: Option<u64>,
}

/// Longer before shorter: `<=` begins with `<`.
const RELATIONS: [(&str, Relation); 6] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    ("<", Relation::Less),
    (">", Relation::More),
];

impl Relation {
    #[must_use]
    pub fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Relation::AtMost => left <= right,
            Relation::AtLeast => left >= right,
            Relation::Less => left < right,
            Relation::More => left > right,
            Relation::Equal => left == right,
            Relation::Unequal => left != right,
        }
    }

    /// The least and the most that it allows; `None`: nothing. `!=` is taken as no bound.
    fn range(self, value: u64) -> Option<(u64, u64)> {
        Some(match self {
            Relation::AtMost => (0, value),
            Relation::AtLeast => (value, u64::MAX),
            Relation::Less => (0, value.checked_sub(1)?),
            Relation::More => (value.checked_add(1)?, u64::MAX),
            Relation::Equal => (value, value),
            Relation::Unequal => (0, u64::MAX),
        })
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = RELATIONS.iter().find(|(_, relation)| relation == self).map_or("", |(sign, _)| sign);
        f.write_str(sign)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modulo = self.modulo.map_or_else(String::new, |n| format!(" % {n}"));
        write!(f, "{}{modulo} {} {}", self.name, self.relation, self.value)
    }
}

impl Bound {
    /// Numbers are decimal, or hexadecimal behind `0x`: 0x120 is not 120.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn parse(text: &str) -> Result<Bound, String> {
        let shape = || format!("`{text}` is no bound: NAME <= 1024, or NAME % 64 == 0");
        let (rest, value) = number_behind(text).ok_or_else(shape)?;
        let signed = |(sign, relation): &(&str, Relation)| Some((rest.strip_suffix(sign)?, *relation));
        let (rest, relation) = RELATIONS.iter().find_map(signed).ok_or_else(shape)?;
        let rest = rest.trim_end();
        let split = number_behind(rest).and_then(|(head, n)| Some((head.strip_suffix('%')?.trim_end(), n)));
        let (name, modulo) = split.map_or((rest, None), |(name, n)| (name, Some(n)));
        if name.is_empty() {
            return Err(shape());
        }
        let bound = Bound { name: name.to_string(), modulo, relation, value };
        match modulo {
            Some(0) => Err(format!("`{text}`: nothing is left of a division by 0")),
            _ if !bound.possible() => Err(format!("`{text}` holds for no number")),
            _ => Ok(bound),
        }
    }

    fn possible(&self) -> bool {
        let most = self.modulo.map_or(u64::MAX, |n| n - 1);
        let Some((low, high)) = self.relation.range(self.value) else { return false };
        low <= high && low <= most && !(self.relation == Relation::Unequal && most == 0 && self.value == 0)
    }

    /// Whether a number satisfies it.
    #[must_use]
    pub fn holds(&self, number: u64) -> bool {
        self.relation.holds(self.rest(number), self.value)
    }

    /// What is compared.
    #[must_use]
    pub fn rest(&self, number: u64) -> u64 {
        self.modulo.and_then(|n| number.checked_rem(n)).unwrap_or(number)
    }

    /// Whether no number satisfies both. Residues of two moduli agree where they do modulo their common divisor.
    fn excludes(&self, other: &Bound) -> bool {
        if self.name != other.name {
            return false;
        }
        match (self.modulo, other.modulo) {
            (a, b) if a == b => match (self.relation.range(self.value), other.relation.range(other.value)) {
                (Some(x), Some(y)) => x.0.max(y.0) > x.1.min(y.1) || self.differ(other),
                _ => true,
            },
            (Some(a), Some(b)) if self.exact() && other.exact() => self.value % gcd(a, b) != other.value % gcd(a, b),
            (Some(_), None) if other.exact() => !self.holds(other.value),
            (None, Some(_)) if self.exact() => !other.holds(self.value),
            _ => false,
        }
    }

    fn exact(&self) -> bool {
        self.relation == Relation::Equal
    }

    fn differ(&self, other: &Bound) -> bool {
        let pair = (self.relation, other.relation);
        self.value == other.value
            && matches!(pair, (Relation::Equal, Relation::Unequal) | (Relation::Unequal, Relation::Equal))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// What stands before a number at the end of a text, and the number.
fn number_behind(text: &str) -> Option<(&str, u64)> {
    let text = text.trim_end();
    let digits = |c: char| c.is_ascii_hexdigit() || c == 'x' || c == 'X';
    let from = text.char_indices().rev().take_while(|(_, c)| digits(*c)).last().map_or(text.len(), |(at, _)| at);
    let (head, word) = text.split_at_checked(from)?;
    let hexadecimal = word.strip_prefix("0x").or(word.strip_prefix("0X"));
    let number = hexadecimal.map_or_else(|| word.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())?;
    Some((head.trim_end(), number))
}

impl What {
    /// As in [`super::NAMES`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            What::Separate(_) => "separate",
            What::Together(_) => "together",
            What::OwnLine(_) => "own-line",
            What::NoStraddle(_) => "no-straddle",
            What::MaxSize(_) => "max-size",
            What::Offset(_) => "offset",
        }
    }

    /// What it is about.
    #[must_use]
    pub fn targets(&self) -> Vec<&str> {
        match self {
            What::Separate(names) | What::Together(names) => names.iter().map(String::as_str).collect(),
            What::OwnLine(name) | What::NoStraddle(name) => vec![name],
            What::MaxSize(bound) | What::Offset(bound) => vec![&bound.name],
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = ", self.name())?;
        match self {
            What::Separate(names) | What::Together(names) => write!(f, "{names:?}"),
            What::OwnLine(name) | What::NoStraddle(name) => write!(f, "{name:?}"),
            What::MaxSize(bound) | What::Offset(bound) => write!(f, "{:?}", bound.to_string()),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)?;
        self.bits.map_or(Ok(()), |bits| write!(f, ", bits = {bits}"))?;
        self.align.map_or(Ok(()), |align| write!(f, ", align = {}", align.bytes()))
    }
}

/// Two rules that cannot both hold, whatever the image: their lines, the later one first, and why. Globs are compared as
/// they are written.
#[must_use]
pub fn contradiction(rules: &[Rule], allowed: &[Deliberate]) -> Option<(u32, u32, String)> {
    for (at, rule) in rules.iter().enumerate() {
        let meant = allowed.iter().find(|a| matches!(&rule.what, What::NoStraddle(name) if *name == a.name));
        if let Some(meant) = meant {
            return Some((rule.line, meant.line, format!("{} is allowed to straddle, and must not", meant.name)));
        }
        let both = |other: &&Rule| rule.bits.is_none() || other.bits.is_none() || rule.bits == other.bits;
        for earlier in rules.iter().take(at).filter(both) {
            if let Some(why) = conflict(&rule.what, &earlier.what).or_else(|| conflict(&earlier.what, &rule.what)) {
                return Some((rule.line, earlier.line, why));
            }
        }
    }
    None
}

fn conflict(a: &What, b: &What) -> Option<String> {
    match (a, b) {
        (What::Separate(apart), What::Together(joined)) => {
            let mut both = apart.iter().filter(|name| joined.contains(name));
            let (first, second) = (both.next()?, both.next()?);
            Some(format!("{first} and {second} are to be on one line and on different ones"))
        }
        (What::OwnLine(name), What::Together(joined)) if joined.contains(name) => {
            Some(format!("{name} is to be alone on its line and together with others"))
        }
        (What::Offset(x), What::Offset(y)) | (What::MaxSize(x), What::MaxSize(y)) if x.excludes(y) => {
            Some(format!("no number is both: {x}, and {y}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bound(text: &str) -> Bound {
        Bound::parse(text).unwrap()
    }

    /// Case A1's trap: 0x120 is 288.
    #[test]
    fn bounds_say_their_radix() {
        let of = |text| {
            let b = bound(text);
            (b.name, b.modulo, b.relation, b.value)
        };
        assert_eq!(of("T <= 1024"), ("T".to_string(), None, Relation::AtMost, 1024));
        assert_eq!(of("mm.lock % 64 == 0x20"), ("mm.lock".to_string(), Some(64), Relation::Equal, 32));
        assert_eq!(of("mm.lock==0x120"), ("mm.lock".to_string(), None, Relation::Equal, 288));
        assert_eq!(of("Shard<long> < 64"), ("Shard<long>".to_string(), None, Relation::Less, 64));
        assert_eq!(of("Shard<4> % 8 != 3"), ("Shard<4>".to_string(), Some(8), Relation::Unequal, 3));
        for wrong in ["T", "T <=", "<= 4", "T <= x", "T % 0 == 0", "T % 64 == 64", "T < 0", "T % 64", "é <= ü", ""] {
            assert!(Bound::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_both_hold_is_found() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_string()).collect::<Vec<_>>();
        let rule = |line, what, bits| Rule { line, what, bits, align: None, why: None };
        let apart = || What::Separate(names(&["a", "b"]));
        let joined = || What::Together(names(&["b", "c", "a"]));
        let offset = |text| What::Offset(bound(text));
        let found = |rules: &[Rule]| contradiction(rules, &[]).map(|(a, b, _)| (a, b));
        assert_eq!(found(&[rule(3, apart(), None), rule(9, joined(), Some(64))]), Some((9, 3)));
        assert_eq!(found(&[rule(3, apart(), Some(32)), rule(9, joined(), Some(64))]), None);
        assert_eq!(found(&[rule(3, What::OwnLine("a".into()), None), rule(9, joined(), None)]), Some((9, 3)));
        assert_eq!(found(&[rule(3, offset("x % 64 == 0"), None), rule(9, offset("x == 120"), None)]), Some((9, 3)));
        assert_eq!(found(&[rule(3, offset("x % 64 == 56"), None), rule(9, offset("x == 120"), None)]), None);
        assert_eq!(found(&[rule(3, offset("x > 8"), None), rule(9, offset("x <= 8"), None)]), Some((9, 3)));
        assert_eq!(found(&[rule(3, offset("x == 8"), None), rule(9, offset("x != 8"), None)]), Some((9, 3)));
        let meant = [Deliberate { line: 1, name: "v".into(), offset: None }];
        assert!(contradiction(&[rule(4, What::NoStraddle("v".into()), None)], &meant).is_some());
        assert!(contradiction(&[rule(4, What::NoStraddle("w".into()), None)], &meant).is_none());
    }

    proptest! {
        /// Two bounds exclude each other only where no number satisfies both.
        #[test]
        fn excluded_bounds_have_no_number(a in (1u64..20, 0u64..20, 0usize..6), b in (1u64..20, 0u64..20, 0usize..6)) {
            let of = |(modulo, value, relation): (u64, u64, usize)| Bound {
                name: "x".into(), modulo: (modulo > 1).then_some(modulo), relation: RELATIONS[relation].1, value,
            };
            let (a, b) = (of(a), of(b));
            if a.excludes(&b) {
                prop_assert!((0..2000).all(|n| !(a.holds(n) && b.holds(n))), "{a} {b}");
            }
        }
    }
}
