package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/jetkeep/jetkeep/internal/ui"
)

// printer writes a verb's results, notes and errors: results to standard
// output, everything else to standard error.
type printer struct {
	std  Streams
	json bool
	// taken says that standard output carries data, so that results go to
	// standard error.
	taken bool
}

// out is where results go.
func (p *printer) out() io.Writer {
	if p.taken {
		return p.std.Err
	}
	return p.std.Out
}

// result writes a result in one piece: v as a JSON line, or what text writes.
// When that fails, done says what nevertheless was done.
func (p *printer) result(v any, text func(io.Writer), done string) error {
	var b bytes.Buffer
	if p.json {
		if err := json.NewEncoder(&b).Encode(v); err != nil {
			return err
		}
	} else {
		text(&b)
	}
	if _, err := p.out().Write(b.Bytes()); err != nil {
		return &outputError{done, err}
	}
	return nil
}

// outputError says that a result couldn't be written.
type outputError struct {
	done string
	err  error
}

func (e *outputError) Error() string {
	if e.done == "" {
		return fmt.Sprintf("cannot write the result: %v", e.err)
	}
	return fmt.Sprintf("cannot write the result: %v; %s", e.err, e.done)
}

// Unwrap hides the cause: which stream can't be written has nothing to do with
// what the exit code is about.
func (e *outputError) Unwrap() error { return nil }

// warn says on standard error what a person should know. Programs find the same
// in the summary.
func (p *printer) warn(format string, args ...any) {
	if !p.json {
		fmt.Fprintf(p.std.Err, "jetkeep: warning: "+format+"\n", args...)
	}
}

// progress begins to show progress: JSON lines go where results go, everything
// else to standard error.
func (p *printer) progress(stream string) *ui.Progress {
	if p.json {
		return ui.NewProgress(p.out(), ui.JSON, stream)
	}
	return ui.NewProgress(p.std.Err, ui.ModeFor(p.std.Err), stream)
}

// fail writes the error that ends a run.
func (p *printer) fail(err error) {
	if !p.json {
		fmt.Fprintf(p.std.Err, "jetkeep: %v\n", oneLine(err))
		return
	}
	data, jerr := json.Marshal(newErrorLine(err))
	if jerr != nil {
		data, _ = json.Marshal(errorLine{MessageType: "error", Code: exitCode(err), Message: err.Error()})
	}
	p.std.Err.Write(append(data, '\n'))
}

// oneLine keeps an error on one line, however many there were.
func oneLine(err error) string {
	lines := bytes.FieldsFunc([]byte(err.Error()), func(r rune) bool { return r == '\n' || r == '\r' })
	return string(bytes.Join(lines, []byte("; ")))
}
