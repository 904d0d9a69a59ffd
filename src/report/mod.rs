//! Any value → text. Two middle forms: a [`page::Page`], which table, markdown, html and csv render, and
//! [`findings::Findings`], which sarif, github and gitlab render.

mod advice;
pub mod check;
pub mod csv;
pub mod diff;
pub mod doctor;
mod drawn;
pub mod figure;
pub mod findings;
pub mod github;
pub mod gitlab;
pub mod html;
pub mod markdown;
pub mod page;
pub mod sarif;
pub mod scan;
mod sweep;
pub mod table;
pub mod types;
pub mod variants;
pub mod verdict;
