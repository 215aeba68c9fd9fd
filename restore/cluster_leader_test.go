package restore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// TestClusterLeadersMove: who leads changes at each moment of a restore; it ends
// with the stream as it was.
func TestClusterLeadersMove(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	nc := g.Connect(t, 0)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true, Configure: replicated(3)})
	g.WaitStreamCurrent(t, stream)
	before := look(t, nc, stream)
	home, b := inMemory(t, nc, stream)

	for _, c := range []struct {
		when string
		set  func(p *restore.Plan, o *restore.Options) *restore.Plan
	}{
		{"between plan and run, of the cluster", func(p *restore.Plan, _ *restore.Options) *restore.Plan {
			metaStepDown(t, g)
			return p
		}},
		{"in mid-transfer, of the cluster", func(p *restore.Plan, _ *restore.Options) *restore.Plan {
			halfWay(home, func() { metaStepDown(t, g) })
			return p
		}},
		{"before the check, of the stream", func(_ *restore.Plan, o *restore.Options) *restore.Plan {
			o.Progress = inPhase(restore.PhaseCheck, func() { stepDown(t, nc, stream) })
			return prepare(t, nc, b, *o)
		}},
		{"before the activation, of the cluster", func(_ *restore.Plan, o *restore.Options) *restore.Plan {
			o.Progress = inPhase(restore.PhaseActivate, func() { metaStepDown(t, g) })
			return prepare(t, nc, b, *o)
		}},
		{"before the activation, of the stream", func(_ *restore.Plan, o *restore.Options) *restore.Plan {
			o.Progress = inPhase(restore.PhaseActivate, func() { stepDown(t, nc, stream) })
			return prepare(t, nc, b, *o)
		}},
	} {
		t.Run(strings.ReplaceAll(c.when, " ", "-"), func(t *testing.T) {
			remove(t, nc, stream)
			home.read = nil
			o := restore.Options{FullCheck: true, RequestTimeout: 2 * time.Second}
			p := prepare(t, nc, b, o)
			p = c.set(p, &o)
			res, err := carryOut(t, nc, p)
			home.read = nil
			check(t, err)
			if len(res.Warnings) > 0 {
				t.Errorf("warnings: %q", res.Warnings)
			}
			g.WaitStreamCurrent(t, stream)
			isThere(t, nc, stream, afterCluster(t, before, p))
		})
	}
	healthy(t, g)
}

// stepDown asks the stream's leader to hand over. It may well lead again: while
// the others aren't current nobody else can.
func stepDown(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	m := must(nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, 5*time.Second))(t)
	t.Logf("stepping down: %s", m.Data)
}

// TestClusterLeaderDiesInMidTransfer: the restore fails with nothing left, or the
// server's word comes too late; the next one is exact.
func TestClusterLeaderDiesInMidTransfer(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	for _, n := range []int{1, 3} {
		nc := g.Connect(t, 0)
		stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true, Configure: replicated(n)})
		g.WaitStreamCurrent(t, stream)
		before := look(t, nc, stream)
		home, b := inMemory(t, nc, stream)
		remove(t, nc, stream)
		p := prepare(t, nc, b, restore.Options{ChunkSize: 16 << 10, IdleTimeout: 8 * time.Second})
		var down *testnats.Server
		halfWay(home, func() {
			testnats.Eventually(t, func() error {
				for _, s := range g.Servers {
					if s.JetStreamIsStreamAssigned("$G", stream) && (n == 1 || s.JetStreamIsStreamLeader("$G", stream)) {
						down = s
						return nil
					}
				}
				return errors.New("no leader")
			})
			g.Kill(g.Index(down))
			if n == 1 || down == g.Servers[0] { // else there's nobody to ask
				go g.Servers[g.Index(down)].Restart(t)
			}
		})
		began := time.Now()
		_, err := carryOut(t, nc, p)
		t.Logf("R%d, %s was killed: after %v: %v", n, down.Name(), time.Since(began).Round(time.Second), err)
		home.read = nil
		if err == nil {
			t.Errorf("R%d: it succeeded without the server", n)
		}
		if !down.Running() {
			down.Restart(t)
		}
		g.WaitCurrent(t)
		transferFailed(t, nc, stream, err)
		free(t, nc, stream)
		p, _ = mustRun(t, nc, b, restore.Options{})
		g.WaitStreamCurrent(t, stream)
		isThere(t, nc, stream, afterCluster(t, before, p))
	}
	healthy(t, g)
}

// TestClusterLeaderDiesAfterActivation: what was restored is on a majority.
func TestClusterLeaderDiesAfterActivation(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	nc := g.Connect(t, 0)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true, Configure: replicated(3)})
	g.WaitStreamCurrent(t, stream)
	before := look(t, nc, stream)
	b := take(t, nc, stream)
	remove(t, nc, stream)
	p, _ := mustRun(t, nc, b, restore.Options{})
	leader := g.StreamLeader(t, stream)
	g.Kill(g.Index(leader))
	left := other(t, g, leader).Connect(t)
	g.StreamLeader(t, stream)
	want := afterCluster(t, before, p)
	alike(t, "messages", want.Contents, testnats.Dump(t, left, stream))
	g.Restart(t, g.Index(leader))
	g.WaitStreamCurrent(t, stream)
	isThere(t, left, stream, want)
	healthy(t, g)
}

// TestClusterWithAServerDown: two of three servers are enough for an R3 stream;
// the result says what is missing, and the third follows once it's back. A
// server that goes while the stream is loading doesn't hinder it either.
func TestClusterWithAServerDown(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	nc := g.Connect(t, 0)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true, Configure: replicated(3)})
	g.WaitStreamCurrent(t, stream)
	before := look(t, nc, stream)
	home, b := inMemory(t, nc, stream)
	for _, when := range []string{"before", "meanwhile"} {
		t.Run(when, func(t *testing.T) {
			remove(t, nc, stream)
			var down *testnats.Server
			kill := func() {
				not := []*testnats.Server{g.Servers[0]} // we're connected to that
				for _, s := range g.Servers {
					if s.JetStreamIsStreamLeader("$G", stream) {
						not = append(not, s)
					}
				}
				down = other(t, g, not...)
				g.Kill(g.Index(down))
			}
			if when == "before" {
				kill()
				metaLeader(t, g)
			}
			waited := ""
			p := prepare(t, nc, b, restore.Options{FullCheck: true, Progress: func(p restore.Progress) {
				if p.Waiting != "" {
					waited = p.Waiting
				}
			}})
			if when == "meanwhile" {
				halfWay(home, kill)
			}
			res, err := carryOut(t, nc, p)
			home.read = nil
			check(t, err)
			if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], down.Name()) || !strings.Contains(waited, down.Name()) {
				t.Errorf("warnings %q, waiting for %q", res.Warnings, waited)
			}
			want := afterCluster(t, before, p)
			alike(t, "messages", want.Contents, testnats.Dump(t, nc, stream))
			g.Restart(t, g.Index(down))
			g.WaitStreamCurrent(t, stream)
			isThere(t, nc, stream, want)
			healthy(t, g)
		})
	}
}
