//! Probes and hooks come down to this: run a command in a container, ask a server, connect to a port, or wait.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Where the ports of a pod are: its address.
const POD_IP: &str = "127.0.0.1";
/// What is read at most of an answer (upstream: maxRespBodyLength).
const ANSWER_BYTES_MAX: u64 = 10 << 10;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Run a command in the container; 0 is success.
    Exec(Vec<String>),
    /// Ask an HTTP server; 200 to 399 is success.
    Http(Http),
    /// Connect.
    Tcp(String, u16),
    /// Wait.
    Sleep(Duration),
}

/// A question to an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where it is.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The whole request.
    pub request: String,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Success,
    /// It is not, and this is what it said.
    Failure(String),
    /// It could not be done.
    Error(String),
}

impl Check {
    /// What a probe does.
    pub fn of_probe(probe: &Probe, container: &Container) -> Result<Self, String> {
        if probe.grpc.is_some() {
            return Err("gRPC probes are not supported by this node".into());
        }
        Self::of(&probe.exec, &probe.http_get, &probe.tcp_socket, &None, container, "probe")
    }

    /// What a hook does.
    pub fn of_hook(hook: &LifecycleHandler, container: &Container) -> Result<Self, String> {
        Self::of(&hook.exec, &hook.http_get, &hook.tcp_socket, &hook.sleep, container, "lifecycle")
    }

    fn of(
        exec: &Option<ExecAction>,
        http: &Option<HTTPGetAction>,
        tcp: &Option<TCPSocketAction>,
        sleep: &Option<SleepAction>,
        container: &Container,
        agent: &str,
    ) -> Result<Self, String> {
        if let Some(exec) = exec {
            return Ok(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(http) = http {
            return http_of(http, container, agent).map(Self::Http);
        }
        if let Some(tcp) = tcp {
            let host = tcp.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| POD_IP.into());
            return Ok(Self::Tcp(host, port(&tcp.port, container)?));
        }
        if let Some(sleep) = sleep {
            return Ok(Self::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))));
        }
        Err(format!("missing handler for container {:?}", container.name))
    }
}

fn http_of(http: &HTTPGetAction, container: &Container, agent: &str) -> Result<Http, String> {
    if http.scheme.as_deref().is_some_and(|scheme| !scheme.eq_ignore_ascii_case("HTTP")) {
        return Err("HTTPS is not supported for probes and hooks by this node".into());
    }
    let port = port(&http.port, container)?;
    let host = http.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| POD_IP.into());
    let path = http.path.as_deref().unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut headers = vec![
        ("Host".to_owned(), format!("{host}:{port}")),
        ("User-Agent".to_owned(), format!("kube-{agent}/1.36")),
        ("Accept".to_owned(), "*/*".to_owned()),
    ];
    for header in http.http_headers.iter().flatten() {
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case(&header.name));
        headers.push((header.name.clone(), header.value.clone()));
    }
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let is_plain = |text: &str| !text.contains(['\r', '\n']);
    if !is_plain(path) || headers.matches("\r\n").count() != headers.matches('\n').count() {
        return Err("a line break in the path or in a header".into());
    }
    let request = format!("GET {slash}{path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    Ok(Http { host, port, request })
}

/// A port by its number, or by its name among those of the container.
fn port(given: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match given {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
            named.or_else(|| name.parse().ok())
        }
    };
    let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    number.ok_or_else(|| match given {
        IntOrString::Int(number) => format!("invalid port number: {number}"),
        IntOrString::String(name) => format!("couldn't find port: {name}"),
    })
}

/// Asks, and judges the answer by its status.
pub(crate) async fn ask(http: &Http) -> Outcome {
    match status(http).await {
        Ok(200..=399) => Outcome::Success,
        Ok(status) => Outcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
        Err(error) => Outcome::Failure(error.to_string()),
    }
}

