//! Reads the text of a label selector, with upstream's tolerance and upstream's complaints.

use std::collections::BTreeSet;
use std::str::Chars;

use super::{Operator, Requirement};
use crate::validation::meta::qualified_name;

/// Reads `a=b,c in (x,y),!d` into requirements in the order of the text.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { tokens: tokens(text), next: 0 }.parse()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    End,
    /// A key, a value, or one of the words `in` and `notin`.
    Word(String),
    /// One of `= == != < > ! ( ) ,`.
    Symbol(&'static str),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::End => "",
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
        }
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self, Self::Symbol(this) if *this == symbol)
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut rest = text.chars();
    let mut tokens = Vec::new();
    while let Some(token) = token(&mut rest) {
        tokens.push(token);
    }
    tokens
}

fn token(rest: &mut Chars<'_>) -> Option<Token> {
    let blank = |c: char| [' ', '\t', '\r', '\n'].contains(&c);
    *rest = rest.as_str().trim_start_matches(blank).chars();
    let text = rest.as_str();
    for symbol in ["==", "!=", "=", "!", "(", ")", ",", ">", "<"] {
        if let Some(after) = text.strip_prefix(symbol) {
            *rest = after.chars();
            return Some(Token::Symbol(symbol));
        }
    }
    let end = text.find(|c| blank(c) || "=!(),><".contains(c)).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after.chars();
    (!word.is_empty()).then(|| Token::Word(word.to_owned()))
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(requirements),
                token if !starts_requirement(&token) => {
                    return Err(found(&token, ", expected: !, identifier, or 'end of string'"));
                }
                Token::Word(_) | Token::Symbol(_) => {}
            }
            let requirement =
                self.requirement().map_err(|text| format!("unable to parse requirement: {text}"))?;
            requirements.push(requirement);
            let token = self.take();
            if token == Token::End {
                return Ok(requirements);
            }
            if !token.is(",") {
                return Err(found(&token, ", expected: ',' or 'end of string'"));
            }
            let token = self.peek();
            if !starts_requirement(&token) {
                return Err(found(&token, ", expected: identifier after ','"));
            }
        }
    }

    fn peek(&self) -> Token {
        self.tokens.get(self.next).cloned().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.take();
        let is_negated = token.is("!");
        if is_negated {
            token = self.take();
        }
        let Token::Word(key) = token else {
            return Err(found(&token, ", expected: identifier"));
        };
        let wrong = qualified_name(&key);
        if !wrong.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; ")));
        }
        let next = self.peek();
        if is_negated {
            return Requirement::new(&key, Operator::DoesNotExist, Vec::new());
        }
        if next == Token::End || next.is(",") {
            return Requirement::new(&key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => self.exact_value()?,
        };
        Requirement::new(&key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let token = self.take();
        match token.text() {
            "in" => Ok(Operator::In),
            "notin" => Ok(Operator::NotIn),
            "=" => Ok(Operator::Equals),
            "==" => Ok(Operator::DoubleEquals),
            "!=" => Ok(Operator::NotEquals),
            ">" => Ok(Operator::GreaterThan),
            "<" => Ok(Operator::LessThan),
            _ => Err(found(&token, ", expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn exact_value(&mut self) -> Result<Vec<String>, String> {
        let next = self.peek();
        if next == Token::End || next.is(",") {
            return Ok(vec![String::new()]);
        }
        match self.take() {
            Token::Word(value) => Ok(vec![value]),
            token => Err(found(&token, ", expected: identifier")),
        }
    }

    // `()` and the gaps in `(,a,,b,)` are the empty value; values stand once each, in order.
    fn set(&mut self) -> Result<Vec<String>, String> {
        let token = self.take();
        if !token.is("(") {
            return Err(found(&token, " expected: '('"));
        }
        let mut values = BTreeSet::new();
        let first = self.peek();
        if first.is(")") {
            values.insert(String::new());
        } else if !matches!(first, Token::Word(_)) && !first.is(",") {
            return Err(found(&first, ", expected: ',', ')' or identifier"));
        }
        while !self.peek().is(")") {
            self.set_item(&mut values)?;
        }
        self.next += 1;
        Ok(values.into_iter().collect())
    }

    fn set_item(&mut self, values: &mut BTreeSet<String>) -> Result<(), String> {
        let token = self.take();
        let next = self.peek();
        if let Token::Word(value) = token {
            values.insert(value);
            return if next.is(",") || next.is(")") {
                Ok(())
            } else {
                Err(found(&next, ", expected: ',' or ')'"))
            };
        }
        if !token.is(",") {
            return Err(found(&token, ", expected: ',', or identifier"));
        }
        if values.is_empty() || next.is(",") || next.is(")") {
            values.insert(String::new());
        }
        Ok(())
    }
}

fn starts_requirement(token: &Token) -> bool {
    matches!(token, Token::Word(_)) || token.is("!")
}

fn found(token: &Token, expected: &str) -> String {
    format!("found '{}'{expected}", token.text())
}
