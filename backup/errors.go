package backup

import (
	"errors"
	"fmt"

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
	// ErrNeedsV2 says that the server is older than 2.15 and hands out V1
	// archives, which this version can't inspect.
	ErrNeedsV2 = errors.New("the server hands out a V1 archive (nats-server before 2.15)")
)

// TransferError says that a backup failed after a number of attempts. Nothing
// is left behind.
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

// passing reports whether the same backup may well succeed a little later.
func passing(err error) bool {
	for _, e := range []error{ErrStalled, ErrMoved, ErrDisconnected, ErrServer, snapshot.ErrChunkLost, ErrStreamReplaced, format.ErrTruncated} {
		if errors.Is(err, e) {
			return true
		}
	}
	return jsapi.Temporary(err) || jsapi.IsCode(err, jsapi.CodeSnapshotFailed)
}
