package cmd

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/internal/slowlink"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// killedInCluster: the same in a cluster, with R1 and R3 streams. There a name is
// taken as soon as a restore has been asked for, before there's a stream: a run
// that is killed between the two leaves a name that only lists show.
func killedInCluster(t *testing.T, bin string) {
	g := testnats.Cluster(t, 3)
	for _, n := range []int{1, 3} {
		o := large()
		o.NoDeletes = true
		o.Configure = func(c *jetstream.StreamConfig) { c.Replicas = n }
		// Without deliveries: a cluster's archive is exact only then.
		k := newKilling(t, bin, g.Servers[0], o, addConsumers(t, 0))
		next := func(when, said string) {
			t.Helper()
			p := mustSucceed(t, bin, k.args(k.url)...)
			if !strings.Contains(p.err.String(), said) {
				t.Errorf("R%d, %s: the next run doesn't say %q: %s", n, when, said, p.err.String())
			}
			g.WaitStreamCurrent(t, k.stream)
			k.exact(t, when)
		}

		// The server has the request and gets no chunk.
		k.remove(t)
		v := newVictim()
		var cut atomic.Bool
		gate := newTollgate(t, k.hostPort, func(subject string) bool {
			if strings.HasPrefix(subject, "$JS.SNAPSHOT.RESTORE.") && !cut.Swap(true) {
				v.process().kill9()
			}
			return !cut.Load()
		})
		v.is(launch(t, bin, k.args(gate.url())...)).wait(t)
		unreachable(t, k.nc, k.stream)
		next("before the first chunk", "interrupted")

		if n == 1 && !soak {
			continue // the rest is as with a single server
		}
		points := []int64{4}
		if soak {
			points = []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}
		}
		for _, i := range points {
			k.remove(t)
			link := testnats.Proxy(t, k.hostPort, testnats.ProxyOptions{})
			v := newVictim()
			link.After(slowlink.Up, k.size*i/10, func() {
				v.process().kill9()
				link.Cut()
			})
			v.is(launch(t, bin, k.args(link.URL())...)).wait(t)
			unreachable(t, k.nc, k.stream)
			next("in mid-transfer", "was interrupted and left")
		}

		steps := []int64{1, 3, 10}
		if soak {
			steps = []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		}
		for _, step := range steps {
			k.remove(t)
			k.atStep(t, step, func(p *process) bool { p.kill9(); return false })
			said := "it will be finished"
			if step == 1 {
				said = "was interrupted and left"
				unreachable(t, k.nc, k.stream)
			}
			next("in the activation", said)
		}
	}
}
