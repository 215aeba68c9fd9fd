package connect

import (
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestConnectContextAlone has everything in the environment that would lead
// elsewhere, as a cron job for an ordinary user has.
func TestConnectContextAlone(t *testing.T) {
	dir := clean(t)
	s := start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "operator", Password: "secret"}, {Username: "cron", Password: "jobs"}}
	})
	writeContext(t, dir, "system", `{"url":"`+s.ClientURL()+`","user":"operator","password":"secret"}`)
	writeContext(t, dir, "other", `{"url":"nats://127.0.0.1:1"}`)
	selectContext(t, dir, "other")
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	t.Setenv("NATS_USER", "cron")
	t.Setenv("NATS_PASSWORD", "jobs")
	t.Setenv("NATS_CONTEXT", "other")
	c, err := ConnectContext(t.Context(), "system", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := user(t, c); got != "operator" {
		t.Errorf("connected as %q", got)
	}
	if _, err := ConnectContext(t.Context(), "nowhere", "test"); !errors.Is(err, ErrSettings) {
		t.Errorf("an unknown context: %v", err)
	}
}
