//! Which lists are merged, and by what: the patch strategies of the table of fields.

use crate::fields::{self, Field, StructRef, Type};
use crate::resources::Resource;

/// How a list is patched.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    /// As a whole.
    Replaced,
    /// As a set of scalars.
    Set,
    /// Item by item, told apart by this field.
    Keyed(&'static str, Schema),
}

/// What is known about the fields of a map. Fields that are not known: maps are merged, lists are replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema(Option<StructRef>);

impl Schema {
    fn of(ty: &Type) -> Self {
        match ty {
            Type::Struct(of) => Self(Some(*of)),
            Type::Scalar(_) | Type::Any | Type::Map { .. } | Type::List { .. } => Self(None),
        }
    }

    fn field(self, name: &str) -> Option<&'static Field> {
        self.0.and_then(|of| of.get().field(name))
    }

    pub(super) fn list(self, name: &str) -> List {
        let Some(Field { ty: Type::List { element, .. }, patch: Some(patch), .. }) = self.field(name) else {
            return List::Replaced;
        };
        match (patch.merges, patch.key.as_str()) {
            (false, _) => List::Replaced,
            (true, "") => List::Set,
            (true, key) => List::Keyed(key, Self::of(element)),
        }
    }

    pub(super) fn child(self, name: &str) -> Self {
        self.field(name).map_or(Self(None), |field| Self::of(&field.ty))
    }

    pub(super) fn is_replaced(self, name: &str) -> bool {
        self.field(name).and_then(|field| field.patch.as_ref()).is_some_and(|patch| patch.replaces)
    }
}

/// How objects of a kind are patched.
pub(crate) fn schema(resource: &Resource) -> Schema {
    fields::of_kind(resource.api_version, resource.kind).map_or(Schema(None), |ty| Schema::of(&ty))
}
