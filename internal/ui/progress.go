package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Mode is how progress is shown.
type Mode int

const (
	// Lines are plain lines, the first after five seconds.
	Lines Mode = iota
	// Bar is a bar that is drawn over and over on a terminal.
	Bar
	// JSON is one JSON line a second at most.
	JSON
	// Silent shows nothing but notes.
	Silent
)

// Plain lines come rarely, since they fill logs.
const (
	lineFirst = 5 * time.Second
	lineEvery = 10 * time.Second
	jsonEvery = time.Second
	barEvery  = 100 * time.Millisecond
)

// ModeFor returns Bar when w is a terminal that takes control characters, and
// Lines otherwise. NO_COLOR and TERM=dumb ask for Lines.
func ModeFor(w io.Writer) Mode {
	if IsTerminal(w) && os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == "" {
		return Bar
	}
	return Lines
}

// IsTerminal reports whether v, a reader or writer, is a terminal.
func IsTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && f != nil && term.IsTerminal(int(f.Fd()))
}

// Width returns the columns of the terminal that w is, or 80.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok && f != nil {
		if cols, _, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 {
			return cols
		}
	}
	return 80
}

// Status says how far a run is. Zero fields are left out.
type Status struct {
	MessageType string `json:"message_type"` // "status"
	Stream      string `json:"stream,omitempty"`
	// Phase is what is being done: "backup", "verify", "retry", ….
	Phase   string  `json:"phase"`
	Elapsed float64 `json:"seconds_elapsed"`
	// Bytes and TotalBytes are uncompressed; the total is an estimate.
	Bytes      int64  `json:"bytes_done,omitempty"`
	TotalBytes int64  `json:"bytes_total,omitempty"`
	Messages   uint64 `json:"messages_done,omitempty"`
	// Note is what happened, when that isn't progress: a retry and its cause.
	Note string `json:"note,omitempty"`
}

// percent returns how much is done; the total being an estimate, never 100.
func (s Status) percent() int {
	if s.TotalBytes <= 0 {
		return -1
	}
	return int(min(99, s.Bytes*100/s.TotalBytes))
}

// Progress shows the progress of one run. Its methods may be called by several
// goroutines, and also after Done, when they do nothing.
type Progress struct {
	w      io.Writer
	mode   Mode
	stream string

	mu      sync.Mutex
	done    bool
	start   time.Time
	shown   time.Time // last line
	phase   string
	phased  time.Time // when the phase began
	width   int       // of the bar's line on the screen
	now     func() time.Time
	columns func() int
}

// NewProgress begins to show progress on w about a stream.
func NewProgress(w io.Writer, mode Mode, stream string) *Progress {
	return &Progress{
		w: w, mode: mode, stream: stream, start: time.Now(), phased: time.Now(), now: time.Now,
		columns: func() int { return Width(w) },
	}
}

// Update shows how far it is, unless it did so a moment ago.
func (p *Progress) Update(s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.mode == Silent {
		return
	}
	now := p.now()
	if s.Phase != p.phase {
		if p.phase != "" { // the first one began with the run
			p.phased = now
		}
		p.phase = s.Phase
	}
	if !p.due(now) {
		return
	}
	p.shown = now
	switch p.mode {
	case Bar:
		p.draw(renderBar(p.stream, s, now.Sub(p.phased), p.columns()-1))
	case JSON:
		p.line(p.json(s))
	default:
		p.line(p.text(s, now))
	}
}

// due reports whether it's time for another line.
func (p *Progress) due(now time.Time) bool {
	every := lineEvery
	switch p.mode {
	case Bar:
		every = barEvery
	case JSON:
		every = jsonEvery
	}
	if p.shown.IsZero() {
		return p.mode != Lines || now.Sub(p.start) >= lineFirst
	}
	return now.Sub(p.shown) >= every
}

// Note says at once what happened.
func (p *Progress) Note(phase, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	note := fmt.Sprintf(format, args...)
	if p.mode == JSON {
		p.line(p.json(Status{Phase: phase, Note: note}))
		return
	}
	p.erase()
	p.line("jetkeep: " + note)
}

// Done ends the progress and removes the bar.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		p.erase()
	}
	p.done = true
}

func (p *Progress) json(s Status) string {
	s.MessageType, s.Stream = "status", p.stream
	s.Elapsed = p.now().Sub(p.start).Round(time.Millisecond).Seconds()
	data, err := json.Marshal(s)
	if err != nil {
		return "{}"
	}
	return string(data)
}

// text is a plain line, with as much as is known.
func (p *Progress) text(s Status, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "jetkeep: %s of stream %s: ", s.Phase, p.stream)
	if pc := s.percent(); pc >= 0 {
		fmt.Fprintf(&b, "%d%%, ", pc)
	}
	fmt.Fprintf(&b, "%s, %s", Plural(s.Messages, "message"), Size(s.Bytes))
	if r := Rate(s.Bytes, now.Sub(p.phased)); r != "" {
		b.WriteString(", " + r)
	}
	fmt.Fprintf(&b, ", %s so far", Duration(now.Sub(p.start)))
	return b.String()
}

func (p *Progress) line(s string) { _, _ = io.WriteString(p.w, s+"\n") }

// draw puts s in the place of the line before it.
func (p *Progress) draw(s string) {
	n := len([]rune(s))
	pad := strings.Repeat(" ", max(0, p.width-n))
	_, _ = io.WriteString(p.w, "\r"+s+pad)
	p.width = n
}

// erase leaves an empty line with the cursor at its beginning.
func (p *Progress) erase() {
	if p.width > 0 {
		_, _ = io.WriteString(p.w, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}
