package jsapi

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// limited is a server where user u may not do what deny says.
func limited(t *testing.T, deny server.Permissions) (*server.Server, nats.Option) {
	t.Helper()
	s := startServer(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &deny}, {Username: "all", Password: "p"}}
	})
	return s, nats.UserInfo("u", "p")
}

func noPublish(subjects ...string) server.Permissions {
	return server.Permissions{Publish: &server.SubjectPermission{Deny: subjects}}
}

func wantDenied(t *testing.T, err error, op, subject string, since time.Time) {
	t.Helper()
	var p *PermissionError
	if !errors.As(err, &p) || p.Op != op || !strings.HasPrefix(p.Subject, subject) || !strings.Contains(err.Error(), subject) {
		t.Errorf("got %v", err)
	}
	if !errors.Is(err, nats.ErrPermissionViolation) || Temporary(err) {
		t.Errorf("%v: not a violation, or temporary", err)
	}
	if took := time.Since(since); took > time.Second {
		t.Errorf("noticed after %v", took)
	}
}

func TestRequestWithoutPermission(t *testing.T) {
	s, user := limited(t, noPublish("$JS.API.STREAM.SNAPSHOT.*"))
	c := newClient(t, connect(t, s, user), Options{})
	begin := time.Now()
	_, err := c.StartSnapshot(t.Context(), "S", SnapshotRequest{DeliverSubject: "x"})
	wantDenied(t, err, "publish", "$JS.API.STREAM.SNAPSHOT.S", begin)
	if _, err := c.AccountInfo(t.Context()); err != nil { // the others still work
		t.Error(err)
	}
}

func TestInboxWithoutPermission(t *testing.T) {
	s, user := limited(t, server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}})
	nc := connect(t, s, user)
	for _, when := range []string{"first", "second", "of another client"} {
		c := newClient(t, nc, Options{})
		begin := time.Now()
		_, err := c.AccountInfo(t.Context())
		wantDenied(t, err, "subscribe", "_INBOX.", begin)
		if t.Failed() {
			t.Fatal(when)
		}
	}
	// Refused before there was any client: nobody reports it again.
	nc = connect(t, s, user)
	_, _ = nc.Request("anything", nil, 50*time.Millisecond)
	c := newClient(t, nc, Options{})
	begin := time.Now()
	_, err := c.AccountInfo(t.Context())
	wantDenied(t, err, "subscribe", "_INBOX.", begin)

	c = newClient(t, connect(t, s, user, nats.CustomInboxPrefix("_MINE")), Options{})
	if _, err := c.AccountInfo(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDeniedInMidTransfer(t *testing.T) {
	s, user := limited(t, noPublish("$JS.SNAPSHOT.ACK.>"))
	nc := connect(t, s, user)
	c := newClient(t, nc, Options{})
	denied, stop := c.WatchDenied("$JS.SNAPSHOT.ACK.")
	defer stop()
	other, stopOther := c.WatchDenied("$JS.SNAPSHOT.RESTORE.")
	defer stopOther()
	begin := time.Now()
	for i := range 100 {
		if err := nc.Publish(fmt.Sprintf("$JS.SNAPSHOT.ACK.S.x.%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case p := <-denied:
		wantDenied(t, p, "publish", "$JS.SNAPSHOT.ACK.S.x.0", begin)
	case <-time.After(5 * time.Second):
		t.Fatal("nothing noticed")
	}
	select {
	case p := <-other:
		t.Errorf("another subject: %v", p)
	default:
	}
	if p := c.PermissionDenied("$JS.SNAPSHOT.ACK."); p == nil {
		t.Error("not remembered")
	}
	if p := c.PermissionDenied("$JS.SNAPSHOT.RESTORE."); p != nil {
		t.Errorf("remembered %v", p)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return c.watcher.seen() == 100 })
	if p := newClient(t, nc, Options{}).PermissionDenied("$JS."); p != nil {
		t.Errorf("from before this client: %v", p)
	}
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never happened")
		}
	}
}

// TestErrorHandlerGivenBack: the program's own handler gets every error, and is
// the connection's again in the end, in whatever order clients are closed.
func TestErrorHandlerGivenBack(t *testing.T) {
	s, user := limited(t, noPublish("secret.>"))
	var calls atomic.Int32
	nc := connect(t, s, user, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { calls.Add(1) }))
	original := nc.ErrorHandler()
	var clients []*Client
	for range 3 {
		clients = append(clients, newClient(t, nc, Options{}))
	}
	publish := func(want int32) {
		t.Helper()
		if err := nc.Publish("secret.x", nil); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return calls.Load() == want })
	}
	publish(1)
	clients[0].Close()
	clients[0].Close()
	clients[2].Close()
	publish(2)
	if clients[1].PermissionDenied("secret.") == nil {
		t.Error("the last client hears nothing")
	}
	clients[1].Close()
	if !sameCode(nc.ErrorHandler(), original) {
		t.Error("the handler wasn't given back")
	}
	publish(3)
	if n := len(watchers); n != 0 {
		for c := range watchers {
			if c == nc {
				t.Errorf("%d watchers left", n)
			}
		}
	}
}

// TestLaterErrorHandlerStays: what the program installs after New isn't taken
// away by Close.
func TestLaterErrorHandlerStays(t *testing.T) {
	s, user := limited(t, noPublish("secret.>"))
	var first, later atomic.Int32
	nc := connect(t, s, user, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { first.Add(1) }))
	c := newClient(t, nc, Options{})
	ours := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		later.Add(1)
		ours(nc, sub, err)
	})
	c.Close()
	if err := nc.Publish("secret.x", nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return first.Load() == 1 && later.Load() == 1 })
	again := newClient(t, nc, Options{})
	_, err := again.StreamInfo(t.Context(), "NONE")
	if !IsCode(err, CodeStreamNotFound) {
		t.Error(err)
	}
}

func TestParseDenial(t *testing.T) {
	violation := func(text string) error { return fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text) }
	for text, want := range map[string]PermissionError{
		`Permissions Violation for Publish to "a.b"`:                                       {Op: "publish", Subject: "a.b"},
		`Permissions Violation for Publish to "a\"b"`:                                      {Op: "publish", Subject: `a"b`},
		`Permissions Violation for Subscription to "a.>"`:                                  {Op: "subscribe", Subject: "a.>"},
		`Permissions Violation for Subscription to "a" using queue "q" (sid "1")`:          {Op: "subscribe", Subject: "a"},
		`Permissions Violation for Subscription to "a.b.c", too many tokens`:               {Op: "subscribe", Subject: "a.b.c"},
		`Permissions Violation for Publish with Reply of "$JS.ACK.x"`:                      {Op: "reply", Subject: "$JS.ACK.x"},
		`Permissions Violation for something that this version of the server doesn't have`: {Op: "publish"},
	} {
		got := parseDenial(violation(text))
		if got == nil || got.Op != want.Op || got.Subject != want.Subject || !errors.Is(got, nats.ErrPermissionViolation) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if p := parseDenial(nats.ErrSlowConsumer); p != nil {
		t.Errorf("slow consumer: %v", p)
	}
}
