//! Prints the symbols of an image by address, as `nm -nS` does: `cargo run --example symbols FILE`. The letter is only
//! what is known of every source: `t` for code, `d` for data, `?` for labels. Sizes are in bytes, decimal.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example is a program")]

use straddle::error::Result;
use straddle::image::{Image, LARGEST, SymbolKind, unpack};

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_default();
    let name = path.display().to_string();
    let unpacked = unpack(straddle::open::map(path.as_ref())?, &name, LARGEST)?;
    let image = Image::parse(&unpacked.bytes, &name)?;
    image.need_symbols()?;
    for symbol in &image.symbols {
        let letter = match symbol.kind {
            SymbolKind::Function => 't',
            SymbolKind::Data | SymbolKind::Tls => 'd',
            _ => '?',
        };
        println!("{:016x} {} {letter} {}", symbol.value, symbol.size, symbol.name);
    }
    Ok(())
}