async fn status(http: &Http) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect((http.host.as_str(), http.port)).await?;
    stream.write_all(http.request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut limited = stream.take(ANSWER_BYTES_MAX);
    while !answer.contains(&b'\n') && limited.read_buf(&mut answer).await? > 0 {}
    let line = String::from_utf8_lossy(&answer);
    let code = line.strip_prefix("HTTP/1.").and_then(|line| line.split_ascii_whitespace().nth(1));
    let code = code.and_then(|code| code.parse().ok());
    code.ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "malformed HTTP response"))
}

/// Connects.
pub(crate) async fn connect(host: &str, port: u16) -> Outcome {
    match TcpStream::connect((host, port)).await {
        Ok(_) => Outcome::Success,
        Err(error) => Outcome::Failure(format!("dial tcp {host}:{port}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;

    fn check(probe: Value) -> Result<Check, String> {
        let container = json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}]});
        let container = serde_json::from_value(container).expect("a container");
        Check::of_probe(&serde_json::from_value(probe).expect("a probe"), &container)
    }

    #[test]
    fn a_check_is_what_the_handler_says() {
        let http = |host: &str, port, request: &str| {
            Ok(Check::Http(Http { host: host.into(), port, request: request.into() }))
        };
        let plain = "GET /ok HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\n\
                     Connection: close\r\n\r\n";
        let custom = "GET / HTTP/1.1\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\nhost: x\r\nConnection: close\r\n\r\n";
        for (probe, want) in [
            (json!({"exec": {"command": ["a", "b"]}}), Ok(Check::Exec(vec!["a".into(), "b".into()]))),
            (json!({"tcpSocket": {"port": "web"}}), Ok(Check::Tcp("127.0.0.1".into(), 8080))),
            (json!({"tcpSocket": {"port": 9, "host": "h"}}), Ok(Check::Tcp("h".into(), 9))),
            (json!({"tcpSocket": {"port": "none"}}), Err("couldn't find port: none".into())),
            (json!({"tcpSocket": {"port": 0}}), Err("invalid port number: 0".into())),
            (json!({"httpGet": {"port": "web", "path": "ok"}}), http("127.0.0.1", 8080, plain)),
            (
                json!({"httpGet": {"port": 1, "host": "h", "httpHeaders": [{"name": "host", "value": "x"}]}}),
                http("h", 1, custom),
            ),
            (
                json!({"httpGet": {"port": 1, "path": "/ HTTP/1.1\r\nX: y"}}),
                Err("a line break in the path or in a header".into()),
            ),
            (
                json!({"httpGet": {"port": 1, "httpHeaders": [{"name": "a", "value": "b\nc: d"}]}}),
                Err("a line break in the path or in a header".into()),
            ),
            (
                json!({"httpGet": {"port": 1, "scheme": "HTTPS"}}),
                Err("HTTPS is not supported for probes and hooks by this node".into()),
            ),
            (json!({"grpc": {"port": 1}}), Err("gRPC probes are not supported by this node".into())),
            (json!({}), Err("missing handler for container \"c\"".into())),
        ] {
            assert_eq!(check(probe.clone()), want, "{probe}");
        }
    }

    #[tokio::test]
    async fn an_answer_is_judged_by_its_status() {
        for (answer, want) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", Outcome::Success),
            ("HTTP/1.0 302 Found\r\nLocation: /x\r\n\r\n", Outcome::Success),
            ("HTTP/1.1 503 No\r\n\r\n", Outcome::Failure("HTTP probe failed with statuscode: 503".into())),
            ("nonsense\n", Outcome::Failure("malformed HTTP response".into())),
            ("", Outcome::Failure("malformed HTTP response".into())),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let port = listener.local_addr().expect("bound").port();
            let serve = async {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut request = [0; 18];
                stream.read_exact(&mut request).await.expect("a request");
                stream.write_all(answer.as_bytes()).await.expect("answered");
            };
            let http = Http { host: POD_IP.into(), port, request: "GET / HTTP/1.1\r\n\r\n".into() };
            let (outcome, ()) = tokio::join!(ask(&http), serve);
            assert_eq!(outcome, want, "{answer}");
        }
    }
}
