package backup

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/snapshot"
)

// TestPassing says which failures are worth another attempt: some at once, some
// unless they come again in the same words.
func TestPassing(t *testing.T) {
	t.Parallel()
	status := func(code, text string) error { return &snapshot.StatusError{Status: code, Text: text} }
	api := func(code int) error { return &jsapi.Error{Code: 500, ErrCode: code, Description: "words"} }
	for _, c := range []struct {
		err          error
		first, again bool
	}{
		{ErrStalled, true, true},
		{ErrDisconnected, true, true},
		{ErrMoved, true, true},
		{ErrStreamReplaced, true, true},
		{ErrIncomplete, true, true},
		{fmt.Errorf("%w: %w", ErrSlowSink, status("408", "No Flow Response")), true, true},
		{status("408", "No Interest"), true, true},
		{status("500", "couldn't load next message after seq 5: stream closed"), true, false},
		{&format.DamageError{Err: format.ErrTruncated}, true, true},
		{&format.DamageError{Err: format.ErrCorrupt}, true, false},
		{api(jsapi.CodeSnapshotFailed), true, true},
		{api(jsapi.CodeNotEnabled), true, true},
		{api(jsapi.CodeStreamOffline), true, true},
		{jsapi.ErrTimeout, true, true},
		{ErrStreamGone, false, false},
		{ErrNeedsV2, false, false},
		{explain(&format.DamageError{Err: format.ErrV1}), false, false},
		{explain(&jsapi.Error{ErrCode: jsapi.CodeSnapshotFailed, Description: "snapshot failed: no impl"}), false, false},
		{format.ErrMismatch, false, false},
		{api(jsapi.CodeStreamNotFound), false, false},
		{&jsapi.PermissionError{Op: "publish", Subject: "x"}, false, false},
		{nats.ErrConnectionClosed, false, false},
	} {
		err := fmt.Errorf("wrapped: %w", c.err)
		if got := passing(err, nil); got != c.first {
			t.Errorf("%v: %t", err, got)
		}
		if got := passing(err, err); got != c.again {
			t.Errorf("%v, the second time: %t", err, got)
		}
	}
}

// TestComplete: fewer messages than the stream still has mean a lost tail;
// fewer than it had don't.
func TestComplete(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		then, now format.State
		held      uint64
		ok        bool
	}{
		{format.State{Messages: 100, LastSeq: 100}, format.State{Messages: 100, LastSeq: 100}, 100, true},
		{format.State{Messages: 100, LastSeq: 100}, format.State{Messages: 100, LastSeq: 100}, 99, false},
		{format.State{Messages: 100, LastSeq: 100}, format.State{Messages: 150, LastSeq: 150}, 100, true},
		{format.State{Messages: 100, LastSeq: 100}, format.State{Messages: 150, LastSeq: 150}, 40, false},
		{format.State{Messages: 100, LastSeq: 100}, format.State{LastSeq: 100}, 40, true},
		{format.State{Messages: 100, LastSeq: 100}, format.State{Messages: 30, LastSeq: 130}, 40, true},
		{format.State{Messages: 100, LastSeq: 100}, format.State{Messages: 90, LastSeq: 100}, 95, true},
		{format.State{}, format.State{Messages: 5, LastSeq: 5}, 0, true},
	} {
		ins := &format.Inspection{Head: &format.Head{State: c.then}, Figures: format.Figures{Messages: c.held}}
		if err := complete(&jsapi.StreamInfo{State: c.now}, ins); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestSlowDown: less each time, down to a bound, and never more.
func TestSlowDown(t *testing.T) {
	t.Parallel()
	var o Options
	o.defaults()
	o.chooseWindow(time.Millisecond)
	if o.WindowSize != 8<<20 {
		t.Errorf("window %d", o.WindowSize)
	}
	far := Options{QueueSize: 1}
	if far.chooseWindow(50 * time.Millisecond); far.WindowSize != 16<<20 || far.QueueSize != 16<<20 {
		t.Errorf("over a long line: %+v", far)
	}
	k := &taker{o: o}
	for range 10 {
		k.slowDown(ErrStalled, time.Hour)
	}
	if k.o.ChunkSize != leastChunk || k.o.WindowSize != leastWindow {
		t.Errorf("chunk %d, window %d", k.o.ChunkSize, k.o.WindowSize)
	}
	k = &taker{o: Options{ChunkSize: 1024, WindowSize: 2048}}
	k.slowDown(ErrDisconnected, time.Second)
	k.slowDown(ErrMoved, time.Second)
	if k.o.ChunkSize != 1024 || k.o.WindowSize != 2048 {
		t.Errorf("chunk %d, window %d", k.o.ChunkSize, k.o.WindowSize)
	}
	k = &taker{o: o}
	k.slowDown(ErrDisconnected, time.Hour)
	if k.o.ChunkSize != o.ChunkSize {
		t.Errorf("chunk %d after an hour that went well", k.o.ChunkSize)
	}
}

// TestWaitGrows for any number of attempts, up to half a minute or so.
func TestWaitGrows(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5, 34, 35, 64, 100, 1 << 30} {
		if d := backOff(n); d < 700*time.Millisecond || d > 40*time.Second || n >= 34 && d < 20*time.Second {
			t.Errorf("attempt %d: %v", n, d)
		}
	}
}
