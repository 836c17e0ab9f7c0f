//! Where in an object something is wrong, and what: field paths and field errors with upstream's texts.

use std::fmt;

use serde_json::Value;

/// A path such as `spec.template.spec.containers[0].name` or `metadata.labels[a/b]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    /// A path of one or more names.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The path of no field: the whole object.
    pub fn root() -> Self {
        Self(String::new())
    }

    /// The field `name` below this one.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { self.with(&[".", name]) }
    }

    /// The item at `index` of the list here.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The value under `key` of the map here.
    pub fn key(&self, key: &str) -> Self {
        self.with(&["[", key, "]"])
    }

    /// Every rule makes paths, also when nothing is wrong: no formatting, one allocation.
    fn with(&self, parts: &[&str]) -> Self {
        let mut text =
            String::with_capacity(self.0.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        text.push_str(&self.0);
        parts.iter().for_each(|part| text.push_str(part));
        Self(text)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of a field error; its name is the `reason` of a Status cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The value must be there.
    Required,
    /// The value is there, and wrong.
    Invalid,
    /// The value is not one of a closed set.
    NotSupported,
    /// The value is there twice.
    Duplicate,
    /// The value must not be there.
    Forbidden,
    /// The value has too many bytes.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// The value names something that does not exist.
    NotFound,
    /// The value is of the wrong type.
    TypeInvalid,
}

impl ErrorKind {
    /// The machine-readable reason, as in `status.details.causes[].reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }
}

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// What kind of wrong.
    pub kind: ErrorKind,
    /// Which field.
    pub path: Path,
    /// The offending value as JSON; `None` where upstream leaves it out.
    pub value: Option<Value>,
    /// What is wanted instead; may be empty.
    pub detail: String,
}

/// All that is wrong with an object, in the order in which the rules stand.
pub type Errors = Vec<Error>;

impl Error {
    /// A value that must be there and is not.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Required, path: path.clone(), value: None, detail: detail.into() }
    }

    /// A value that is wrong.
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Invalid,
            path: path.clone(),
            value: Some(value.into()),
            detail: detail.into(),
        }
    }

    /// A value that is wrong and that upstream does not print.
    pub fn invalid_omitted(path: &Path, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Invalid, path: path.clone(), value: None, detail: detail.into() }
    }

    /// A value outside of a closed set; `supported` is printed in the order given.
    pub fn not_supported(path: &Path, value: &str, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self {
            kind: ErrorKind::NotSupported,
            path: path.clone(),
            value: Some(value.into()),
            detail: if quoted.is_empty() {
                String::new()
            } else {
                format!("supported values: {}", quoted.join(", "))
            },
        }
    }

    /// A value that stands twice.
    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self {
            kind: ErrorKind::Duplicate,
            path: path.clone(),
            value: Some(value.into()),
            detail: String::new(),
        }
    }

    /// A field that must not be set here.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Forbidden, path: path.clone(), value: None, detail: detail.into() }
    }

    /// A text of more than `max` bytes.
    pub fn too_long(path: &Path, max: usize) -> Self {
        Self {
            kind: ErrorKind::TooLong,
            path: path.clone(),
            value: None,
            detail: format!("may not be more than {max} bytes"),
        }
    }

    /// A list of `count` items where at most `max` may stand.
    pub fn too_many(path: &Path, count: usize, max: usize) -> Self {
        Self {
            kind: ErrorKind::TooMany,
            path: path.clone(),
            value: Some(count.into()),
            detail: format!("must have at most {max} items"),
        }
    }

    /// A reference to something that is not there.
    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self {
            kind: ErrorKind::NotFound,
            path: path.clone(),
            value: Some(value.into()),
            detail: String::new(),
        }
    }

    /// The text without the path: the `message` of a Status cause.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// `path: body`, as upstream prints it.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}
