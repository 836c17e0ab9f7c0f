//! Standard error, shared by everybody who has something to say: bars at the bottom, whole lines above.

use std::io::{self, IsTerminal, Write};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often bars are drawn a second: as often as an eye can follow, and no more.
const DRAWS_PER_SECOND: u8 = 10;

/// What a line is about; it has a colour where the terminal wants any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Just so.
    Plain,
    /// It ended well.
    Good,
    /// It ended badly.
    Bad,
    /// Somebody should look at it.
    Warning,
}

impl Tone {
    fn escape(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
            Self::Warning => "\x1b[33m",
        }
    }
}

/// Standard error. Clones are the same screen.
#[derive(Clone, Debug)]
pub struct Screen {
    /// Only on a terminal.
    bars: Option<MultiProgress>,
    has_colour: bool,
}

impl Screen {
    /// Standard error as it is: a terminal or a pipe; `NO_COLOR` and its kin are honoured.
    pub fn new() -> Self {
        let stderr = io::stderr();
        let choice = anstream::AutoStream::choice(&stderr);
        let bars = stderr
            .is_terminal()
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND)));
        Self { bars, has_colour: choice != anstream::ColorChoice::Never }
    }

    /// Whether there are bars, which want to be brought up to date.
    pub fn has_bars(&self) -> bool {
        self.bars.is_some()
    }

    /// A new bar at the bottom; `total` is not always known.
    pub fn bar(&self, label: &str, total: Option<u64>) -> Option<ProgressBar> {
        let bars = self.bars.as_ref()?;
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{prefix} [{bar:24}] {pos}/{len} {wide_msg}"),
            None => (ProgressBar::no_length(), "{prefix} {spinner} {pos} {wide_msg}"),
        };
        let style = ProgressStyle::with_template(template).expect("a valid template").progress_chars("=> ");
        Some(bars.add(bar.with_style(style).with_prefix(label.to_owned())))
    }

    /// One whole line, or several.
    pub fn line(&self, tone: Tone, text: &str) {
        let text = match (self.has_colour, tone) {
            (false, _) | (true, Tone::Plain) => text.to_owned(),
            (true, tone) => format!("{}{text}\x1b[0m", tone.escape()),
        };
        // Nothing can be done about a standard error that can't be written to.
        let _ = match &self.bars {
            Some(bars) => bars.suspend(|| write_line(&text)),
            None => write_line(&text),
        };
    }

    /// Takes the bars away.
    pub fn clear(&self) {
        if let Some(bars) = &self.bars {
            let _ = bars.clear();
        }
    }
}

/// One write, so that lines of several processes do not tear each other.
fn write_line(text: &str) -> io::Result<()> {
    io::stderr().lock().write_all(format!("{text}\n").as_bytes())
}

/// Log messages go through the screen too, or they would tear the bars.
impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Screen {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        LogWriter(self.clone())
    }
}

/// Writes a log message, which comes whole.
pub struct LogWriter(Screen);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.line(Tone::Plain, String::from_utf8_lossy(bytes).trim_end());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
