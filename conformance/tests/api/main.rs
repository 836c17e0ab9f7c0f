//! The same requests to our API server and to the real one, over TLS: codes, headers, errors and objects are compared.
//!
//! Each scenario is a conversation in a namespace of its own, held with both servers. What must differ (UIDs, times,
//! revisions, generated names) is set aside by `normal`; everything else that differs must be in `known`, with a reason.

mod create;
mod delete;
mod forms;
mod jobs;
mod known;
mod namespaces;
mod objects;
mod patch;
mod pods;
mod read;
mod reviews;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use http::Method;
use kube::Client;
use serde_json::json;
use windlass_apiserver::Config;
use windlass_conformance::cluster::Options;
use windlass_conformance::compare::{Difference, differences, judge};
use windlass_conformance::normal::Names;
use windlass_conformance::ours::{self, Ours};
use windlass_conformance::session::Session;
use windlass_conformance::{Cluster, kubeconfig};

type Scenario = (&'static str, for<'a> fn(&'a mut Session) -> BoxFuture<'a, ()>);

macro_rules! scenarios {
    ($($module:ident :: $name:ident,)*) => {
        &[$((concat!(stringify!($module), "/", stringify!($name)), |session| Box::pin($module::$name(session)))),*]
    };
}

const SCENARIOS: &[Scenario] = scenarios![
    create::names,
    create::bad_bodies,
    create::field_validation,
    create::dry_run,
    create::metadata,
    read::selectors,
    read::pages,
    read::versions,
    read::missing,
    forms::tables,
    forms::partial_metadata,
    forms::refused,
    patch::json,
    patch::merge,
    patch::strategic,
    patch::refused,
    patch::field_validation,
    patch::apply,
    objects::replace,
    objects::config,
    objects::secrets,
    objects::leases,
    objects::events,
    objects::nodes,
    objects::budgets,
    objects::roles,
    objects::cron_jobs,
    objects::priority_classes,
    delete::pods_with_grace,
    delete::finalizers,
    delete::preconditions,
    delete::propagation,
    delete::options,
    delete::collections,
    jobs::defaults,
    jobs::invalid,
    jobs::updates,
    jobs::status,
    pods::defaults,
    pods::invalid,
    pods::updates,
    pods::status,
    pods::binding,
    pods::eviction,
    pods::quality,
    namespaces::lifecycle,
    reviews::access,
    reviews::identity,
    watch::history,
    watch::selectors,
    watch::initial_events,
    watch::refused,
    watch::forms,
    watch::too_old,
];

/// Too few requests would prove little.
const REQUESTS_MIN: usize = 150;

struct Side {
    clients: BTreeMap<&'static str, Client>,
}

impl Side {
    /// Holds one conversation and gives it with the names of what must differ.
    async fn hold(&self, name: &str, scenario: &Scenario) -> Result<Vec<(String, serde_json::Value)>> {
        let mut session = Session::new(self.clients.clone(), name);
        let namespace = json!({"metadata": {"name": name}});
        session.prepare(Method::POST, "/api/v1/namespaces", namespace).await?;
        let account = json!({"metadata": {"name": "default"}});
        session.prepare(Method::POST, &session.core("serviceaccounts"), account).await?;
        (scenario.1)(&mut session).await;
        let mut names = Names::default();
        names.expect_suffix("Bad_");
        let mut said = Vec::new();
        for mut answer in session.transcript {
            names.normalise(&mut answer.value);
            said.push((format!("{}/{}", scenario.0, answer.step), answer.value));
        }
        Ok(said)
    }
}

const USERS: [(&str, &[&str]); 2] = [("admin", &["system:masters"]), ("powerless", &[])];

async fn our_side(ours: &Ours) -> Result<Side> {
    let mut clients = BTreeMap::new();
    for (user, groups) in USERS {
        clients.insert(user, ours::client(&ours.kubeconfig_for(user, groups)?).await?);
    }
    let nobody = ours.directory().join("nobody.kubeconfig");
    kubeconfig::write(&nobody, &ours.url(), &ours.directory().join("ca.pem"), "nobody", "wrong")?;
    clients.insert("nobody", ours::client(&nobody).await?);
    Ok(Side { clients })
}

async fn their_side(theirs: &Cluster) -> Result<Side> {
    let mut clients = BTreeMap::new();
    for user in ["admin", "powerless", "nobody"] {
        clients.insert(user, ours::client(&theirs.kubeconfig_for(user, user)?).await?);
    }
    Ok(Side { clients })
}

async fn start_theirs(directory: &Path) -> Result<Cluster> {
    let tokens = directory.join("tokens.csv");
    let mut lines = String::from("reference-admin,admin,admin,\"system:masters\"\n");
    for (user, groups) in USERS {
        let groups = groups.join(",");
        let groups = if groups.is_empty() { groups } else { format!(",\"{groups}\"") };
        lines.push_str(&format!("{user},{user},{groups}\n"));
    }
    std::fs::write(&tokens, lines).context("write the tokens")?;
    let apiserver = vec![
        format!("--token-auth-file={}", tokens.display()),
        "--anonymous-auth=false".to_owned(),
        "--watch-cache-sizes=leases.coordination.k8s.io#0".to_owned(),
        "--etcd-compaction-interval=10s".to_owned(),
    ];
    Cluster::start_with(&Options { apiserver, ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn our_server_answers_as_the_real_one_does() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let theirs = start_theirs(directory.path()).await?;
    let ours = Ours::start_with(Config { limits: watch::short_history(), ..Config::default() }).await?;
    let (ours, theirs) = (our_side(&ours).await?, their_side(&theirs).await?);
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut count = 0;
    let mut found: Vec<Difference> = Vec::new();
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.0.starts_with(&only)) {
        let namespace = scenario.0.replace(['/', '_'], "-");
        let held = tokio::join!(ours.hold(&namespace, scenario), theirs.hold(&namespace, scenario));
        let (said, heard) = (
            held.0.with_context(|| format!("ours, {}", scenario.0))?,
            held.1.with_context(|| format!("theirs, {}", scenario.0))?,
        );
        assert_eq!(said.len(), heard.len(), "{}: both are asked the same", scenario.0);
        count += said.len();
        for ((step, said), (_, heard)) in said.iter().zip(&heard) {
            assert!(heard.get("error").is_none(), "{step}: the reference did not answer: {heard}");
            found.extend(differences(step, said, heard));
        }
    }
    let wrong = judge(&found, known::KNOWN);
    println!("{count} requests, {} differences", found.len());
    assert!(wrong.is_empty(), "{} of {count} requests\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= REQUESTS_MIN || !only.is_empty(), "only {count} requests");
    Ok(())
}
