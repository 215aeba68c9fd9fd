package restore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// TestClusterRoundTrip: R1 and R3 streams with consumers of all kinds come back
// through a node that leads neither the cluster nor the stream, and the plan says
// per consumer what comes again (C7).
func TestClusterRoundTrip(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	for _, n := range []int{1, 3} {
		nc := g.Connect(t, 0)
		stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true, TTL: time.Hour, Configure: replicated(n)})
		s := must(newJetStream(t, nc).Stream(ctx(t), stream))(t)
		if n == 3 { // as durable, ephemeral and push, with one replica
			must(s.CreateConsumer(ctx(t), jetstream.ConsumerConfig{Durable: "single", Replicas: 1, AckPolicy: jetstream.AckExplicitPolicy}))(t)
			must(s.CreateConsumer(ctx(t), jetstream.ConsumerConfig{Name: "passing", Replicas: 1, InactiveThreshold: time.Hour}))(t)
			must(s.CreatePushConsumer(ctx(t), jetstream.ConsumerConfig{Name: "pushed", DeliverSubject: "to." + stream, InactiveThreshold: time.Hour}))(t)
		}
		g.WaitStreamCurrent(t, stream)
		before := look(t, nc, stream)
		b := take(t, g.NonLeader(t, stream).Connect(t), stream)
		for _, f := range b.Manifest.Figures.Consumers {
			if f.Live == nil {
				t.Errorf("R%d: the manifest doesn't say what consumer %s was like", n, f.Name)
			}
		}
		remove(t, nc, stream)
		from := other(t, g, metaLeader(t, g)).Connect(t)
		p, _ := mustRun(t, from, b, restore.Options{FullCheck: true})
		again := 0
		for _, f := range p.Findings {
			if f.Check == "redelivery" && f.Level == restore.Warning && strings.Contains(f.Text, "acknowledged") {
				again++
			}
		}
		if again < 4 { // odd, pending, naked, the ephemeral
			t.Errorf("R%d: %d consumers are said to get messages again", n, again)
		}
		g.WaitStreamCurrent(t, stream)
		want := afterCluster(t, before, p)
		isThere(t, nc, stream, want)
		// Every replica holds it: each in turn leads.
		if n == 3 {
			g.StepDown(t, stream)
			alike(t, "messages", want.Contents, testnats.Dump(t, nc, stream))
		}
	}
	healthy(t, g)
}
