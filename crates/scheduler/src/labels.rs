//! Labels of pods, kept small: tens of thousands of pods wait or run at the same time, and few are ever selected.

use std::collections::BTreeMap;
use std::fmt;

use windlass_api::selector::Selector;

/// Neither keys nor values of labels have such a character.
const END: char = '\n';

/// The labels of a pod.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Labels(Box<str>);

impl Labels {
    /// These labels.
    pub fn of(labels: Option<&BTreeMap<String, String>>) -> Self {
        let mut text = String::new();
        for (key, value) in labels.into_iter().flatten() {
            text.extend([key.as_str(), "=", value.as_str()]);
            text.push(END);
        }
        Self(text.into())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether they are these.
    pub fn is_same(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.all().eq(labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// All of them, in the order of their keys.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split_terminator(END).filter_map(|label| label.split_once('='))
    }

    /// The value of one.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.all().find(|(own, _)| *own == key).map(|(_, value)| value)
    }

    /// Whether a selector matches them.
    pub fn match_selector(&self, selector: &Selector) -> bool {
        selector.matches_values(|key| self.get(key))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.all()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_kept_found_and_selected() {
        let map: BTreeMap<String, String> = [("app", "web"), ("empty", ""), ("example.com/tier", "1")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        let labels = Labels::of(Some(&map));
        assert_eq!(
            labels.all().collect::<Vec<_>>(),
            [("app", "web"), ("empty", ""), ("example.com/tier", "1")]
        );
        assert_eq!((labels.get("empty"), labels.get("ap")), (Some(""), None));
        assert!(labels.is_same(Some(&map)));
        assert!(!labels.is_same(None));
        for (selector, want) in [
            ("app=web", true),
            ("app!=web", false),
            ("other notin (x)", true),
            ("empty", true),
            ("!app", false),
        ] {
            let selector = Selector::parse(selector).expect("a selector");
            assert_eq!(labels.match_selector(&selector), want, "{selector}");
        }
        assert!(Labels::default().is_empty() && Labels::of(None).is_same(None));
        assert_eq!(format!("{:?}", Labels::of(Some(&map))), format!("{map:?}"));
    }
}
