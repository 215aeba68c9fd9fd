package restore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/slowlink"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// TestClusterFailedRestore (R1, R11): a restore that fails half-way leaves
// nothing in a cluster, neither a stream nor a taken name nor a red health check,
// and an empty target is put back; the next one is exact.
func TestClusterFailedRestore(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	for _, n := range []int{1, 3} {
		nc := g.Connect(t, 0)
		stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 400, Size: 4096, Configure: replicated(n)})
		g.WaitStreamCurrent(t, stream)
		before := look(t, nc, stream)
		home, b := inMemory(t, nc, stream)
		size := len(home.objects[home.archive()])
		for name, broken := range map[string]func(context.Context, []byte) io.ReadCloser{
			"cut": func(_ context.Context, data []byte) io.ReadCloser {
				return io.NopCloser(bytes.NewReader(data[:size*2/3]))
			},
			"flipped": func(_ context.Context, data []byte) io.ReadCloser {
				data = bytes.Clone(data)
				data[size*2/3] ^= 1
				return io.NopCloser(bytes.NewReader(data))
			},
			"without end marker": func(_ context.Context, data []byte) io.ReadCloser {
				return io.NopCloser(bytes.NewReader(data[:size-1]))
			},
		} {
			for _, empty := range []bool{false, true} {
				remove(t, nc, stream)
				if empty {
					create(t, nc, jetstream.StreamConfig{Name: stream, Replicas: n, Description: "empty", Subjects: []string{stream + ".>"}})
				}
				p := prepare(t, nc, b, restore.Options{ChunkSize: 32 << 10})
				home.read = broken
				_, err := carryOut(t, nc, p)
				home.read = nil
				var failed *restore.TransferError
				if !errors.As(err, &failed) || !errors.Is(err, repo.ErrDamaged) && !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("R%d %s: %v", n, name, err)
				}
				if empty {
					c := look(t, nc, stream)
					if c.Config["description"] != "empty" || c.Contents.LastSeq != 0 || c.Config["metadata"].(map[string]any)["jetkeep.restore.id"] != nil {
						t.Errorf("R%d %s: the empty stream came back as %+v", n, name, c)
					}
				} else {
					free(t, nc, stream)
				}
				if _, err := tryPublishOnce(nc, stream+".new"); !empty && !errors.Is(err, nats.ErrNoResponders) {
					t.Errorf("R%d %s: a publish is answered: %v", n, name, err)
				}
				remove2(t, nc, stream)
				mustRun(t, nc, b, restore.Options{})
				g.WaitStreamCurrent(t, stream)
				isThere(t, nc, stream, before)
			}
		}
		healthy(t, g)
	}
}

// tryPublishOnce publishes without the client's own retries.
func tryPublishOnce(nc *nats.Conn, subject string) (*nats.Msg, error) {
	return nc.Request(subject, []byte("x"), 2*time.Second)
}

// remove2 removes a stream if it's there.
func remove2(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	if err := client(t, nc).DeleteStream(ctx(t), stream); err != nil && !strings.Contains(err.Error(), "10059") {
		t.Fatal(err)
	}
}

// TestClusterCutConnection: the connection goes half-way, and stays away or comes
// back.
func TestClusterCutConnection(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	nc := g.Connect(t, 0)
	for _, n := range []int{1, 3} {
		stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 400, Size: 4096, Consumers: true, Configure: replicated(n)})
		g.WaitStreamCurrent(t, stream)
		before := look(t, nc, stream)
		b := take(t, nc, stream)
		remove(t, nc, stream)
		link := testnats.Proxy(t, g.Servers[1].URL(), testnats.ProxyOptions{})
		far := must(nats.Connect(link.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)))(t)
		defer far.Close()
		p := prepare(t, far, b, restore.Options{ChunkSize: 16 << 10})
		link.After(slowlink.Up, p.Source.Bytes/2, link.Cut)
		_, err := carryOut(t, far, p)
		transferFailed(t, nc, stream, err, restore.ErrDisconnected)
		free(t, nc, stream)
		p, _ = mustRun(t, nc, b, restore.Options{})
		g.WaitStreamCurrent(t, stream)
		isThere(t, nc, stream, afterCluster(t, before, p))
	}
	healthy(t, g)
}

// TestClusterPlacementRefused (R7): what the cluster can't place is refused
// before any byte, and an empty target is put back.
func TestClusterPlacementRefused(t *testing.T) {
	t.Parallel()
	g := testnats.Cluster(t, 3)
	nc := g.Connect(t, 0)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 50, Configure: replicated(3)})
	b := take(t, nc, stream)
	for name, o := range map[string]restore.Options{
		"tag":      {PlacementTags: []string{"nowhere"}},
		"cluster":  {PlacementCluster: "elsewhere"},
		"replicas": {Replicas: 5},
	} {
		for _, empty := range []bool{false, true} {
			remove2(t, nc, stream)
			if empty {
				create(t, nc, jetstream.StreamConfig{Name: stream, Replicas: 3, Description: "empty", Subjects: []string{stream + ".>"}})
			}
			_, _, err := run(t, nc, b, o)
			var refused *restore.Refused
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), "10005") {
				t.Errorf("%s: %v", name, err)
			}
			t.Logf("%s: %v", name, err)
			if !empty {
				free(t, nc, stream)
			} else if cfg := testnats.StreamConfig(t, nc, stream); cfg["description"] != "empty" || cfg["num_replicas"] != 3.0 {
				t.Errorf("%s: put back as %v", name, cfg)
			}
		}
	}
	// An empty R3 target that is replaced keeps its own configuration.
	mustRun(t, nc, b, restore.Options{})
	if cfg := testnats.StreamConfig(t, nc, stream); cfg["description"] != "empty" {
		t.Errorf("the empty target's configuration wasn't kept: %v", cfg)
	}
	healthy(t, g)
}
