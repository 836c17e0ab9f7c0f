//! Strategic merge patch, rule by rule.
