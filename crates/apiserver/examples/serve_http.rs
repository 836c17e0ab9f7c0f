//! Serves the API over plain HTTP on the loopback, for trying clients by hand: no TLS, no identities, nothing is kept.
//!
//! ```sh
//! cargo run -p windlass-apiserver --example serve_http -- 127.0.0.1:8001
//! kubectl --server http://127.0.0.1:8001 get namespaces
//! ```

use windlass_apiserver::{Config, Server};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8001".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("serving on http://{}", listener.local_addr()?);
    axum::serve(listener, Server::new(Config::default()).router()).await
}
