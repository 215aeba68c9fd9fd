package backup_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

func replicas(n int) func(*jetstream.StreamConfig) {
	return func(c *jetstream.StreamConfig) { c.Replicas = n }
}

// clusterStream makes a stream in a cluster, and connects to a server that
// doesn't lead it.
func clusterStream(t testing.TB, g *testnats.Group, n, messages int) (string, *nats.Conn) {
	t.Helper()
	stream := fill(t, g.Connect(t, 0), messages, replicas(n))
	g.WaitStreamCurrent(t, stream)
	return stream, g.NonLeader(t, stream).Connect(t)
}

// TestThroughANonLeader (T8), with what the manifest says of where it was.
func TestThroughANonLeader(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	for _, n := range []int{1, 3} {
		stream := testnats.Fill(t, g.Connect(t, 0), testnats.FillOptions{Messages: 200, Consumers: true, Configure: replicas(n)})
		g.WaitStreamCurrent(t, stream)
		nc := g.NonLeader(t, stream).Connect(t)
		res := take(t, nc, newRepo(t), small(stream))
		agrees(t, nc, stream, res)
		s := res.Manifest.Server
		if s.Cluster == "" || s.Name == "" || s.Name == nc.ConnectedServerName() || s.Name != g.StreamLeader(t, stream).Name() {
			t.Errorf("R%d: server %+v", n, s)
		}
	}
}

// TestLeaderIsKilled (T2): another takes over, and the backup begins again.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	stream, nc := clusterStream(t, g, 3, 100)
	var again retries
	o := small(stream)
	o.Retrying = again.note
	o.RequestTimeout = 2 * time.Second
	leader := g.StreamLeader(t, stream)
	res, err := backup.Take(t.Context(), nc, through(into(newRepo(t)), once(400<<10, func() { g.Kill(g.Index(leader)) })), o)
	check(t, err)
	t.Logf("%d attempts: %v", res.Attempts, again.errs)
	if res.Attempts < 2 || res.Manifest.Server.Name == leader.Name() {
		t.Errorf("%d attempts, %+v", res.Attempts, res.Manifest.Server)
	}
	agrees(t, nc, stream, res)
}

// TestLeaderStepsDown: the old leader may finish what it began, or not.
func TestLeaderStepsDown(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	stream, nc := clusterStream(t, g, 3, 100)
	var again retries
	o := small(stream)
	o.Retrying = again.note
	res, err := backup.Take(t.Context(), nc, through(into(newRepo(t)), once(400<<10, func() { g.StepDown(t, stream) })), o)
	check(t, err)
	t.Logf("%d attempts: %v", res.Attempts, again.errs)
	agrees(t, nc, stream, res)
}

// TestStreamLosesItsReplica: the replica that sends is taken away, with its
// store.
func TestStreamLosesItsReplica(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	t.Run("scaled down", func(t *testing.T) {
		stream, nc := clusterStream(t, g, 3, 100)
		js := newJetStream(t, nc)
		s, err := js.Stream(t.Context(), stream)
		check(t, err)
		loseReplica(t, nc, stream, func() {
			cfg := s.CachedInfo().Config
			cfg.Replicas = 1
			_, err := js.UpdateStream(t.Context(), cfg)
			check(t, err)
		})
	})
	t.Run("peer removed", func(t *testing.T) {
		stream, nc := clusterStream(t, g, 1, 100)
		leader := g.StreamLeader(t, stream)
		loseReplica(t, nc, stream, func() {
			m, err := nc.Request("$JS.API.STREAM.PEER.REMOVE."+stream, []byte(`{"peer":"`+leader.Name()+`"}`), 10*time.Second)
			check(t, err)
			t.Logf("%s", m.Data)
			testnats.Eventually(t, func() error {
				if leader.JetStreamIsStreamAssigned("$G", stream) {
					return errors.New("it still has the stream")
				}
				return nil
			})
		})
	})
}

func loseReplica(t *testing.T, nc *nats.Conn, stream string, lose func()) {
	t.Helper()
	var again retries
	o := small(stream)
	o.Retrying = again.note
	res, err := backup.Take(t.Context(), nc, through(into(newRepo(t)), once(400<<10, lose)), o)
	if err != nil {
		t.Log(err)
		return
	}
	t.Logf("%d attempts: %v", res.Attempts, again.errs)
	contentsAgree(t, nc, stream, res)
}

// TestOnlyReplicaIsKilled: nobody else has the stream.
func TestOnlyReplicaIsKilled(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	stream, nc := clusterStream(t, g, 1, 100)
	o := small(stream)
	o.IdleTimeout, o.RequestTimeout, o.Retries = 8*time.Second, time.Second, 1
	var again retries
	o.Retrying = again.note
	r := newRepo(t)
	within(t, 30*time.Second, func() {
		leader := g.StreamLeader(t, stream)
		res, err := backup.Take(t.Context(), nc, through(into(r), once(400<<10, func() { g.Kill(g.Index(leader)) })), o)
		if err == nil {
			t.Fatalf("leader %s, manifest %+v, %d attempts, retries %v, log %v", leader.Name(), res.Manifest, res.Attempts, again.errs, leader.Log.Lines())
		}
		var te *backup.TransferError
		if !errors.As(err, &te) || te.Attempts != 2 {
			t.Errorf("got %v", err)
		}
		t.Log(err, again.errs)
	})
	nothingIn(t, r)
}

// TestDeletedInACluster: gone for good.
func TestDeletedInACluster(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	stream, nc := clusterStream(t, g, 3, 200)
	r := newRepo(t)
	_, err := backup.Take(t.Context(), nc, through(into(r), once(400<<10, func() {
		check(t, newJetStream(t, nc).DeleteStream(t.Context(), stream))
	})), small(stream))
	failure(t, err, backup.ErrStreamGone, 1)
	nothingIn(t, r)
}
