//! Images for tests: made from the machine's static busybox, as layouts, archives, or in a real registry on loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tar::EntryType;
use windlass_node::images::digest::Digest;
use windlass_node::images::manifest::Packing;

const BUSYBOX: &str = "/bin/busybox";
const APPLETS: [&str; 24] = [
    "sh", "ls", "cat", "id", "env", "pwd", "sleep", "echo", "true", "false", "kill", "touch", "hostname",
    "stat", "dd", "mkdir", "tail", "ps", "mount", "head", "wc", "chroot", "grep", "expr",
];

/// An image in memory.
#[derive(Clone)]
pub struct TestImage {
    /// Archives, not packed.
    pub layers: Vec<Vec<u8>>,
    /// What its configuration says about how it is run.
    pub run: Value,
    /// How its layers are packed.
    pub packing: Packing,
}

/// An archive in the making.
pub struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    /// Nothing yet.
    pub fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    /// Adds an entry with its name as it is: the library would refuse those of an attack.
    pub fn add(mut self, kind: EntryType, path: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        let gnu = header.as_gnu_mut().expect("just made");
        gnu.name[..path.len()].copy_from_slice(path.as_bytes());
        gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).expect("to memory");
        self
    }

    /// A file.
    pub fn file(self, path: &str, text: &str) -> Self {
        self.add(EntryType::Regular, path, "", 0o644, text.as_bytes())
    }

    /// The archive.
    pub fn finish(self) -> Vec<u8> {
        self.0.into_inner().expect("to memory")
    }
}

/// Busybox with two users, in one layer.
pub fn busybox(run: Value) -> TestImage {
    let program = std::fs::read(BUSYBOX).expect("the package busybox-static is installed");
    let mut archive = Archive::new()
        .add(EntryType::Directory, "tmp/", "", 0o1777, b"")
        .add(EntryType::Regular, "bin/busybox", "", 0o755, &program)
        .file("etc/passwd", "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/sh\n")
        .file("etc/group", "root:x:0:\nwww:x:34:\nlogs:x:40:web\n")
        .file("old", "lower");
    for applet in APPLETS {
        archive = archive.add(EntryType::Symlink, &format!("bin/{applet}"), "busybox", 0o777, b"");
    }
    TestImage { layers: vec![archive.finish()], run, packing: Packing::Gzip }
}

/// A layer as it is in a registry: its type, and its bytes.
fn pack(packing: Packing, bytes: &[u8]) -> (&'static str, Vec<u8>) {
    match packing {
        Packing::Plain => ("application/vnd.oci.image.layer.v1.tar", bytes.to_owned()),
        Packing::Gzip => ("application/vnd.oci.image.layer.v1.tar+gzip", gzip(bytes)),
        Packing::Zstd => ("application/vnd.oci.image.layer.v1.tar+zstd", zstd(bytes)),
    }
}

/// By the program itself.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut packer = Command::new("zstd")
        .args(["-q", "-c", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the package zstd is installed");
    let (mut stdin, bytes) = (packer.stdin.take().expect("piped"), bytes.to_owned());
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let packed = packer.wait_with_output().expect("it runs");
    writer.join().expect("it only writes").expect("zstd reads all");
    assert!(packed.status.success(), "{}", packed.status);
    packed.stdout
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("to memory");
    packer.finish().expect("to memory")
}

/// The blobs of an image, of which the last is its manifest.
pub fn blobs(image: &TestImage) -> Vec<(Digest, Vec<u8>)> {
    let packed: Vec<_> = image.layers.iter().map(|layer| pack(image.packing, layer)).collect();
    let diff_ids: Vec<Digest> = image.layers.iter().map(|layer| Digest::of(layer)).collect();
    let config = config(&image.run, &diff_ids);
    let descriptor = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": Digest::of(bytes), "size": bytes.len()});
    let layers: Vec<Value> = packed.iter().map(|(kind, layer)| descriptor(kind, layer)).collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": layers,
    });
    let all = packed.into_iter().map(|(_, layer)| layer).chain([config, manifest.to_string().into_bytes()]);
    all.map(|bytes| (Digest::of(&bytes), bytes)).collect()
}

