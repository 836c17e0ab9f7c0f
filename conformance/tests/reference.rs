//! The reference itself starts, answers, and ends.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use windlass_conformance::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn the_real_api_server_starts_and_says_its_version() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let client = cluster.client().await?;
    assert_eq!(client.apiserver_version().await?.git_version, windlass_conformance::assets::VERSION);
    let namespaces: Api<Namespace> = Api::all(client);
    assert!(namespaces.get_opt("kube-system").await?.is_some());
    Ok(())
}
