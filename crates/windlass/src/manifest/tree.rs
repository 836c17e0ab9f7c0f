//! A YAML document as JSON values that know where in the file they stand.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::{Location, Spanned};

/// A place in a file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl Position {
    /// `None` for a location that the parser does not know.
    pub fn of(location: Location) -> Option<Self> {
        let position = Self { line: location.line(), column: location.column() };
        (position.line > 0).then_some(position)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    position: Option<Position>,
    /// How many characters a scalar takes in the file.
    len: usize,
    tree: Tree,
}

#[derive(Clone, Debug)]
enum Tree {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
struct Key {
    position: Option<Position>,
    name: String,
}

impl Node {
    /// A value that comes from JSON, and so does not know where it stands.
    pub fn unplaced(value: Value) -> Self {
        let tree = match value {
            Value::Array(items) => Tree::List(items.into_iter().map(Self::unplaced).collect()),
            Value::Object(fields) => {
                let key = |name| Key { position: None, name };
                Tree::Map(
                    fields.into_iter().map(|(name, value)| (key(name), Self::unplaced(value))).collect(),
                )
            }
            scalar => Tree::Scalar(scalar),
        };
        Self { position: None, len: 0, tree }
    }

    /// The value alone.
    pub fn to_json(&self) -> Value {
        match &self.tree {
            Tree::Scalar(value) => value.clone(),
            Tree::List(items) => items.iter().map(Self::to_json).collect(),
            Tree::Map(fields) => {
                fields.iter().map(|(key, value)| (key.name.clone(), value.to_json())).collect()
            }
        }
    }

    /// Where the document, or this value, begins.
    pub fn position(&self) -> Option<Position> {
        match &self.tree {
            Tree::Map(fields) => fields.first().and_then(|(key, _)| key.position).or(self.position),
            Tree::Scalar(_) | Tree::List(_) => self.position,
        }
    }

    /// The items of the list at field `name`.
    pub fn items(&self, name: &str) -> Option<&[Self]> {
        match &self.field(name)?.1.tree {
            Tree::List(items) => Some(items),
            Tree::Scalar(_) | Tree::Map(_) => None,
        }
    }

    /// The items of this list.
    pub fn list(&self) -> Option<&[Self]> {
        match &self.tree {
            Tree::List(items) => Some(items),
            Tree::Scalar(_) | Tree::Map(_) => None,
        }
    }

    /// How many characters this scalar takes in the file.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The value with a path such as `spec.template.spec.containers[0].name`.
    pub fn at(&self, path: &str) -> Option<&Self> {
        steps(path).into_iter().try_fold(self, |node, step| match &node.tree {
            Tree::List(items) => items.get(step.parse::<usize>().ok()?),
            Tree::Map(_) => node.field(step).map(|(_, value)| value),
            Tree::Scalar(_) => None,
        })
    }

    fn field(&self, name: &str) -> Option<(&Key, &Self)> {
        match &self.tree {
            Tree::Map(fields) => {
                fields.iter().find(|(key, _)| key.name == name).map(|(key, node)| (key, node))
            }
            Tree::Scalar(_) | Tree::List(_) => None,
        }
    }

    /// Where the field with a path such as `spec.template.spec.containers[0].name` or `metadata.labels[a/b]` stands;
    /// for one that is missing, the nearest field around it.
    pub fn locate(&self, path: &str) -> Option<Position> {
        let mut node = self;
        let mut found = self.position();
        for step in steps(path) {
            match (&node.tree, step) {
                (Tree::List(items), step) => {
                    let Some(item) = step.parse::<usize>().ok().and_then(|at| items.get(at)) else { break };
                    node = item;
                    found = item.position().or(found);
                }
                (Tree::Map(_), step) => {
                    let Some((key, value)) = node.field(step) else { break };
                    node = value;
                    found = key.position.or(found);
                }
                (Tree::Scalar(_), _) => break,
            }
        }
        found
    }
}

/// The names, keys and indexes of a path. A key in brackets may contain dots.
fn steps(path: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').unwrap_or((bracketed, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        steps.push(step);
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    steps
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: tree, referenced, .. } = Spanned::<Tree>::deserialize(deserializer)?;
        let len = usize::try_from(referenced.span().len()).unwrap_or(0);
        Ok(Self { position: Position::of(referenced), len, tree })
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Tree, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom(format!("{value} is not a number")))?;
        Ok(Tree::Scalar(number.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut fields: Vec<(Key, Node)> = Vec::new();
        while let Some(Spanned { value: name, referenced, .. }) = access.next_key::<Spanned<String>>()? {
            if fields.iter().any(|(key, _)| key.name == name) {
                return Err(A::Error::custom(format!("field {name:?} stands twice")));
            }
            fields.push((Key { position: Position::of(referenced), name }, access.next_value()?));
        }
        Ok(Tree::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_at_dots_and_brackets_but_not_inside_of_brackets() {
        assert_eq!(steps("spec.containers[10].name"), ["spec", "containers", "10", "name"]);
        assert_eq!(steps("metadata.labels[a.b/c].x"), ["metadata", "labels", "a.b/c", "x"]);
        assert_eq!(steps(""), [""; 0]);
    }
}
