package cmd

import (
	"errors"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/restore"
	"github.com/jetkeep/jetkeep/verify"
)

// errorLine is the JSON line about the error that ended a run.
type errorLine struct {
	MessageType string `json:"message_type"` // "error"
	// Code is the exit code.
	Code    int    `json:"code"`
	Message string `json:"message"`
	Stream  string `json:"stream,omitempty"`
	// Location is of the backup that isn't sound.
	Location string `json:"location,omitempty"`
	// ServerCode is the JetStream API's error code.
	ServerCode int `json:"server_code,omitempty"`
	// Subject is the one that a permission is missing for.
	Subject  string `json:"subject,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	// Seq is the message that couldn't be stored.
	Seq uint64 `json:"seq,omitempty"`
	// LeftBehind says what remains and how to remove it.
	LeftBehind string            `json:"left_behind,omitempty"`
	Damage     *damageLine       `json:"damage,omitempty"`
	Findings   []restore.Finding `json:"findings,omitempty"`
}

// damageLine says where an archive is damaged.
type damageLine struct {
	Kind      string `json:"kind"`
	Reason    string `json:"reason"`
	Offset    int64  `json:"offset"`
	RawOffset int64  `json:"raw_offset"`
	Seq       uint64 `json:"seq,omitempty"`
	LastGood  string `json:"last_good,omitempty"`
}

// newErrorLine gathers what the errors in the chain know.
func newErrorLine(err error) errorLine {
	l := errorLine{MessageType: "error", Code: exitCode(err), Message: oneLine(err)}
	l.fromEngines(err)
	if e, ok := errors.AsType[*streamError](err); ok {
		l.Stream = e.stream
	}
	if e, ok := errors.AsType[*jsapi.Error](err); ok {
		l.ServerCode = e.ErrCode
	}
	if e, ok := errors.AsType[*jsapi.PermissionError](err); ok {
		l.Subject = e.Subject
	}
	if e, ok := errors.AsType[*format.DamageError](err); ok {
		l.Damage = &damageLine{
			Kind: e.Err.Error(), Reason: e.Reason, Offset: e.Offset, RawOffset: e.RawOffset, Seq: e.Seq, LastGood: e.LastGood,
		}
	}
	return l
}

func (l *errorLine) fromEngines(err error) {
	if e, ok := errors.AsType[*verify.UnsoundError](err); ok {
		l.Stream, l.Location = e.Stream, jsonLocation(e.Location)
	}
	if e, ok := errors.AsType[*backup.TransferError](err); ok {
		l.Stream, l.Attempts = e.Stream, e.Attempts
	}
	if e, ok := errors.AsType[*restore.TransferError](err); ok {
		l.Stream = e.Stream
	}
	if e, ok := errors.AsType[*restore.Refused](err); ok {
		l.Stream, l.Findings = e.Stream, e.Findings
	}
	if e, ok := errors.AsType[*restore.LeftBehindError](err); ok {
		l.Stream = e.Stream
	}
	if e, ok := errors.AsType[*backup.LeftBehindError](err); ok {
		l.Stream = e.Stream
	}
	if e, ok := errors.AsType[leaver](err); ok {
		l.LeftBehind = e.LeftBehind()
	}
	if e, ok := errors.AsType[*restore.StoreError](err); ok {
		l.Seq = e.Seq
	}
}

// streamError names the stream that an error is about, for JSON.
type streamError struct {
	stream string
	err    error
}

func (e *streamError) Error() string { return e.err.Error() }
func (e *streamError) Unwrap() error { return e.err }
