package restore

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/snapshot"
)

var (
	// ErrStalled says that the backup gave no data for the idle timeout.
	ErrStalled = errors.New("reading the backup stalled")
	// ErrDisconnected says that the connection to the server was lost.
	ErrDisconnected = snapshot.ErrDisconnected
	// ErrDropped says that the server stopped taking chunks: it gave the restore
	// up, or it went away.
	ErrDropped = errors.New("the server dropped the restore")
	// ErrNoAnswer says that the server took everything and never said how it
	// ended.
	ErrNoAnswer = errors.New("the server didn't say how the restore ended")
	// ErrTakenOver says that the staged stream has lost our marker: an
	// application has created or updated the stream meanwhile.
	ErrTakenOver = errors.New("another client has taken the stream over")
)

// StoreError says that a message couldn't be stored, by a [Store] of ours or by
// the server.
type StoreError struct {
	Seq uint64
	Err error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("failed to store message sequence %d: %v", e.Seq, e.Err)
}

// Unwrap returns the cause. From a server it's a [*ServerCause].
func (e *StoreError) Unwrap() error { return e.Err }

// ServerCause is a cause that came as text in a server's answer. It matches
// syscall.ENOSPC when that text says so.
type ServerCause struct {
	Text string
	// Err is the answer it stood in.
	Err error
}

func (e *ServerCause) Error() string { return e.Text }

// Unwrap returns the server's answer.
func (e *ServerCause) Unwrap() error { return e.Err }

// Is recognises a full disk.
func (e *ServerCause) Is(target error) bool {
	return target == syscall.ENOSPC && strings.Contains(e.Text, "no space left on device")
}

var storeFailure = regexp.MustCompile(`failed to store message sequence (\d+): (?s:(.*))$`)

// explain turns the server's words about a failed restore into a StoreError
// where that's what they say.
func explain(err error) error {
	var api *jsapi.Error
	if !errors.As(err, &api) {
		return err
	}
	m := storeFailure.FindStringSubmatch(api.Description)
	if m == nil {
		return err
	}
	seq, perr := strconv.ParseUint(m[1], 10, 64)
	if perr != nil {
		return err
	}
	return &StoreError{Seq: seq, Err: &ServerCause{Text: m[2], Err: err}}
}

// Refused says that preflight found something that forbids the restore. Nothing
// was touched.
type Refused struct {
	Stream string
	// Findings are the refusals.
	Findings []Finding
}

func (e *Refused) Error() string {
	texts := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		texts[i] = f.Text
	}
	return fmt.Sprintf("restore of stream %q refused: %s", e.Stream, strings.Join(texts, "; "))
}

// TransferError says that a restore failed and was undone: nothing is left
// behind, and it may be tried again.
type TransferError struct {
	Stream string
	Err    error
}

func (e *TransferError) Error() string {
	return fmt.Sprintf("restore of stream %q failed, nothing is left behind: %v", e.Stream, e.Err)
}

// Unwrap returns the cause.
func (e *TransferError) Unwrap() error { return e.Err }

// CheckError says that the loaded stream isn't what the plan expected.
type CheckError struct {
	Stream      string
	Differences []string
}

func (e *CheckError) Error() string {
	return fmt.Sprintf("the restored stream %q differs from its backup: %s", e.Stream, strings.Join(e.Differences, "; "))
}

// LeftBehindError says that a restore failed and something of it remains.
type LeftBehindError struct {
	Stream string
	// What remains, and how to remove it or to go on.
	What string
	Err  error
}

func (e *LeftBehindError) Error() string {
	return fmt.Sprintf("restore of stream %q failed: %v; left behind: %s", e.Stream, e.Err, e.What)
}

// LeftBehind says what remains, and how to remove it or to go on.
func (e *LeftBehindError) LeftBehind() string { return e.What }

// Unwrap returns the cause.
func (e *LeftBehindError) Unwrap() error { return e.Err }
