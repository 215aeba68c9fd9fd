package restore_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// take backs a stream up into a new repository.
func take(t testing.TB, nc *nats.Conn, stream string) *repo.Backup {
	t.Helper()
	r, err := repo.InitDir(t.TempDir() + "/repo")
	if err != nil {
		t.Fatal(err)
	}
	res, err := backup.Take(ctx(t), nc, func(ctx context.Context, stream string, start time.Time) (repo.Writer, error) {
		return r.Begin(ctx, stream, start)
	}, backup.Options{Stream: stream})
	if err != nil {
		t.Fatal(err)
	}
	return res.Backup
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

func client(t testing.TB, nc *nats.Conn) *jsapi.Client {
	t.Helper()
	js, err := jsapi.New(nc, jsapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(js.Close)
	return js
}

func remove(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	if err := client(t, nc).DeleteStream(ctx(t), stream); err != nil {
		t.Fatal(err)
	}
}

// run prepares and carries out a restore.
func run(t testing.TB, nc *nats.Conn, b *repo.Backup, o restore.Options) (*restore.Plan, *restore.Result, error) {
	t.Helper()
	p, err := restore.Prepare(ctx(t), nc, b, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Findings {
		t.Logf("%-8s %s: %s", f.Level, f.Check, f.Text)
	}
	res, err := restore.Run(ctx(t), nc, p)
	return p, res, err
}

func TestALostStreamComesBackAsItWas(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	nc := s.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{})
	testnats.FillConsumers(t, nc, stream)
	before, consumers, cfg := testnats.Dump(t, nc, stream), testnats.DumpConsumers(t, nc, stream), testnats.StreamConfig(t, nc, stream)
	b := take(t, nc, stream)
	remove(t, nc, stream)
	_, res, err := run(t, nc, b, restore.Options{FullCheck: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", res)
	if d := cmp.Diff(before, testnats.Dump(t, nc, stream)); d != "" {
		t.Error("messages:", d)
	}
	if d := cmp.Diff(consumers, testnats.DumpConsumers(t, nc, stream)); d != "" {
		t.Error("consumers:", d)
	}
	if d := cmp.Diff(cfg, testnats.StreamConfig(t, nc, stream)); d != "" {
		t.Error("configuration:", d)
	}
}
