package backup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// small are options under which most of a stream of fill needs acknowledgements.
func small(stream string) backup.Options {
	return backup.Options{Stream: stream, ChunkSize: 16 << 10, WindowSize: 64 << 10}
}

// TestPermissions (T9): what is missing is named at once, and not tried again.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t, testnats.Options{Users: []testnats.User{
		{Name: "all"},
		{Name: "noack", PubDeny: []string{"$JS.SNAPSHOT.ACK.>"}},
		{Name: "nosnapshot", PubDeny: []string{"$JS.API.STREAM.SNAPSHOT.*"}},
		{Name: "noinfo", PubDeny: []string{"$JS.API.STREAM.INFO.*"}},
		{Name: "nolist", PubDeny: []string{"$JS.API.CONSUMER.LIST.*"}},
		{Name: "nodelivery", SubDeny: []string{"_INBOX.*"}},
		{Name: "noinbox", SubDeny: []string{"_INBOX.>"}},
		{
			// All that a backup needs.
			Name: "least",
			PubAllow: []string{
				"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.SNAPSHOT.*", "$JS.API.CONSUMER.LIST.*", "$JS.SNAPSHOT.ACK.>",
			},
			SubAllow: []string{"_INBOX.>"},
		},
	}})
	all := s.Connect(t)
	stream := fill(t, all, 50)
	for user, subject := range map[string]string{
		"noack": "$JS.SNAPSHOT.ACK." + stream, "nosnapshot": "$JS.API.STREAM.SNAPSHOT." + stream,
		"noinfo": "$JS.API.STREAM.INFO." + stream, "nolist": "$JS.API.CONSUMER.LIST." + stream,
		"nodelivery": "_INBOX.", "noinbox": "_INBOX.",
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			nc := s.Connect(t, nats.UserInfo(user, user))
			r := newRepo(t)
			o := small(stream)
			o.Retrying = func(_ int, err error, _ time.Duration) { t.Errorf("retried: %v", err) }
			within(t, 10*time.Second, func() {
				_, err := backup.Take(t.Context(), nc, into(r), o)
				var p *jsapi.PermissionError
				if !errors.As(err, &p) || !strings.HasPrefix(p.Subject, subject) {
					t.Errorf("got %v", err)
				}
			})
			nothingIn(t, r)
		})
	}
	t.Run("least", func(t *testing.T) {
		t.Parallel()
		res := take(t, s.Connect(t, nats.UserInfo("least", "least")), newRepo(t), small(stream))
		agrees(t, all, stream, res)
	})
	t.Run("own inbox", func(t *testing.T) {
		t.Parallel()
		res := take(t, s.Connect(t, nats.CustomInboxPrefix("_mine.one")), newRepo(t), small(stream))
		agrees(t, all, stream, res)
	})
}

// TestImportedAPI (T8): the stream is in another account, which exports its API.
func TestImportedAPI(t *testing.T) {
	t.Parallel()
	imports := func(ack string) string {
		return `imports: [
			{service: {account: "OWNER", subject: "$JS.API.>"}, to: "OTHER.API.>"}
			{stream: {account: "OWNER", subject: "deliver.>"}}
			` + ack + `
		]`
	}
	s := testnats.Single(t, testnats.Options{Accounts: []testnats.Account{
		{Name: "OWNER", Exports: `exports: [
			{service: "$JS.API.>", response_type: stream}
			{service: "$JS.SNAPSHOT.ACK.>"}
			{stream: "deliver.>"}
		]`},
		{Name: "USER", NoJetStream: true, Imports: imports(`{service: {account: "OWNER", subject: "$JS.SNAPSHOT.ACK.>"}}`)},
		{Name: "FORGOT", NoJetStream: true, Imports: imports("")},
	}})
	owner := s.Connect(t)
	stream := fill(t, owner, 50)
	o := small(stream)
	o.APIPrefix = "OTHER.API"
	res := take(t, s.Connect(t, nats.UserInfo("USER", "USER"), nats.CustomInboxPrefix("deliver.user")), newRepo(t), o)
	agrees(t, owner, stream, res)

	r := newRepo(t)
	o.Retries = backup.NoRetries
	nc := s.Connect(t, nats.UserInfo("FORGOT", "FORGOT"), nats.CustomInboxPrefix("deliver.user"))
	_, err := backup.Take(t.Context(), nc, into(r), o)
	failure(t, err, backup.ErrServer, 1)
	if !strings.Contains(err.Error(), "$JS.SNAPSHOT.ACK."+stream) {
		t.Errorf("the subject isn't named: %v", err)
	}
	nothingIn(t, r)
}

// TestDomainBehindALeafnode (T8).
func TestDomainBehindALeafnode(t *testing.T) {
	t.Parallel()
	hub := testnats.Single(t, testnats.Options{Domain: "hub", Conf: `leafnodes { listen: "127.0.0.1:-1" }`})
	port := hub.Log.Wait(t, "Listening for leafnode connections on")
	leaf := testnats.Single(t, testnats.Options{Domain: "leaf", Conf: fmt.Sprintf(
		`leafnodes { remotes: [ {url: "nats-leaf://anyone:anyone@127.0.0.1:%s"} ] }`, port[strings.LastIndexByte(port, ':')+1:])})
	hub.Log.Wait(t, "Leafnode connection created")
	nc := hub.Connect(t)
	stream := fill(t, nc, 50)
	o := small(stream)
	o.Domain = "hub"
	res := take(t, leaf.Connect(t), newRepo(t), o)
	agrees(t, nc, stream, res)
	if s := res.Manifest.Server; s.Domain != "hub" || s.Name != hub.Name() {
		t.Errorf("server %+v", s)
	}
}
