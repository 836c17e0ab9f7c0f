//! What is wrong with a manifest, and where, as a user reads it.

use std::fmt;

use super::tree::Position;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands, if known.
    pub position: Option<Position>,
    /// In which document, from 1.
    pub document: Option<usize>,
    /// In which object, as `job/x`.
    pub object: Option<String>,
    /// The field, if there is one.
    pub path: String,
    /// What is wrong.
    pub text: String,
}

/// A manifest that can't be run: everything that is wrong with it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The file, as it was named.
    pub file: String,
    /// What is wrong, in the order of the file.
    pub problems: Vec<Problem>,
    /// What to do about it.
    pub hint: String,
}

impl Rejected {
    /// A file in which nothing can be pointed at.
    pub fn whole(file: &str, text: impl Into<String>, hint: &str) -> Self {
        let problem =
            Problem { position: None, document: None, object: None, path: String::new(), text: text.into() };
        Self { file: file.to_owned(), problems: vec![problem], hint: hint.to_owned() }
    }
}

impl fmt::Display for Rejected {
    /// A line for each problem, as compilers write it, and the hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            write!(f, "error: {}:", self.file)?;
            if let Some(position) = problem.position {
                write!(f, "{position}:")?;
            }
            if let Some(document) = problem.document {
                write!(f, " document {document}:")?;
            }
            if let Some(object) = &problem.object {
                write!(f, " {object}:")?;
            }
            writeln!(f, " {}", problem.text)?;
        }
        write!(f, "hint: {}", self.hint)
    }
}

impl std::error::Error for Rejected {}
