//! What is known about the fields of the kinds that are served: one table, read once, for patches and for ownership.
//!
//! `types.txt` is made by `go run ./fieldtypes` in `conformance/`, from the schema that client-go carries and the struct
//! tags of k8s.io/api. A line is `kind <apiVersion> <kind> <type>` or `type <name>[!] <field>...`, a field is
//! `name:type[+|?][=default][~strategy@key]`:
//!
//! * types: a scalar, a struct, `[!]T` an atomic list, `[]T` a set, `[key,key]T` a keyed list, `{}T` a map, `{!}T` an
//!   atomic map; a struct with `!` is atomic
//! * `+`: an object always has it; `?`: it has it when it was given; neither: it has it when it is not empty
//! * `=`: the value of a key that is not given
//! * `~`: how a strategic merge patch treats it

mod fit;
mod parse;
mod tidy;

use std::sync::LazyLock;

use serde_json::Value;

pub(crate) use fit::fits;
pub(crate) use tidy::{is_empty, is_tidy, tidy, zero};

static TABLE: LazyLock<Table> = LazyLock::new(|| parse::table(include_str!("types.txt")));

/// All types.
#[derive(Debug)]
struct Table {
    structs: Vec<Struct>,
    /// `apiVersion`, `kind`, and the place of its struct.
    kinds: Vec<(String, String, usize)>,
}

/// A map whose fields are known.
#[derive(Debug)]
pub(crate) struct Struct {
    /// Ordered by name.
    fields: Vec<Field>,
    /// Where fields are, by [`slot`] of their names; the first free place after it when that is taken.
    places: Vec<Option<u8>>,
    is_atomic: bool,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) presence: Presence,
    /// What a key counts as that is not given.
    pub(crate) default: Option<Value>,
    /// How a strategic merge patch treats it.
    pub(crate) patch: Option<Patch>,
}

/// When upstream's typed objects have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Always, if only with its zero.
    Always,
    /// When it was given.
    Given,
    /// When it is not empty.
    Filled,
}

/// The patch strategy of a field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) merges: bool,
    pub(crate) replaces: bool,
    /// Empty for a list of scalars.
    pub(crate) key: String,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar(Scalar),
    /// Nothing is known: maps are granular, lists atomic.
    Any,
    Struct(StructRef),
    Map {
        element: Box<Type>,
        is_atomic: bool,
    },
    List {
        element: Box<Type>,
        relation: Relation,
    },
}

/// A struct by its place in the table: types may contain themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StructRef {
    place: usize,
    /// Whether it is atomic here, whatever the struct says.
    is_atomic: bool,
}

/// What a scalar may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Numeric,
    Boolean,
    /// Any of them: quantities, times, a number or text.
    Untyped,
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// They are not.
    Atomic,
    /// By their values.
    Set,
    /// By these fields, ordered by name.
    Keyed(Vec<String>),
}

impl StructRef {
    /// The struct itself.
    pub(crate) fn get(self) -> &'static Struct {
        &TABLE.structs[self.place]
    }

    /// Whether it changes as a whole.
    pub(crate) fn is_atomic(self) -> bool {
        self.is_atomic || self.get().is_atomic
    }
}

/// Where to look first for a name: its ends tell the fields of a struct apart, mostly.
fn slot(name: &str) -> usize {
    let end = |byte: Option<u8>| usize::from(byte.unwrap_or_default());
    let bytes = name.as_bytes();
    let third = bytes.len().checked_sub(3).map(|place| bytes[place]);
    name.len() * 7 + end(bytes.first().copied()) * 31 + end(bytes.last().copied()) * 17 + end(third)
}

impl Struct {
    fn new(fields: Vec<Field>, is_atomic: bool) -> Self {
        // At most half full, so that what is not there is soon known not to be.
        let mut places = vec![None; (fields.len() * 2).next_power_of_two()];
        for (place, field) in fields.iter().enumerate() {
            let mut at = slot(&field.name) % places.len();
            while places[at].is_some() {
                at = (at + 1) % places.len();
            }
            places[at] = Some(u8::try_from(place).expect("no struct has so many fields"));
        }
        Self { fields, places, is_atomic }
    }

    /// A field by its name: every write of an object asks for all of its fields, several times.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let mut at = slot(name) % self.places.len();
        while let Some(place) = self.places[at] {
            let field = &self.fields[usize::from(place)];
            if field.name == name {
                return Some(field);
            }
            at = (at + 1) % self.places.len();
        }
        None
    }

    /// The fields that an object always has.
    pub(crate) fn always(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.presence == Presence::Always)
    }
}

impl Type {
    /// Whether a value of this type changes as a whole.
    pub(crate) fn is_leaf(&self) -> bool {
        match self {
            Self::Scalar(_) => true,
            Self::Any => false,
            Self::Struct(of) => of.is_atomic(),
            Self::Map { is_atomic, .. } => *is_atomic,
            Self::List { relation, .. } => *relation == Relation::Atomic,
        }
    }

    /// The type of a field of a map of this type, and what else is known about it.
    pub(crate) fn member(&self, name: &str) -> (&Self, Option<&Field>) {
        match self {
            Self::Struct(of) => match of.get().field(name) {
                Some(field) => (&field.ty, Some(field)),
                None => (&Self::Any, None),
            },
            Self::Map { element, .. } => (element, None),
            Self::Scalar(_) | Self::Any | Self::List { .. } => (&Self::Any, None),
        }
    }
}

/// The type of the objects of a kind.
pub(crate) fn of_kind(api_version: &str, kind: &str) -> Option<Type> {
    let found = TABLE.kinds.iter().find(|(version, name, _)| version == api_version && name == kind);
    found.map(|(_, _, place)| Type::Struct(StructRef { place: *place, is_atomic: false }))
}