fn config(run: &Value, diff_ids: &[Digest]) -> Vec<u8> {
    let rootfs = json!({"type": "layers", "diff_ids": diff_ids});
    json!({"architecture": "amd64", "os": "linux", "config": run, "rootfs": rootfs}).to_string().into_bytes()
}

/// Writes an OCI layout with one image.
pub fn write_layout(directory: &Path, name: &str, image: &TestImage) {
    let place = directory.join("blobs/sha256");
    std::fs::create_dir_all(&place).expect("made");
    let blobs = blobs(image);
    for (digest, bytes) in &blobs {
        std::fs::write(place.join(digest.hex()), bytes).expect("written");
    }
    let (digest, manifest) = blobs.last().expect("a manifest");
    let index = json!({"schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": manifest.len(),
        "annotations": {"org.opencontainers.image.ref.name": name},
    }]});
    std::fs::write(directory.join("index.json"), index.to_string()).expect("written");
    std::fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).expect("written");
}

/// Writes what `docker save` does.
pub fn write_saved(file: &Path, name: &str, image: &TestImage) {
    let diff_ids: Vec<Digest> = image.layers.iter().map(|layer| Digest::of(layer)).collect();
    let config = config(&image.run, &diff_ids);
    let config_name = format!("{}.json", Digest::of(&config).hex());
    let mut archive = Archive::new().add(EntryType::Regular, &config_name, "", 0o644, &config);
    let mut names = Vec::new();
    for (layer, diff_id) in image.layers.iter().zip(&diff_ids) {
        let name = format!("{}.tar", diff_id.hex());
        archive = archive.add(EntryType::Regular, &name, "", 0o644, layer);
        names.push(name);
    }
    let manifest = json!([{"Config": config_name, "RepoTags": [name], "Layers": names}]).to_string();
    std::fs::write(file, archive.file("manifest.json", &manifest).finish()).expect("written");
}

/// A registry on loopback. Ends with the test.
pub struct Registry {
    process: Child,
    /// `127.0.0.1:port`.
    pub address: String,
    directory: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    /// Starts Debian's docker-registry, which says in its log where it listens.
    pub fn start(users: Option<&str>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "info", "formatter": "json"},
            "storage": {"filesystem": {"rootdirectory": directory.path().join("data")}},
            "http": {"addr": "127.0.0.1:0"},
        });
        if let Some(users) = users {
            std::fs::write(directory.path().join("users"), users).expect("written");
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": directory.path().join("users")}});
        }
        let file = directory.path().join("config.yml");
        // JSON is YAML.
        std::fs::write(&file, config.to_string()).expect("written");
        let mut process = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the package docker-registry is installed");
        let lines = BufReader::new(process.stderr.take().expect("piped")).lines();
        let mut lines = lines.map(|line| line.expect("text"));
        let address = lines
            .find_map(|line| Some(line.split_once("listening on ")?.1.split(['"', ' ']).next()?.to_owned()))
            .expect("it says where it listens");
        // Somebody has to read what it says.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address, directory }
    }

    /// Pushes an image, and returns the digest of its manifest.
    pub async fn push(
        &self,
        name: &str,
        tag: &str,
        image: &TestImage,
        authorization: Option<&str>,
    ) -> Digest {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let send = async |method: &str, uri: &str, kind: &str, body: Vec<u8>| {
            let mut request = Request::builder().method(method).uri(uri).header("content-type", kind);
            if let Some(authorization) = authorization {
                request = request.header("authorization", authorization);
            }
            let request = request.body(Full::from(body)).expect("a request");
            let answer = client.request(request).await.expect("the registry answers");
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            assert!(parts.status.is_success(), "{method} {uri}: {} {body:?}", parts.status);
            parts
        };
        let base = format!("http://{}/v2/{name}", self.address);
        let mut blobs = blobs(image);
        let (digest, manifest) = blobs.pop().expect("a manifest");
        for (digest, bytes) in blobs {
            let begun = send("POST", &format!("{base}/blobs/uploads/"), "application/json", Vec::new()).await;
            assert_eq!(begun.status, StatusCode::ACCEPTED);
            let place = begun.headers["location"].to_str().expect("text").to_owned();
            send("PUT", &format!("{place}&digest={digest}"), "application/octet-stream", bytes).await;
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        send("PUT", &format!("{base}/manifests/{tag}"), kind, manifest).await;
        digest
    }

    /// The file of a blob, to be spoilt.
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let data = self.directory.path().join("data/docker/registry/v2/blobs/sha256");
        data.join(&hex[..2]).join(hex).join("data")
    }
}

