//! Edits of a manifest's text that leave everything else as it is: comments, order, quotes, blank lines.
//!
//! An edit is found by looking at lines and columns, not by understanding all of YAML. That is safe because whoever makes
//! one reads the result again, and keeps it only if it means what it should.

use std::ops::Range;

use crate::manifest::{Node, Position};

/// A text that is edited.
pub struct Text {
    lines: Vec<String>,
}

impl Text {
    /// The text, line by line.
    pub fn new(text: &str) -> Self {
        Self { lines: text.split_inclusive('\n').map(str::to_owned).collect() }
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.lines.concat()
    }

    fn line(&self, position: Position) -> Option<usize> {
        let line = usize::try_from(position.line.checked_sub(1)?).ok()?;
        (line < self.lines.len()).then_some(line)
    }

    /// The byte of its line at which a position stands.
    fn byte(&self, position: Position) -> Option<(usize, usize)> {
        let line = self.line(position)?;
        let column = usize::try_from(position.column.checked_sub(1)?).ok()?;
        let text = &self.lines[line];
        let byte = text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(column)?;
        Some((line, byte))
    }

    /// The byte after a scalar of one line.
    fn end(&self, scalar: &Node) -> Option<(usize, usize)> {
        let position = scalar.position()?;
        let after = Position { column: position.column + u64::try_from(scalar.len()).ok()?, ..position };
        self.byte(after)
    }

    /// The lines of an item of a block sequence, and the column of its dash. `None` for other styles.
    fn item(&self, item: &Node) -> Option<(Range<usize>, usize)> {
        let (line, byte) = self.byte(item.position()?)?;
        let before = self.lines[line].get(..byte)?.trim_end();
        let indent = before.strip_suffix('-').filter(|indent| indent.chars().all(|c| c == ' '))?.len();
        let belongs = |line: &&String| {
            let text = line.trim();
            text.is_empty() || text.starts_with('#') || indent_of(line) > indent
        };
        let mut end = line + 1 + self.lines[line + 1..].iter().take_while(belongs).count();
        // Blank lines and comments at the end are about what follows, unless they are indented like the item's own.
        let is_apart = |line: &String| {
            let text = line.trim();
            text.is_empty() || (text.starts_with('#') && indent_of(line) <= indent)
        };
        while end > line + 1 && is_apart(&self.lines[end - 1]) {
            end -= 1;
        }
        Some((line..end, indent))
    }

    /// The same, with the comments right above it.
    fn item_with_comments(&self, item: &Node) -> Option<(Range<usize>, usize)> {
        let (lines, indent) = self.item(item)?;
        let is_comment = |line: &&String| line.trim().starts_with('#') && indent_of(line) == indent;
        let above = self.lines[..lines.start].iter().rev().take_while(is_comment).count();
        Some((lines.start - above..lines.end, indent))
    }

    /// Takes an item out of a list.
    pub fn remove_item(&mut self, list: &[Node], at: usize) -> Option<()> {
        if list.len() < 2 {
            return None;
        }
        if let Some((lines, _)) = self.item_with_comments(list.get(at)?) {
            self.lines.drain(lines);
            return Some(());
        }
        // In a flow sequence the comma goes, too.
        let (start, end) = match list.get(at + 1) {
            Some(next) => (self.byte(list[at].position()?)?, self.byte(next.position()?)?),
            None => (self.end(&list[at - 1])?, self.end(&list[at])?),
        };
        (start.0 == end.0).then(|| self.lines[start.0].replace_range(start.1..end.1, ""))
    }

    /// Puts an item of a block sequence in front of another.
    pub fn move_item(&mut self, list: &[Node], from: usize, before: usize) -> Option<()> {
        let (moved, _) = self.item_with_comments(list.get(from)?)?;
        let (target, _) = self.item_with_comments(list.get(before)?)?;
        let mut lines: Vec<String> = self.lines.drain(moved).collect();
        end_line(lines.last_mut()?);
        self.lines.splice(target.start..target.start, lines);
        Some(())
    }

    /// Puts new items of a block sequence in front of one.
    pub fn insert_item(&mut self, list: &[Node], before: usize, item: &[&str]) -> Option<()> {
        let (target, indent) = self.item_with_comments(list.get(before)?)?;
        self.lines.splice(target.start..target.start, as_item(indent, item));
        Some(())
    }

    /// Puts other items in the place of one, and keeps its comments above them.
    pub fn replace_item(&mut self, item: &Node, items: &[Vec<String>]) -> Option<()> {
        let (lines, indent) = self.item(item)?;
        let comments: Vec<String> =
            self.lines[lines.clone()].iter().filter_map(|line| comment(line)).collect();
        let comments = comments.into_iter().map(|comment| format!("{}{comment}\n", " ".repeat(indent)));
        let made = items.iter().flat_map(|item| {
            let item: Vec<&str> = item.iter().map(String::as_str).collect();
            as_item(indent, &item)
        });
        let made: Vec<String> = comments.chain(made).collect();
        self.lines.splice(lines, made);
        Some(())
    }

    /// Adds a field in front of the first of a map.
    pub fn add_first_field(&mut self, map: &Node, field: &str) -> Option<()> {
        let position = map.position()?;
        let (line, byte) = self.byte(position)?;
        let is_flow = self.lines[line].get(..byte)?.trim_end().ends_with(['{', ',']);
        let indent = " ".repeat(usize::try_from(position.column).ok()? - 1);
        let added = if is_flow { format!("{field}, ") } else { format!("{field}\n{indent}") };
        self.lines[line].insert_str(byte, &added);
        Some(())
    }

    /// Adds a field after another, whose value is a scalar on its line.
    pub fn add_field_after(&mut self, key: Position, scalar: &Node, field: &str) -> Option<()> {
        let (line, byte) = self.end(scalar)?;
        let (key_line, key_byte) = self.byte(key)?;
        let is_block = key_line == line && self.lines[line].get(..key_byte)?.trim().is_empty();
        if is_block {
            end_line(&mut self.lines[line]);
            let indent = " ".repeat(indent_of(&self.lines[line]));
            self.lines.insert(line + 1, format!("{indent}{field}\n"));
        } else {
            self.lines[line].insert_str(byte, &format!(", {field}"));
        }
        Some(())
    }

    /// Replaces a word, if it stands there.
    pub fn replace_word(&mut self, at: Position, word: &str, by: &str) -> Option<()> {
        let (line, byte) = self.byte(at)?;
        self.lines[line].get(byte..)?.strip_prefix(word)?;
        self.lines[line].replace_range(byte..byte + word.len(), by);
        Some(())
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The last line of a file may lack its end.
fn end_line(line: &mut String) {
    if !line.ends_with('\n') {
        line.push('\n');
    }
}

fn as_item(indent: usize, item: &[&str]) -> Vec<String> {
    let start = |at: usize| if at == 0 { "- " } else { "  " };
    item.iter().enumerate().map(|(at, line)| format!("{}{}{line}\n", " ".repeat(indent), start(at))).collect()
}

/// The comment at the end of a line, or that is the line.
fn comment(line: &str) -> Option<String> {
    let text = line.trim();
    if text.starts_with('#') {
        return Some(text.to_owned());
    }
    // One in quotes is text.
    let (code, after) = text.split_once(" #")?;
    let is_quoted = code.matches('"').count() % 2 == 1 || code.matches('\'').count() % 2 == 1;
    (!is_quoted).then(|| format!("#{after}"))
}
