//! Manifests: YAML or JSON in, objects that know where they stand in the file out.
//!
//! YAML is read into JSON values first and decoded after that, never straight into types: a scalar has the type that YAML
//! gives it, as for kubectl. Every problem of the file is found before anything runs.

mod decode;
mod problem;
mod tree;

use serde_json::{Value, json};

pub use decode::Kind;
pub use problem::{Problem, Rejected};
pub use tree::{Node, Position};

/// The namespace of objects that name none.
const DEFAULT_NAMESPACE: &str = "default";

const HINT_SYNTAX: &str = "the file must be YAML or JSON; see examples/ for Jobs that run";
const HINT_FIELDS: &str =
    "check the spelling and the type of the fields above; field names are case-sensitive";
const HINT_EMPTY: &str = "windlass run needs at least one Job; see examples/ for Jobs that run";

/// An object of a manifest.
#[derive(Clone, Debug)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// As it stands in the file, with its namespace filled in.
    pub json: Value,
    /// Where its fields stand.
    pub node: Node,
    /// In which document, from 1.
    pub document: usize,
}

impl Object {
    /// The namespace; empty for kinds that have none.
    pub fn namespace(&self) -> &str {
        self.json["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    /// `job/x`, with the namespace in front when it is not `default`.
    pub fn label(&self) -> String {
        let meta = &self.json["metadata"];
        let name = meta["name"].as_str().or_else(|| meta["generateName"].as_str()).unwrap_or_default();
        label(self.kind.name(), self.namespace(), name)
    }

    /// A problem at a field of this object.
    pub fn problem(&self, path: &str, text: impl Into<String>) -> Problem {
        Problem {
            position: self.node.locate(path),
            document: Some(self.document),
            object: Some(self.label()),
            path: path.to_owned(),
            text: text.into(),
        }
    }
}

/// `job/x`, with the namespace in front when it is not `default`.
pub fn label(kind: &str, namespace: &str, name: &str) -> String {
    let kind = kind.to_lowercase();
    if namespace.is_empty() || namespace == DEFAULT_NAMESPACE {
        format!("{kind}/{name}")
    } else {
        format!("{namespace}/{kind}/{name}")
    }
}

/// Reads all objects of a manifest. `file` is the name to put in messages.
pub fn read(file: &str, text: &str) -> Result<Vec<Object>, Rejected> {
    let reading = read_what_can_be(text);
    if let Some(hint) = reading.hint {
        return Err(Rejected { file: file.to_owned(), problems: reading.problems, hint });
    }
    if !reading.objects.iter().any(|object| object.kind == Kind::Job) {
        return Err(Rejected::whole(file, "there is no Job in it", HINT_EMPTY));
    }
    Ok(reading.objects)
}

/// Reads the objects of a manifest that can be read, and tells what is wrong with the others.
pub fn read_what_can_be(text: &str) -> Reading {
    let mut reading = Reading::default();
    let documents = if text.trim_start().starts_with('{') { from_json(text) } else { from_yaml(text) };
    match documents {
        Ok(documents) => {
            for (at, node) in documents.into_iter().enumerate() {
                reading.document(at + 1, node);
            }
        }
        Err((position, text)) => {
            let problem = Problem { position, document: None, object: None, path: String::new(), text };
            reading.reject(problem, HINT_SYNTAX);
        }
    }
    reading
}

type SyntaxError = (Option<Position>, String);

fn from_yaml(text: &str) -> Result<Vec<Node>, SyntaxError> {
    let options = serde_saphyr::options! {
        // `defaultMode: 0644` is 420, as for kubectl.
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let position = error.location().and_then(Position::of);
        (position, one_line(&error.without_snippet().to_string()))
    })
}

/// JSON is read as such, because not all of its escapes are YAML's. What YAML reads as the same knows where it stands.
fn from_json(text: &str) -> Result<Vec<Node>, SyntaxError> {
    let values: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_str(text).into_iter::<Value>().collect();
    values
        .map(|values| match from_yaml(text) {
            Ok(nodes) if nodes.iter().map(Node::to_json).eq(values.iter().cloned()) => nodes,
            Ok(_) | Err(_) => values.into_iter().map(Node::unplaced).collect(),
        })
        .map_err(|error| {
            let position = Position { line: error.line() as u64, column: error.column() as u64 };
            (Some(position), one_line(&error.to_string()))
        })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a manifest holds, and what is wrong with it.
#[derive(Default)]
pub struct Reading {
    /// Objects that can be read.
    pub objects: Vec<Object>,
    /// Why others can't.
    pub problems: Vec<Problem>,
    /// Objects of kinds that can't be run here, among the problems.
    pub foreign: usize,
    /// What to do about the first problem.
    pub hint: Option<String>,
}

impl Reading {
    fn document(&mut self, document: usize, node: Node) {
        let json = node.to_json();
        if json["kind"] == "List" && json["apiVersion"] == "v1" {
            for item in node.items("items").unwrap_or_default() {
                self.object(document, item.clone(), item.to_json());
            }
            return;
        }
        self.object(document, node, json);
    }

    fn object(&mut self, document: usize, node: Node, json: Value) {
        if !json.is_object() {
            let text = "a document must be a map of fields".to_owned();
            let position = node.position();
            let problem =
                Problem { position, document: Some(document), object: None, path: String::new(), text };
            return self.reject(problem, HINT_SYNTAX);
        }
        let kind = match Kind::of(&json) {
            Ok(kind) => kind,
            Err(error) => {
                let position = node.locate(error.field);
                let path = error.field.to_owned();
                self.foreign += usize::from(error.is_foreign);
                let problem =
                    Problem { position, document: Some(document), object: None, path, text: error.text };
                return self.reject(problem, &error.hint);
            }
        };
        let errors = decode::check(kind, &json);
        let object = Object { kind, json, node, document };
        let mut problems: Vec<Problem> =
            errors.iter().map(|error| object.problem(&error.path, &error.text)).collect();
        problems.sort_by_key(|problem| problem.position);
        problems.into_iter().for_each(|problem| self.reject(problem, HINT_FIELDS));
        if errors.is_empty() {
            self.objects.push(placed(object));
        }
    }

    fn reject(&mut self, problem: Problem, hint: &str) {
        self.problems.push(problem);
        self.hint.get_or_insert_with(|| hint.to_owned());
    }
}

/// Fills in the namespace.
fn placed(mut object: Object) -> Object {
    let meta = &mut object.json["metadata"];
    if meta.is_null() {
        *meta = json!({});
    }
    let names_none = meta["namespace"].as_str().unwrap_or_default().is_empty();
    if object.kind.is_namespaced() && names_none {
        meta["namespace"] = json!(DEFAULT_NAMESPACE);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: x\n";

    fn rejected(text: &str) -> String {
        read("f.yaml", text).expect_err("must be rejected").to_string()
    }

    #[test]
    fn scalars_have_the_types_that_kubectl_gives_them() {
        let text = "a: 0644\nb: yes\nc: \"yes\"\nd: 1.5\ne: ~\nf: 0o17\ng: 1e3\nh: 12:30\ni: on\nj: .5\nk: 2026-11-15\n";
        let nodes = from_yaml(text).expect("reads");
        assert_eq!(
            nodes[0].to_json(),
            json!({
                "a": 420, "b": true, "c": "yes", "d": 1.5, "e": null, "f": 15, "g": 1000.0, "h": "12:30", "i": true,
                "j": 0.5, "k": "2026-11-15",
            })
        );
    }

    #[test]
    fn documents_lists_and_json_all_give_objects_in_order() {
        let names = |text: &str| -> Vec<String> {
            read("f", text).expect("reads").iter().map(Object::label).collect()
        };
        let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: lab}\ndata: {a: b}\n";
        assert_eq!(names(&format!("---\n# nothing\n---\n{config}---\n{JOB}")), ["lab/configmap/c", "job/x"]);
        let item = |text: &str| format!("- {}\n", text.trim_end().replace('\n', "\n  "));
        let list = format!("apiVersion: v1\nkind: List\nitems:\n{}{}", item(JOB), item(config));
        assert_eq!(names(&list), ["job/x", "lab/configmap/c"]);
        let json = "{\"apiVersion\": \"batch/v1\", \"kind\": \"Job\",\n\t\"metadata\": {\"name\": \"\\ud83d\\ude00\"}}\n{\"apiVersion\": \"scheduling.k8s.io/v1\", \"kind\": \"PriorityClass\", \"metadata\": {\"name\": \"p\"}, \"value\": 1}";
        assert_eq!(names(json), ["job/😀", "priorityclass/p"]);
    }

    #[test]
    fn every_problem_of_a_file_is_told_with_its_place() {
        let text =
            format!("{JOB}spec:\n  paralelism: 3\n  completions: \"5\"\n---\n{JOB}spec:\n  foo: [1]\n");
        assert_eq!(
            rejected(&text),
            "error: f.yaml:6:3: document 1: job/x: unknown field \"spec.paralelism\"\n\
             error: f.yaml:7:3: document 1: job/x: spec.completions: invalid type: string \"5\", expected i32\n\
             error: f.yaml:14:3: document 2: job/x: unknown field \"spec.foo\"\n\
             hint: check the spelling and the type of the fields above; field names are case-sensitive"
        );
    }

    #[test]
    fn what_can_not_be_run_says_what_can() {
        let known = "windlass run takes Job, ConfigMap, Secret, PriorityClass, and List of these";
        let cases = [
            ("", format!("error: f.yaml: there is no Job in it\nhint: {HINT_EMPTY}")),
            (
                "- a\n",
                format!(
                    "error: f.yaml:1:1: document 1: a document must be a map of fields\nhint: {HINT_SYNTAX}"
                ),
            ),
            (
                "kind: Job\n",
                "error: f.yaml:1:1: document 1: apiVersion is not set\n\
                 hint: every document begins with apiVersion and kind; a Job's are batch/v1 and Job"
                    .to_owned(),
            ),
            (
                "apiVersion: v1\nkind: Job\n",
                "error: f.yaml:1:1: document 1: no matches for kind \"Job\" in version \"v1\"\n\
                 hint: a Job has apiVersion: batch/v1"
                    .to_owned(),
            ),
            (
                "apiVersion: batch/v1\nkind: CronJob\n",
                format!(
                    "error: f.yaml:2:1: document 1: kind \"CronJob\" of \"batch/v1\" can't be run here\n\
                     hint: {known}; to run a CronJob once, make a Job of its spec.jobTemplate.spec"
                ),
            ),
            (
                "apiVersion: v1\nkind: Service\n",
                format!(
                    "error: f.yaml:2:1: document 1: kind \"Service\" of \"v1\" can't be run here\n\
                     hint: {known}; take other objects out of the file"
                ),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(rejected(text), expected, "{text}");
        }
    }

    #[test]
    fn broken_syntax_is_told_in_one_line_with_its_place() {
        for (text, place) in
            [("a: [1\nb: 2\n", "f.yaml:2:"), ("a: 1\na: 2\n", "f.yaml:2:"), ("{\"a\": }", "f.yaml:1:7:")]
        {
            let told = rejected(text);
            assert!(told.starts_with(&format!("error: {place}")), "{told}");
            assert_eq!(told.lines().count(), 2, "{told}");
            assert_eq!(told.lines().last(), Some(&*format!("hint: {HINT_SYNTAX}")), "{told}");
        }
    }

    #[test]
    fn json_knows_its_lines_unless_only_json_can_read_it() {
        let place = |text: &str| {
            let object = &read("f", text).expect("reads")[0];
            object.problem("metadata.name", "").position.map(|p| (p.line, p.column))
        };
        let job =
            "{\n  \"apiVersion\": \"batch/v1\", \"kind\": \"Job\",\n  \"metadata\": {\"name\": \"x\"}\n}\n";
        assert_eq!(place(job), Some((3, 16)));
        assert_eq!(place(&format!("{job}{job}")), None, "two values are no YAML");
    }

    #[test]
    fn a_problem_of_the_server_finds_its_line() {
        let text = format!(
            "# a comment\n{JOB}  labels:\n    a.b/c: d\nspec:\n  template:\n    spec:\n      containers:\n      - name: a\n      - name: b\n        image: host\n"
        );
        let object = &read("f", &text).expect("reads")[0];
        let place = |path: &str| object.problem(path, "").position.map(|p| (p.line, p.column));
        assert_eq!(place("metadata.labels[a.b/c]"), Some((7, 5)));
        assert_eq!(place("spec.template.spec.containers[1].image"), Some((14, 9)));
        assert_eq!(place("spec.template.spec.containers[0].image"), Some((12, 9)), "the item that lacks it");
        assert_eq!(place("spec.parallelism"), Some((8, 1)), "the map that lacks it");
        assert_eq!(place("status"), Some((2, 1)));
    }
}