/// A registry of one image that wants a token for everything, and gives it to who knows the password. Answers as long as
/// it is kept; the blobs are at another address, to which it sends.
pub struct TokenRegistry {
    /// `127.0.0.1:port`.
    pub address: String,
    /// Each request: path, and what it said about who it is.
    pub requests: Arc<Mutex<Vec<(String, String)>>>,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl Drop for TokenRegistry {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl TokenRegistry {
    /// Has the image `app:v1` for who says `basic` to the giver of tokens.
    pub async fn start(image: &TestImage, basic: &'static str) -> Self {
        let blobs = blobs(image);
        let manifest = blobs.last().expect("a manifest").1.clone();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let bind = async || tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let (front, store) = (bind().await, bind().await);
        let text =
            |listener: &tokio::net::TcpListener| listener.local_addr().expect("an address").to_string();
        let (address, store_address) = (text(&front), text(&store));
        let blobs: HashMap<String, Vec<u8>> =
            blobs.into_iter().map(|(digest, bytes)| (format!("/{digest}"), bytes)).collect();
        let keep = serve(store, Arc::clone(&requests), move |path, authorization| {
            assert_eq!(authorization, "", "nobody else is told who we are");
            let answer = Response::builder();
            match blobs.get(path) {
                Some(bytes) => answer.body(Full::from(bytes.clone())),
                None => answer.status(404).body(Full::default()),
            }
        });
        let own = address.clone();
        let ask = serve(front, Arc::clone(&requests), move |path, authorization| {
            let answer = Response::builder();
            match path.strip_prefix("/v2/app/") {
                None if path.starts_with("/token?") && authorization == basic => {
                    answer.body(Full::from(r#"{"token": "t0k3n"}"#))
                }
                Some(_) if authorization != "Bearer t0k3n" => {
                    let challenge = format!("Bearer realm=\"http://{own}/token\",service=\"s\"");
                    answer.status(401).header("www-authenticate", challenge).body(Full::default())
                }
                Some("manifests/v1") => answer.body(Full::from(manifest.clone())),
                Some(blob) => {
                    let digest = blob.trim_start_matches("blobs/");
                    let place = format!("http://{store_address}/{digest}");
                    answer.status(307).header("location", place).body(Full::default())
                }
                None => answer.status(403).body(Full::default()),
            }
        });
        Self { address, requests, tasks: [keep, ask] }
    }
}

fn serve(
    listener: tokio::net::TcpListener,
    requests: Arc<Mutex<Vec<(String, String)>>>,
    answer: impl Fn(&str, &str) -> http::Result<Response<Full<Bytes>>> + Send + Sync + 'static,
) -> tokio::task::JoinHandle<()> {
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                let path = request.uri().to_string();
                let said = request.headers().get("authorization");
                let said = said.map_or("", |value| value.to_str().expect("text")).to_owned();
                requests.lock().push((path.clone(), said.clone()));
                let answer = answer(&path, &said);
                async move { answer }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(hyper_util::rt::TokioIo::new(stream), service));
        }
    })
}
