//! Pictures in their middle form: what is drawn, not how. Each stands beside a table or a sentence that says the same;
//! renderers without pictures leave them out.

/// A picture with its caption.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub caption: String,
    pub drawing: Drawing,
}

/// What there is to draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawing {
    Lines(Lines),
    Forest(Forest),
    Square(Square),
    Strip(Strip),
}

/// Cache lines, a row each, and who lies on them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Of a line, in bytes.
    pub line: u64,
    pub rows: Vec<LineRow>,
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineRow {
    /// Section and address, or the line's number in a type.
    pub label: String,
    /// By `from`; one that begins inside another is drawn over it.
    pub spans: Vec<Span>,
}

/// The bytes of one object or member on a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// In bytes from the start of the line; `to` is one past the last.
    pub from: u64,
    pub to: u64,
    pub name: String,
    /// Type, size, readers and writers: what does not fit on it.
    pub about: String,
    pub mark: Mark,
    /// It goes on, on the line before or behind.
    pub continues: bool,
}

/// What a span is in what its picture shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    #[default]
    Plain,
    /// What the finding is about, or who was asked for.
    Subject,
    /// A lock, an atomic or something volatile.
    Contended,
}

/// Changes with their intervals, one below the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forest {
    /// Up to this many percent count as none.
    pub margin: f64,
    pub rows: Vec<Interval>,
}

/// In percent; plus is worse.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    pub name: String,
    pub percent: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// The same in words: `27.1 % slower [26, 28]`.
    pub words: String,
}

/// Both codes on both landings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Square {
    /// Base's code on base's landing and on patched's; then patched's code.
    pub cells: [String; 4],
    /// What the move does to base's code, and to patched's.
    pub moves: [String; 2],
    /// What the patch does on base's landing, and on patched's.
    pub patches: [String; 2],
}

/// What base and patched cost in each block and layout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strip {
    /// Of the values, as the metric's name and unit say.
    pub axis: String,
    pub rows: Vec<Pair>,
}

/// One block or layout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pair {
    pub label: String,
    pub base: f64,
    pub patched: f64,
    /// Each version on its own landing, as it was built.
    pub as_built: bool,
}
