package cmd

import (
	"errors"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
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
	Subject  string      `json:"subject,omitempty"`
	Attempts int         `json:"attempts,omitempty"`
	Left     string      `json:"left_behind,omitempty"`
	Damage   *damageLine `json:"damage,omitempty"`
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

func newErrorLine(err error) errorLine {
	l := errorLine{MessageType: "error", Code: exitCode(err), Message: oneLine(err)}
	var unsound *verify.UnsoundError
	if errors.As(err, &unsound) {
		l.Stream, l.Location = unsound.Stream, unsound.Location
	}
	var transfer *backup.TransferError
	if errors.As(err, &transfer) {
		l.Stream, l.Attempts = transfer.Stream, transfer.Attempts
	}
	var about *streamError
	if errors.As(err, &about) {
		l.Stream = about.stream
	}
	var api *jsapi.Error
	if errors.As(err, &api) {
		l.ServerCode = api.ErrCode
	}
	var denied *jsapi.PermissionError
	if errors.As(err, &denied) {
		l.Subject = denied.Subject
	}
	var left leaving
	if errors.As(err, &left) {
		l.Left = left.LeftBehind()
	}
	var d *format.DamageError
	if errors.As(err, &d) {
		l.Damage = &damageLine{
			Kind: d.Err.Error(), Reason: d.Reason, Offset: d.Offset, RawOffset: d.RawOffset, Seq: d.Seq, LastGood: d.LastGood,
		}
	}
	return l
}

// streamError names the stream that an error is about, for JSON.
type streamError struct {
	stream string
	err    error
}

func (e *streamError) Error() string { return e.err.Error() }
func (e *streamError) Unwrap() error { return e.err }
