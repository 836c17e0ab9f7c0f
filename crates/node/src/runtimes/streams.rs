//! The standard streams of a guest process, and the input of a container: pipes or a terminal, handed to the keeper over a socket of their own.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use tokio::net::unix::pipe::{Receiver, Sender};
use windlass_streams::{Size, Streams};

/// Two ends of a socket that carries streams: the agent's, and the keeper's.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Hands the streams of one process over. Does not wait: when the keeper has too many to take, it is an error.
pub(super) fn send(socket: impl AsFd, streams: &[OwnedFd; 3]) -> rustix::io::Result<()> {
    let fds = streams.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(b"3")],
        &mut control,
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Takes the streams of one process.
pub(super) fn receive(socket: impl AsFd) -> rustix::io::Result<[OwnedFd; 3]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    fds.try_into().map_err(|_| Errno::BADMSG)
}

/// The streams of a guest: its own, and the agent's ends of them.
pub struct Ends {
    /// Its input, output and errors.
    pub guest: [OwnedFd; 3],
    /// Into its input.
    pub stdin: Option<Sender>,
    /// From its output; from a terminal also its errors.
    pub stdout: Option<Receiver>,
    /// From its errors.
    pub stderr: Option<Receiver>,
    /// Its terminal.
    pub terminal: Option<Terminal>,
}

impl Ends {
    /// Makes the streams that are asked for; the others lead nowhere.
    pub fn new(asked: Streams) -> io::Result<Self> {
        if asked.tty { Self::terminal(asked) } else { Self::pipes(asked) }
    }

    /// The input of a container. The keeper reads what is printed on a terminal, as it does with the output of every
    /// container: it gets both ends.
    pub fn of_container(tty: bool) -> io::Result<Self> {
        let mut ends = Self::new(Streams { stdin: true, tty, ..Streams::default() })?;
        if let Some(Terminal(ours)) = &ends.terminal {
            ends.guest[1] = ours.try_clone()?;
        }
        Ok(ends)
    }

    fn pipes(asked: Streams) -> io::Result<Self> {
        let (stdin, into) = match asked.stdin {
            true => io::pipe().map(|(read, write)| (read.into(), Some(write.into())))?,
            false => (nowhere()?, None),
        };
        let out = |is_asked: bool| -> io::Result<(OwnedFd, Option<OwnedFd>)> {
            match is_asked {
                true => io::pipe().map(|(read, write)| (write.into(), Some(read.into()))),
                false => Ok((nowhere()?, None)),
            }
        };
        let ((stdout, from_out), (stderr, from_err)) = (out(asked.stdout)?, out(asked.stderr)?);
        Ok(Self {
            guest: [stdin, stdout, stderr],
            stdin: into.map(Sender::from_owned_fd).transpose()?,
            stdout: from_out.map(Receiver::from_owned_fd).transpose()?,
            stderr: from_err.map(Receiver::from_owned_fd).transpose()?,
            terminal: None,
        })
    }

    fn terminal(asked: Streams) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = rustix::pty::openpt(flags)?;
        rustix::pty::grantpt(&ours)?;
        rustix::pty::unlockpt(&ours)?;
        let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
        // All of our ends are one open file: one flag is for all of them.
        rustix::io::ioctl_fionbio(&ours, true)?;
        let ours_if = |is_asked: bool| is_asked.then(|| ours.try_clone()).transpose();
        Ok(Self {
            guest: [theirs.try_clone()?, theirs.try_clone()?, theirs],
            stdin: ours_if(asked.stdin)?.map(Sender::from_owned_fd_unchecked).transpose()?,
            stdout: ours_if(asked.stdout)?.map(Receiver::from_owned_fd_unchecked).transpose()?,
            stderr: None,
            terminal: Some(Terminal(ours)),
        })
    }
}

fn nowhere() -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?.into())
}

/// Our end of a terminal.
#[derive(Debug)]
pub struct Terminal(OwnedFd);

impl Terminal {
    /// Tells it its size, and its processes that it changed.
    pub fn resize(&self, size: Size) {
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        // It fails only for what is not a terminal.
        let _ = rustix::termios::tcsetwinsize(&self.0, size);
    }
}
