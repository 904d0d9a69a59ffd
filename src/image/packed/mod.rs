//! Kernels as they are shipped → the image inside: bzImage, EFI zboot, or a compressed file of its own.
//!
//! What a file is, its content says, never its name. Whatever is unpacked is bounded: by the limit of the caller, and by
//! the length that the kernel's own build wrote behind the data.

mod boot;
mod codec;

use boot::Payload;
use codec::{Codec, Failure};

use crate::error::{Error, Result};
use crate::open::Bytes;

/// The bytes of an image, and what they were wrapped in.
#[derive(Debug)]
pub struct Unpacked {
    pub bytes: Bytes,
    /// `bzImage, xz`, outermost first; `None`: nothing had to be unpacked.
    pub packed: Option<String>,
}

/// No kernel is larger, and a file of some kilobytes can promise anything.
pub const LARGEST: u64 = 2 << 30;

/// A compressed bzImage has two layers; more than these are somebody's joke.
const LAYERS: usize = 4;

/// Takes off what a kernel is wrapped in. Bytes that are not wrapped are handed back as they are; `path` is for messages.
///
/// # Errors
/// One line when the wrapping is damaged, cut short or not one known here, or when more than `limit` bytes come out.
pub fn unpack(bytes: Bytes, path: &str, limit: u64) -> Result<Unpacked> {
    let mut layers: Vec<&str> = Vec::new();
    let mut bytes = bytes;
    let fail = |layers: &[&str], problem: String| {
        let inside = if layers.is_empty() { String::new() } else { format!(" ({})", layers.join(", ")) };
        Error::input(format!("unpacking {path}{inside}"), problem)
    };
    loop {
        let payload = match boot::payload(&bytes) {
            Some(Ok(payload)) => {
                layers.push(payload.container);
                payload
            }
            Some(Err((container, problem))) => return Err(fail(&[&layers[..], &[container]].concat(), problem)),
            None => Payload::file(&bytes),
        };
        let Some(codec) = Codec::of(payload.data) else {
            return match payload.container {
                "" => Ok(Unpacked { bytes, packed: (!layers.is_empty()).then(|| layers.join(", ")) }),
                _ => Err(fail(
                    &layers,
                    format!("its payload, {} bytes, is compressed in no way known here", payload.data.len()),
                )),
            };
        };
        layers.push(codec.name());
        if layers.len() > LAYERS {
            return Err(fail(&layers, "wrapped too many times".into()));
        }
        let (data, promised) = payload.split(codec).map_err(|problem| fail(&layers, problem))?;
        let most = promised.map_or(limit, |n| n.min(limit));
        let out = codec.decode(data, most).map_err(|failure| match failure {
            Failure::Larger(n) if n < limit => {
                fail(&layers, format!("more comes out than the {n} bytes that it promises"))
            }
            Failure::Larger(n) => fail(&layers, format!("more than {n} bytes come out, which no kernel is")),
            Failure::Damaged(e) => {
                let error = fail(&layers, format!("the compressed data are damaged or cut short ({e})"));
                error.hint("copy or build it again").because(e)
            }
        })?;
        if let Some(promised) = promised.filter(|n| *n != out.len() as u64) {
            return Err(fail(&layers, format!("{} bytes come out of the {promised} that it promises", out.len())));
        }
        bytes = Bytes::Owned(out);
    }
}
