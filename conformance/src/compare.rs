//! Where two answers differ, and which differences are known.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// One place where two answers differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The conversation and its step: `deletes/a pod twice`.
    pub step: String,
    /// Where in the answer, as a JSON pointer.
    pub at: String,
    /// Ours, if it is there.
    pub ours: Option<Value>,
    /// Theirs, if it is there.
    pub theirs: Option<Value>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |value: &Option<Value>| value.as_ref().map_or("not there".to_owned(), Value::to_string);
        let (ours, theirs) = (text(&self.ours), text(&self.theirs));
        write!(f, "{} {}\n    ours:   {ours}\n    theirs: {theirs}", self.step, self.at)
    }
}

/// All places where two answers differ. Of two with different codes, that is the only one.
pub fn differences(step: &str, ours: &Value, theirs: &Value) -> Vec<Difference> {
    if ours.get("code") != theirs.get("code") {
        let brief = |answer: &Value| {
            Some(json!([answer["code"], answer["error"], answer["err"], answer["body"]["message"]]))
        };
        let (ours, theirs) = (brief(ours), brief(theirs));
        return vec![Difference { step: step.to_owned(), at: "/code".to_owned(), ours, theirs }];
    }
    let mut found = Vec::new();
    compare(step, "", ours, theirs, &mut found);
    found
}

fn compare(step: &str, at: &str, ours: &Value, theirs: &Value, found: &mut Vec<Difference>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let (a, b) = (a.get(key), b.get(key));
                let at = format!("{at}/{key}");
                match (a, b) {
                    (Some(a), Some(b)) => compare(step, &at, a, b, found),
                    _ => found.push(difference(step, &at, a, b)),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(step, &format!("{at}/{i}"), a, b, found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(difference(step, at, Some(ours), Some(theirs))),
    }
}

fn difference(step: &str, at: &str, ours: Option<&Value>, theirs: Option<&Value>) -> Difference {
    Difference { step: step.to_owned(), at: at.to_owned(), ours: ours.cloned(), theirs: theirs.cloned() }
}

/// A difference that we want, or can't help.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The step, or the beginning of steps up to a `*`.
    pub step: &'static str,
    /// Where; `*` stands for one part of the pointer, and everything below is meant too.
    pub at: &'static str,
    /// Why it is so.
    pub reason: &'static str,
}

impl Known {
    fn covers(&self, difference: &Difference) -> bool {
        let is_step = match self.step.strip_suffix('*') {
            Some(prefix) => difference.step.starts_with(prefix),
            None => difference.step == self.step,
        };
        let mut parts = difference.at.split('/');
        is_step
            && self
                .at
                .split('/')
                .all(|wanted| parts.next().is_some_and(|part| wanted == "*" || part == wanted))
    }
}

/// Prints what is known and gives what is not: new differences, and entries that no longer differ.
pub fn judge(differences: &[Difference], known: &[Known]) -> Vec<String> {
    let mut hits: BTreeMap<usize, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for difference in differences {
        let covering: Vec<usize> = (0..known.len()).filter(|&i| known[i].covers(difference)).collect();
        if covering.is_empty() {
            wrong.push(format!("differs: {difference}"));
        }
        for i in covering {
            *hits.entry(i).or_default() += 1;
        }
    }
    for (i, entry) in known.iter().enumerate() {
        match hits.get(&i) {
            Some(count) => println!("known, {count} times: {} {}: {}", entry.step, entry.at, entry.reason),
            None => wrong.push(format!("no longer differs: {} {} ({})", entry.step, entry.at, entry.reason)),
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_difference_and_a_stale_entry_are_both_wrong() {
        let ours = json!({"a": [1, {"b": 2}], "c": 3});
        let theirs = json!({"a": [1, {"b": 4}], "d": 3});
        let found = differences("x/one", &ours, &theirs);
        let places: Vec<&str> = found.iter().map(|difference| difference.at.as_str()).collect();
        assert_eq!(places, ["/a/1/b", "/c", "/d"]);
        let known = |step, at| Known { step, at, reason: "so" };
        assert_eq!(judge(&found, &[known("x/*", "/a/*/b"), known("x/one", "/c"), known("*", "/d")]), [""; 0]);
        let wrong = judge(&found, &[known("*", "/a"), known("x/one", "/c"), known("y/*", "/d")]);
        assert_eq!(
            wrong,
            ["differs: x/one /d\n    ours:   not there\n    theirs: 3", "no longer differs: y/* /d (so)",]
        );
    }
}
