//! The `Accept` header: which form of an answer a client would rather have.

use http::{HeaderMap, header};

/// One thing that a client accepts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Clause {
    /// The media type, in lower case.
    pub(crate) media: String,
    /// The kind that the answer is to be converted to; empty for none.
    pub(crate) kind: String,
    /// The group of that kind.
    pub(crate) group: String,
    /// The version of that kind.
    pub(crate) version: String,
}

impl Clause {
    /// Whether JSON will do.
    pub(crate) fn takes_json(&self) -> bool {
        matches!(self.media.as_str(), "application/json" | "application/*" | "*/*")
    }

    /// Whether this asks for the protobuf encoding. It is not written here: those who ask for it read JSON too.
    pub(crate) fn is_protobuf(&self) -> bool {
        self.media == "application/vnd.kubernetes.protobuf"
    }

    fn parse(text: &str) -> (f32, Self) {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut clause) = (1.0, Self { media, ..Self::default() });
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "q" => quality = value.parse().unwrap_or(1.0),
                "as" => clause.kind = value.to_owned(),
                "g" => clause.group = value.to_owned(),
                "v" => clause.version = value.to_owned(),
                _ => {}
            }
        }
        (quality, clause)
    }
}

/// What the client accepts, best first. No header means anything.
pub(crate) fn clauses(headers: &HeaderMap) -> Vec<Clause> {
    let texts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut clauses: Vec<(f32, Clause)> = texts
        .flat_map(|text| text.split(','))
        .filter(|text| !text.trim().is_empty())
        .map(Clause::parse)
        .collect();
    clauses.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    if clauses.is_empty() {
        return vec![Clause { media: "*/*".to_owned(), ..Clause::default() }];
    }
    clauses.into_iter().map(|(_, clause)| clause).collect()
}

/// Whether the client reads gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|text| {
        let mut parts = text.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|part| matches!(part, "q=0" | "q=0.0"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_accepts_is_read_best_first() {
        let mut headers = HeaderMap::new();
        let text = "text/html;q=0.5, application/json;as=Table;v=v1;g=meta.k8s.io,application/json; q=0.9";
        headers.insert("accept", text.parse().expect("a header"));
        let clause = |media: &str, kind: &str, group: &str, version: &str| Clause {
            media: media.to_owned(),
            kind: kind.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
        };
        let want = vec![
            clause("application/json", "Table", "meta.k8s.io", "v1"),
            clause("application/json", "", "", ""),
            clause("text/html", "", "", ""),
        ];
        assert_eq!(clauses(&headers), want);
        assert_eq!(clauses(&HeaderMap::new()), vec![clause("*/*", "", "", "")]);
    }

    #[test]
    fn gzip_is_taken_unless_its_quality_is_nothing() {
        for (text, want) in
            [("gzip", true), ("deflate, gzip;q=0.5", true), ("gzip;q=0", false), ("identity", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("accept-encoding", text.parse().expect("a header"));
            assert_eq!(takes_gzip(&headers), want, "{text}");
        }
    }
}
