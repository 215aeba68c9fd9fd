package restore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

func replicated(n int) func(*jetstream.StreamConfig) {
	return func(c *jetstream.StreamConfig) { c.Replicas = n }
}

// healthy waits until every running server calls itself healthy, and the
// streams and consumers that it should have.
func healthy(t testing.TB, g *testnats.Group) {
	t.Helper()
	for _, s := range g.Servers {
		if !s.Running() {
			continue
		}
		nc := s.ConnectSystem(t)
		greenAgain(t, nc, s.ID())
		nc.Close()
	}
}

// greenAgain waits until a server's health check is green.
func greenAgain(t testing.TB, system *nats.Conn, id string) {
	t.Helper()
	testnats.Eventually(t, func() error {
		m, err := system.Request("$SYS.REQ.SERVER."+id+".HEALTHZ", nil, 5*time.Second)
		if err != nil {
			return err
		}
		var r struct {
			Data struct {
				Status string `json:"status"`
				Error  string `json:"error"`
			} `json:"data"`
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			return err
		}
		if r.Data.Status != "ok" {
			return fmt.Errorf("server %s is %s: %s", id, r.Data.Status, r.Data.Error)
		}
		return nil
	})
}

// free checks that nothing is left under a name: INFO, LIST and NAMES don't know
// it, no server has its files in use, and another stream may have the name.
func free(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	absent(t, nc, stream)
	list := must(client(t, nc).Streams(ctx(t)))(t)
	for _, s := range list.Streams {
		if s.Name() == stream {
			t.Errorf("stream %s is listed", stream)
		}
	}
	for _, name := range list.Missing {
		if name == stream {
			t.Errorf("stream %s is listed as missing", stream)
		}
	}
	for _, name := range must(client(t, nc).StreamNames(ctx(t), ""))(t) {
		if name == stream {
			t.Errorf("the name of stream %s is taken", stream)
		}
	}
}

// afterCluster turns what consumers were into what a cluster's archive makes of
// them, which holds their ack floor only, by what the plan says of each.
func afterCluster(t testing.TB, before looks, p *restore.Plan) looks {
	t.Helper()
	before.Consumers = slices.Clone(before.Consumers)
	planned := map[string]restore.ExpectedConsumer{}
	for _, c := range p.Expected.Consumers {
		planned[c.Name] = c
	}
	for i := range before.Consumers {
		c := &before.Consumers[i]
		e, ok := planned[c.Name]
		if !ok {
			t.Errorf("consumer %s isn't in the plan", c.Name)
		}
		if int(e.Pending) != c.AckPending {
			t.Errorf("consumer %s: the plan says %d pending, there were %d", c.Name, e.Pending, c.AckPending)
		}
		if c.AckPending > 0 {
			c.Pending += e.Pending + e.Again
			c.Delivered, c.AckPending, c.Redelivered = c.AckFloor, 0, 0
		}
	}
	return before
}

// inPhase is Options.Progress that calls f once, when a phase begins.
func inPhase(phase restore.Phase, f func()) func(restore.Progress) {
	done := false
	return func(p restore.Progress) {
		if p.Phase == phase && !done {
			done = true
			f()
		}
	}
}

// halfWay has the home call f once, when half of an archive has been read.
func halfWay(h *home, f func()) {
	var once sync.Once
	h.read = func(_ context.Context, data []byte) io.ReadCloser {
		return io.NopCloser(io.MultiReader(bytes.NewReader(data[:len(data)/2]), readFunc(func([]byte) (int, error) {
			once.Do(f)
			return 0, io.EOF
		}), bytes.NewReader(data[len(data)/2:])))
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// alike is same for large payloads, over which cmp takes its time.
func alike(t testing.TB, what string, want, got any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		same(t, what, want, got)
	}
}

// isThere checks that a stream is what it was. A server that recovers a consumer
// or takes it over raises its positions to where the stream begins, which counts
// as the same.
func isThere(t testing.TB, nc *nats.Conn, stream string, want looks) {
	t.Helper()
	raised := func(l looks) looks {
		l.Consumers = slices.Clone(l.Consumers)
		for i := range l.Consumers {
			c := &l.Consumers[i]
			c.AckFloor.Stream = max(c.AckFloor.Stream, l.Contents.FirstSeq-1)
			c.Delivered.Stream = max(c.Delivered.Stream, l.Contents.FirstSeq-1)
		}
		return l
	}
	alike(t, stream, raised(want), raised(look(t, nc, stream)))
}

// carryOut runs a plan, with patience.
func carryOut(t testing.TB, nc *nats.Conn, p *restore.Plan) (*restore.Result, error) {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return restore.Run(c, nc, p)
}

// metaLeader returns the server that leads the cluster.
func metaLeader(t testing.TB, g *testnats.Group) *testnats.Server {
	t.Helper()
	var leader *testnats.Server
	testnats.Eventually(t, func() error {
		for _, s := range g.Servers {
			if s.Running() && s.JetStreamIsLeader() {
				leader = s
				return nil
			}
		}
		return fmt.Errorf("no meta leader")
	})
	return leader
}

// metaStepDown makes the meta leader hand over.
func metaStepDown(t testing.TB, g *testnats.Group) {
	t.Helper()
	old := metaLeader(t, g)
	nc := old.ConnectSystem(t)
	defer nc.Close()
	_ = must(nc.Request("$JS.API.META.LEADER.STEPDOWN", nil, 5*time.Second))(t)
}

// other returns a server that is neither.
func other(t testing.TB, g *testnats.Group, not ...*testnats.Server) *testnats.Server {
	t.Helper()
next:
	for _, s := range g.Servers {
		for _, n := range not {
			if s == n {
				continue next
			}
		}
		if s.Running() {
			return s
		}
	}
	t.Fatal("no other server is running")
	return nil
}
