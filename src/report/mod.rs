//! Any value → text. A [`page::Page`] is the middle form that table, markdown and html render.

mod advice;
pub mod diff;
pub mod doctor;
mod drawn;
pub mod figure;
pub mod html;
pub mod markdown;
pub mod page;
pub mod scan;
mod sweep;
pub mod table;
pub mod types;
pub mod variants;
pub mod verdict;
