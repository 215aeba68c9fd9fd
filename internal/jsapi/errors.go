package jsapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Codes of the JetStream API, as nats-server's errors.json has them.
const (
	CodeAccountResources          = 10002 // resource limits exceeded for account
	CodeBadRequest                = 10003
	CodeClusterIncomplete         = 10004 // incomplete results
	CodeClusterNoPeers            = 10005 // no suitable peers for placement
	CodeClusterNotAvailable       = 10008 // JetStream system temporarily unavailable
	CodeClusterNotLeader          = 10009
	CodeConsumerCreate            = 10012
	CodeConsumerNameExists        = 10013
	CodeConsumerNotFound          = 10014
	CodeSnapshotDeliverSubject    = 10015
	CodeInsufficientResources     = 10023
	CodeInvalidJSON               = 10025 // an unknown configuration field counts as such
	CodeMaximumConsumers          = 10026
	CodeMaximumStreams            = 10027
	CodeInsufficientMemory        = 10028
	CodeNoMessageFound            = 10037
	CodeNotEnabledForAccount      = 10039
	CodeInsufficientStorage       = 10047
	CodeStreamCreate              = 10049
	CodeStreamDelete              = 10050
	CodeStreamInvalidConfig       = 10052
	CodeStreamLimits              = 10053
	CodeStreamMismatch            = 10056 // stream name in subject does not match request
	CodeMessageDeleteFailed       = 10057
	CodeStreamNameExists          = 10058 // with a different configuration
	CodeStreamNotFound            = 10059
	CodeRestoreFailed             = 10062
	CodeSnapshotFailed            = 10064
	CodeSubjectOverlap            = 10065
	CodeStreamUpdate              = 10069
	CodeTempStorageFailed         = 10072
	CodeReplicasNeedCluster       = 10074
	CodePeerRemap                 = 10075
	CodeNotEnabled                = 10076
	CodeStreamStoreFailed         = 10077
	CodeStreamSealed              = 10109
	CodeMaxBytesRequired          = 10113
	CodeMaxSubjects               = 10117
	CodeStreamOffline             = 10118
	CodeConsumerOffline           = 10119
	CodeNoLimits                  = 10120 // no default or applicable tiered limit
	CodeMaxStreamBytes            = 10122 // stream max bytes exceeds the account's limit
	CodeRestoreNameExists         = 10130
	CodeConsumerAlreadyExists     = 10148
	CodeConsumerDoesNotExist      = 10149
	CodeTooManyRequests           = 10167
	CodeRequiredAPILevel          = 10185
	CodeStreamOfflineWithReason   = 10194
	CodeConsumerOfflineWithReason = 10195
)

// Error is what the server answered instead of a result.
type Error struct {
	// Code resembles an HTTP status, ErrCode is one of the Code constants.
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code,omitempty"`
	Description string `json:"description,omitempty"`
}

// Error gives the server's words and the code to look up.
func (e *Error) Error() string {
	text := e.Description
	if text == "" {
		text = "JetStream API error"
	}
	code := e.ErrCode
	if code == 0 {
		code = e.Code
	}
	return fmt.Sprintf("%s (%d)", text, code)
}

// IsCode reports whether err holds an [Error] with one of the codes.
func IsCode(err error, codes ...int) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, c := range codes {
		if e.ErrCode == c {
			return true
		}
	}
	return false
}

var (
	// ErrNoResponders says that nobody listens on the API's subject.
	ErrNoResponders = errors.New("no JetStream API answers")
	// ErrNotConnected says that the connection is lost at the moment.
	ErrNotConnected = errors.New("the server can't be reached")
	// ErrTimeout says that no answer came within one request's timeout. Whether
	// the server did what was asked is not known.
	ErrTimeout = errors.New("no answer in time")
)

// PermissionError says that the user of the connection may not do something.
type PermissionError struct {
	// Op is "publish", "subscribe", or "reply" when the reply subject of a
	// request is not allowed.
	Op      string
	Subject string
	// Err is what nats.go reported; it wraps nats.ErrPermissionViolation.
	Err error
}

// Error names the missing permission.
func (e *PermissionError) Error() string {
	switch e.Op {
	case "subscribe":
		return fmt.Sprintf("permission denied: the user may not subscribe to %q", e.Subject)
	case "reply":
		return fmt.Sprintf("permission denied: the user may not request replies on %q", e.Subject)
	}
	return fmt.Sprintf("permission denied: the user may not publish to %q", e.Subject)
}

// Unwrap returns the error of nats.go.
func (e *PermissionError) Unwrap() error { return e.Err }

// Temporary reports whether the same request may well succeed a little later:
// nobody answered, or the cluster has no leader at the moment. Refusals,
// missing permissions, an ended context and a closed connection are final.
func Temporary(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrConnectionClosed) {
		return false
	}
	for _, e := range []error{
		ErrTimeout, ErrNoResponders, ErrNotConnected,
		nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrStaleConnection,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return IsCode(err, CodeClusterIncomplete, CodeClusterNotAvailable, CodeClusterNotLeader, CodePeerRemap,
		CodeStreamOffline, CodeConsumerOffline, CodeTooManyRequests)
}
