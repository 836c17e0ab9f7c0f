//! Ports for programs that have to be told theirs before they start.
//!
//! One that the kernel calls free may be somebody else's a moment later: whoever asks for any port, or connects to somewhere,
//! gets one from the same range. So these are below that range, and held by a name that only one process at a time can have.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, Result};

/// Below what `net.ipv4.ip_local_port_range` has by default.
const PORTS: Range<u16> = 20_000..30_000;

/// A port of loopback that nobody else is given while this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _held: UnixListener,
}

impl Port {
    /// One that nobody has.
    pub fn reserve() -> Result<Self> {
        // Processes begin in different places, so that they do not all try the same ones.
        let begin = PORTS.start + (std::process::id() * 16 % u32::from(PORTS.end - PORTS.start)) as u16;
        let mut ports = (begin..PORTS.end).chain(PORTS.start..begin);
        ports.find_map(Self::take).context("every port that tests use is taken")
    }

    fn take(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("windlass-port-{number}")).ok()?;
        let held = UnixListener::bind_addr(&name).ok()?;
        // A program that has nothing to do with tests may be there.
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _held: held })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nobody_else_is_given_a_port_while_it_is_held() -> Result<()> {
        let held: Vec<Port> = (0..50).map(|_| Port::reserve()).collect::<Result<_>>()?;
        let numbers: BTreeSet<u16> = held.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), held.len());
        for port in &held {
            assert!(Port::take(port.number()).is_none(), "{port:?} is taken");
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()))
                .context("its program can listen there")?;
        }
        Ok(())
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_given() -> Result<()> {
        let port = Port::reserve()?;
        let number = port.number();
        let _listens = TcpListener::bind((Ipv4Addr::LOCALHOST, number))?;
        drop(port);
        assert!(Port::take(number).is_none());
        Ok(())
    }

    #[test]
    fn the_kernel_gives_these_ports_to_nobody() -> Result<()> {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
        let first: u16 = range.split_whitespace().next().context("a range")?.parse()?;
        assert!(PORTS.end <= first, "the kernel gives away ports from {first} on");
        Ok(())
    }
}
