package backup

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/snapshot"
)

// Why an attempt failed; [TransferError] wraps one of them or another cause.
var (
	// ErrStalled says that no data came for the idle timeout.
	ErrStalled = snapshot.ErrStalled
	// ErrDisconnected says that the connection to the server was lost.
	ErrDisconnected = snapshot.ErrDisconnected
	// ErrServer says that the server ended the transfer; its words follow.
	ErrServer = snapshot.ErrServer
	// ErrSlowSink says that the writer stalled for longer than the memory limit
	// could bridge.
	ErrSlowSink = snapshot.ErrSlowReader
	// ErrMoved says that the stream's leader changed while it was sending.
	ErrMoved = errors.New("the stream's leader moved")
	// ErrStreamGone says that the stream was deleted while it was backed up.
	ErrStreamGone = errors.New("the stream was deleted meanwhile")
	// ErrStreamReplaced says that the stream was deleted and created anew while
	// it was backed up.
	ErrStreamReplaced = errors.New("the stream was deleted and created again meanwhile")
	// ErrIncomplete says that the archive ended well and yet lacks messages that
	// the stream still has.
	ErrIncomplete = errors.New("the archive lacks messages of the stream")
	// ErrNeedsV2 says that the server is older than 2.15 and hands out V1
	// archives, which this version can't inspect.
	ErrNeedsV2 = errors.New("the server hands out a V1 archive (nats-server before 2.15)")
)

// LeftBehindError says that a backup failed and something of it couldn't be
// removed from the destination.
type LeftBehindError struct {
	Stream string
	// What remains, and how to remove it.
	What string
	// Err is what made the backup fail.
	Err error
}

func (e *LeftBehindError) Error() string { return fmt.Sprintf("%v; left behind: %s", e.Err, e.What) }

// LeftBehind says what remains, and how to remove it.
func (e *LeftBehindError) LeftBehind() string { return e.What }

// Unwrap returns what made the backup fail.
func (e *LeftBehindError) Unwrap() error { return e.Err }

// remains says what an Abort that failed with err leaves.
func remains(w repo.Writer, err error) string {
	if l, ok := w.(interface{ Location() string }); ok {
		return fmt.Sprintf("an unfinished backup in %s (%v): remove that directory, or let the next backup to the same place do it", l.Location(), err)
	}
	return fmt.Sprintf("the unfinished backup %s (%v): remove it by hand", w.ID(), err)
}

// ServerError is an answer of the JetStream API that is an error, with the
// server's own code. It's here for errors.As: backups and restores return it in
// the chain.
type ServerError = jsapi.Error

// PermissionError says that the user of the connection lacks a permission, and
// for which subject. It's here for errors.As, as ServerError is.
type PermissionError = jsapi.PermissionError

// TransferError says that a backup failed after a number of attempts.
type TransferError struct {
	Stream   string
	Attempts int
	// Err is the last attempt's error.
	Err error
}

func (e *TransferError) Error() string {
	if e.Attempts == 1 {
		return fmt.Sprintf("backup of stream %q failed: %v", e.Stream, e.Err)
	}
	return fmt.Sprintf("backup of stream %q failed %d times, the last time: %v", e.Stream, e.Attempts, e.Err)
}

// Unwrap returns the last attempt's error.
func (e *TransferError) Unwrap() error { return e.Err }

// passing reports whether the same backup may well succeed a little later, when
// an attempt failed with err and the one before it with last.
func passing(err, last error) bool {
	if errors.Is(err, ErrNeedsV2) {
		return false
	}
	if lasting(err) {
		// The cause may be the transfer. When the next archive shows the very
		// same fault, it's the stream.
		return last == nil || err.Error() != last.Error()
	}
	for _, e := range []error{
		ErrStalled, ErrMoved, ErrDisconnected, ErrServer, ErrStreamReplaced, ErrIncomplete,
		snapshot.ErrChunkLost, format.ErrTruncated,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	// The API has worked before: a server without JetStream is one that stops.
	return jsapi.Temporary(err) ||
		jsapi.IsCode(err, jsapi.CodeSnapshotFailed, jsapi.CodeNotEnabled, jsapi.CodeNotEnabledForAccount)
}

// lasting reports whether err is about the stream's data: the server can't read
// it, or what arrived isn't sound.
func lasting(err error) bool {
	if e, ok := errors.AsType[*snapshot.StatusError](err); ok {
		return e.Status == "500"
	}
	return errors.Is(err, format.ErrCorrupt)
}

// explain gives an error of the snapshot a name.
func explain(err error) error {
	if errors.Is(err, format.ErrV1) {
		return ErrNeedsV2
	}
	// An old server can't snapshot a memory stream at all.
	if jsapi.IsCode(err, jsapi.CodeSnapshotFailed) && strings.Contains(err.Error(), "no impl") {
		return fmt.Errorf("%w: %w", ErrNeedsV2, err)
	}
	return err
}
