//! Objects: data and function symbols with one identity key and a class.
