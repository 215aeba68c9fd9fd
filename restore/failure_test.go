package restore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/slowlink"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// R1: an archive that is cut or flipped is refused beforehand, and one that
// changes after the plan leaves nothing; the good one then restores exactly.
func TestDamagedArchives(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	nc := s.Connect(t)
	stream := fill(t, nc, 800, 2000)
	want := look(t, nc, stream)
	dir := t.TempDir() + "/plain"
	plain(t, nc, stream, dir)
	other := take(t, nc, fill(t, nc, 300, 2000))
	remove(t, nc, stream)
	path := filepath.Join(dir, format.ArchiveV2Name)
	good := must(os.ReadFile(path))(t)
	flipped := bytes.Clone(good)
	flipped[len(good)*2/3] ^= 4
	before := everything(t, nc)
	for name, c := range map[string]struct {
		data []byte
		err  error
	}{
		"cut":                      {good[:len(good)*2/3], format.ErrTruncated},
		"flipped":                  {flipped, format.ErrCorrupt},
		"without its end marker":   {good[:len(good)-30], format.ErrTruncated},
		"with garbage":             {append(bytes.Clone(good), 1, 2, 3), format.ErrCorrupt},
		"empty":                    {nil, format.ErrTruncated},
		"sound, of another stream": {must(os.ReadFile(filepath.Join(other.Location(), format.ArchiveV2Name)))(t), format.ErrMismatch},
		"sound, with padding":      {append(bytes.Clone(good), format.Padding...), nil},
	} {
		check(t, os.WriteFile(path, c.data, 0o600))
		_, err := restore.Prepare(ctx(t), nc, must(repo.OpenPlain(dir))(t), restore.Options{})
		if !errors.Is(err, c.err) {
			t.Errorf("%s, before the plan: %v", name, err)
		}
		check(t, os.WriteFile(path, good, 0o600))
		p := prepare(t, nc, must(repo.OpenPlain(dir))(t), restore.Options{})
		check(t, os.WriteFile(path, c.data, 0o600))
		_, err = restore.Run(ctx(t), nc, p)
		if c.err == nil {
			c.err = format.ErrMismatch
		}
		transferFailed(t, nc, stream, err, c.err)
		check(t, os.WriteFile(path, good, 0o600))
		same(t, name, before, everything(t, nc))
	}
	mustRun(t, nc, must(repo.OpenPlain(dir))(t), restore.Options{FullCheck: true})
	same(t, stream, want, look(t, nc, stream))
}

// stalling reads data and stops for a while after so many bytes.
type stalling struct {
	ctx   context.Context
	r     io.Reader
	after int
	d     time.Duration
	once  sync.Once
	quit  chan struct{}
}

func (s *stalling) Read(p []byte) (int, error) {
	if s.after == 0 {
		s.once.Do(func() {
			select {
			case <-time.After(s.d):
			case <-s.quit:
			case <-s.ctx.Done():
			}
		})
		return s.r.Read(p)
	}
	n, err := s.r.Read(p[:min(len(p), s.after)])
	s.after -= n
	return n, err
}

func (s *stalling) Close() error {
	defer func() { _ = recover() }()
	close(s.quit)
	return nil
}

// T4: a source that stalls for longer than the server waits, at the start, in
// the middle, and while the archive is encoded anew.
func TestStallingSource(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	for name, c := range map[string]struct {
		after  int
		rename bool
	}{
		"before the first byte":            {0, false},
		"in the middle":                    {700_001, false},
		"before the first byte, rewriting": {0, true},
		"in the middle, rewriting":         {700_001, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := s.Connect(t)
			bucket := testnats.FillKV(t, nc)
			kv := must(newJetStream(t, nc).KeyValue(ctx(t), bucket))(t)
			noise := make([]byte, 700_000)
			for i := range noise {
				noise[i] = byte(i * i >> 7 * 31)
			}
			for i := range 3 {
				must(kv.Put(ctx(t), fmt.Sprint("noise", i), noise))(t)
			}
			stream := "KV_" + bucket
			want := testnats.Dump(t, nc, stream)
			h, b := inMemory(t, nc, stream)
			o := restore.Options{}
			if c.rename {
				o.As = stream + "_2"
			}
			if !c.rename {
				remove(t, nc, stream)
			}
			p := prepare(t, nc, b, o)
			h.read = func(ctx context.Context, data []byte) io.ReadCloser {
				return &stalling{ctx: ctx, r: bytes.NewReader(data), after: min(c.after, len(data)/2), d: 7 * time.Second, quit: make(chan struct{})}
			}
			must(restore.Run(ctx(t), nc, p))(t)
			got := testnats.Dump(t, nc, p.Target.Stream)
			if len(got.Messages) != len(want.Messages) || got.LastSeq != want.LastSeq {
				t.Errorf("%d messages up to %d, of %d up to %d", len(got.Messages), got.LastSeq, len(want.Messages), want.LastSeq)
			}
		})
	}
	t.Run("for too long", func(t *testing.T) {
		t.Parallel()
		nc := s.Connect(t)
		stream := fill(t, nc, 300, 4000)
		h, b := inMemory(t, nc, stream)
		remove(t, nc, stream)
		p := prepare(t, nc, b, restore.Options{IdleTimeout: 3 * time.Second})
		h.read = func(ctx context.Context, data []byte) io.ReadCloser {
			return &stalling{ctx: ctx, r: bytes.NewReader(data), after: len(data) / 2, d: time.Hour, quit: make(chan struct{})}
		}
		_, err := restore.Run(ctx(t), nc, p)
		transferFailed(t, nc, stream, err, restore.ErrStalled)
	})
}

// T9: missing permissions, where they can't be asked for beforehand.
func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	const ask = "$SYS.REQ.USER.INFO"
	s := testnats.Single(t, testnats.Options{Users: []testnats.User{
		{Name: "all"},
		{Name: "chunks", PubDeny: []string{ask, "$JS.SNAPSHOT.RESTORE.>"}},
		{Name: "update", PubDeny: []string{ask, "$JS.API.STREAM.UPDATE.>"}},
		{Name: "delete", PubDeny: []string{ask, "$JS.API.STREAM.UPDATE.>", "$JS.API.STREAM.DELETE.>"}},
		{Name: "consumer", PubDeny: []string{ask, "$JS.API.CONSUMER.PAUSE.>"}},
		{Name: "request", PubDeny: []string{ask, "$JS.API.STREAM.RESTORE.>"}},
	}})
	for user, subject := range map[string]string{
		"consumer": "$JS.API.CONSUMER.PAUSE.",
		"chunks":   "$JS.SNAPSHOT.RESTORE.", "update": "$JS.API.STREAM.UPDATE.", "delete": "$JS.API.STREAM.UPDATE.", "request": "$JS.API.STREAM.RESTORE.",
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			admin, nc := s.Connect(t), s.Connect(t, userInfo(user))
			stream := testnats.Fill(t, admin, testnats.FillOptions{Messages: 100, Consumers: true})
			before := look(t, admin, stream)
			b := take(t, admin, stream)
			remove(t, admin, stream)
			p := prepare(t, nc, b, restore.Options{})
			began := time.Now()
			_, err := restore.Run(ctx(t), nc, p)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			var denied *jsapi.PermissionError
			if !errors.As(err, &denied) || !strings.HasPrefix(denied.Subject, subject) {
				t.Fatal(err)
			}
			var left *restore.LeftBehindError
			switch user {
			case "delete":
			case "consumer": // the stream is live by then: the next one who may finishes
				if !errors.As(err, &left) || !strings.Contains(left.What, "partly activated") {
					t.Error(err)
				}
				if _, res := mustRun(t, admin, b, restore.Options{}); !res.Finished {
					t.Errorf("%+v", res)
				}
				same(t, stream, before, look(t, admin, stream))
				return
			default:
				transferFailed(t, admin, stream, err)
				return
			}
			if !errors.As(err, &left) || !strings.Contains(left.What, stream) || !strings.Contains(left.What, "nats stream rm") || !strings.Contains(left.What, "DELETE") {
				t.Error(err)
			}
			// The next one who may removes it.
			p, _ = mustRun(t, admin, b, restore.Options{})
			if p.Target.Existing != restore.TargetAbandoned {
				t.Errorf("%+v", p.Target)
			}
		})
	}
}

// The connection breaks in mid-restore: nothing is left, and trying again works.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	admin := s.Connect(t)
	link := testnats.Proxy(t, s.HostPort(), testnats.ProxyOptions{})
	nc := must(nats.Connect(link.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)))(t)
	defer nc.Close()
	stream := fill(t, admin, 1500, 4000)
	want := look(t, admin, stream)
	b := take(t, admin, stream)
	remove(t, admin, stream)
	for _, at := range []int64{10_000, 300_000, 3_000_000, 5_900_000} {
		p := prepare(t, nc, b, restore.Options{})
		link.After(slowlink.Up, at, link.Cut)
		_, err := restore.Run(ctx(t), nc, p)
		transferFailed(t, admin, stream, err, restore.ErrDisconnected)
	}
	mustRun(t, nc, b, restore.Options{FullCheck: true})
	same(t, stream, want, look(t, admin, stream))
}

// The server stops, or dies, in mid-restore.
func TestServerStopsInMidRestore(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*testing.T, *testnats.Child){
		"killed":  func(t *testing.T, c *testnats.Child) { c.Kill(); c.Start(t) },
		"stopped": func(t *testing.T, c *testnats.Child) { c.Pause(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testnats.Process(t, testnats.ServerBinary(t, "2.15.3"))
			// A write to a stopped server blocks the whole connection this long.
			nc := c.Connect(t, nats.Timeout(2*time.Second), nats.FlusherTimeout(2*time.Second))
			stream := fill(t, nc, 1500, 4000)
			want := look(t, nc, stream)
			h, b := inMemory(t, nc, stream)
			remove(t, nc, stream)
			p := prepare(t, nc, b, restore.Options{IdleTimeout: 3 * time.Second, RequestTimeout: 2 * time.Second})
			h.read = func(ctx context.Context, data []byte) io.ReadCloser {
				return struct {
					io.Reader
					io.Closer
				}{io.MultiReader(bytes.NewReader(data[:len(data)/2]), onceReader(func() { stop(t, c) }), bytes.NewReader(data[len(data)/2:])), io.NopCloser(nil)}
			}
			_, err := restore.Run(ctx(t), nc, p)
			h.read = nil
			var failed *restore.TransferError
			var left *restore.LeftBehindError
			switch {
			case err == nil:
				t.Fatal("it succeeded")
			case errors.As(err, &failed):
				absent(t, nc, stream)
			case !errors.As(err, &left) || name == "killed":
				t.Errorf("%v", err)
			}
			c.Continue(t)
			testnats.Eventually(t, func() error {
				_, err := client(t, nc).AccountInfo(ctx(t))
				return err
			})
			// Half a stream may show only now that the server goes on.
			testnats.Eventually(t, func() error {
				p, err := restore.Prepare(ctx(t), nc, b, restore.Options{})
				if err == nil {
					_, err = restore.Run(ctx(t), nc, p)
				}
				return err
			})
			same(t, stream, want, look(t, nc, stream))
		})
	}
}

// onceReader calls f when it's read, and is at its end.
func onceReader(f func()) io.Reader {
	var once sync.Once
	return readerFunc(func([]byte) (int, error) {
		once.Do(f)
		return 0, io.EOF
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// R8: the server's disk is full.
func TestFullDiskOfTheServer(t *testing.T) {
	t.Parallel()
	big := testnats.Single(t).Connect(t)
	stream := fill(t, big, 1500, 16<<10)
	b := take(t, big, stream)
	small := fill(t, big, 10, 1000)
	bSmall := take(t, big, small)
	s := testnats.Single(t, testnats.Options{StoreDir: testnats.SmallDisk(t, 16<<20)})
	nc := s.Connect(t)
	_, _, err := run(t, nc, b, restore.Options{})
	var store *restore.StoreError
	if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &store) || store.Seq == 0 {
		t.Errorf("the cause isn't reached: %v", err)
	}
	transferFailed(t, nc, stream, err)
	testnats.Eventually(t, func() error { // the server removes the files by and by
		p, err := restore.Prepare(ctx(t), nc, bSmall, restore.Options{FullCheck: true})
		if err == nil {
			_, err = restore.Run(ctx(t), nc, p)
		}
		return err
	})
	publish(t, nc, small+".x", "x")
}

// R9: the same name is deleted and restored again and again.
func TestDeleteAndRestoreLoop(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 200, Consumers: true})
	want := look(t, nc, stream)
	b := take(t, nc, stream)
	for i := range 30 {
		remove(t, nc, stream)
		p := must(restore.Prepare(ctx(t), nc, b, restore.Options{}))(t)
		must(restore.Run(ctx(t), nc, p))(t)
		same(t, fmt.Sprint("round ", i), want, look(t, nc, stream))
	}
}

// The server's own words about a message that it couldn't store: reached by
// sending an archive as other tools do, and by files that a deleted stream left.
func TestServerCantStore(t *testing.T) {
	t.Parallel()
	const words = "failed to store message sequence 1: expected sequence does not match store"
	reached := func(t *testing.T, err error) {
		t.Helper()
		var store *restore.StoreError
		var cause *restore.ServerCause
		if !errors.As(err, &store) || store.Seq != 1 || !errors.As(err, &cause) || !strings.Contains(cause.Text, "expected sequence does not match store") {
			t.Errorf("the cause isn't reached: %v", err)
		}
		if !strings.Contains(err.Error(), words) || !jsapi.IsCode(err, jsapi.CodeRestoreFailed) {
			t.Error(err)
		}
	}
	t.Run("first_seq raised by an update, sent unstaged", func(t *testing.T) {
		t.Parallel()
		nc := testnats.Single(t).Connect(t)
		stream := raisedFirstSeq(t, nc)
		b := take(t, nc, stream)
		remove(t, nc, stream)
		reached(t, restore.RunUnstaged(ctx(t), nc, prepare(t, nc, b, restore.Options{})))
	})
	t.Run("stale files", func(t *testing.T) {
		t.Parallel()
		s := testnats.Single(t)
		nc := s.Connect(t)
		stream := fill(t, nc, 10, 100)
		want := look(t, nc, stream)
		b := take(t, nc, stream)
		streams := filepath.Join(s.StoreDir(), "jetstream", "$G", "streams")
		check(t, os.MkdirAll(filepath.Join(streams, "."+stream, "x"), 0o700))
		remove(t, nc, stream)
		_, _, err := run(t, nc, b, restore.Options{})
		reached(t, err)
		transferFailed(t, nc, stream, err)
		// Once the files are gone it works.
		check(t, os.RemoveAll(filepath.Join(streams, "."+stream)))
		check(t, os.RemoveAll(filepath.Join(streams, stream)))
		mustRun(t, nc, b, restore.Options{FullCheck: true})
		same(t, stream, want, look(t, nc, stream))
	})
}

// R11: nothing stays behind that keeps health checks red.
func TestHealthAfterAFailedRestore(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t, testnats.Options{Conf: `http: "127.0.0.1:-1"`})
	nc := s.Connect(t)
	stream := fill(t, nc, 300, 4000)
	h, b := inMemory(t, nc, stream)
	remove(t, nc, stream)
	p := prepare(t, nc, b, restore.Options{IdleTimeout: 6 * time.Second})
	healthy := func() error {
		resp, err := http.Get(fmt.Sprintf("http://%s/healthz", s.MonitorAddr()))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, body)
		}
		return nil
	}
	h.read = func(ctx context.Context, data []byte) io.ReadCloser {
		return &stalling{ctx: ctx, r: bytes.NewReader(data), after: len(data) / 2, d: time.Hour, quit: make(chan struct{})}
	}
	_, err := restore.Run(ctx(t), nc, p)
	transferFailed(t, nc, stream, err, restore.ErrStalled)
	// For a moment the server sees the files that it's still removing.
	testnats.Eventually(t, healthy)
	h.read = nil
	mustRun(t, nc, b, restore.Options{})
	testnats.Eventually(t, healthy)
}

// An application that creates its stream at start-up takes a staged stream over:
// it's left alone, and named.
func TestTakenOverWhileStaged(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	for _, phase := range []restore.Phase{restore.PhaseCheck, restore.PhaseActivate} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			nc := s.Connect(t)
			stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 60})
			b := take(t, nc, stream)
			remove(t, nc, stream)
			var once sync.Once
			p := must(restore.Prepare(ctx(t), nc, b, restore.Options{Progress: func(s restore.Progress) {
				if s.Phase == phase {
					once.Do(func() {
						_, err := newJetStream(t, nc).CreateOrUpdateStream(ctx(t), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, Duplicates: time.Minute})
						if err != nil {
							t.Error(err)
						}
					})
				}
			}}))(t)
			_, err := restore.Run(ctx(t), nc, p)
			var left *restore.LeftBehindError
			if !errors.Is(err, restore.ErrTakenOver) || !errors.As(err, &left) || !strings.Contains(left.What, stream) {
				t.Fatal(err)
			}
			info := must(client(t, nc).StreamInfo(ctx(t), stream))(t)
			if info.State.Messages == 0 {
				t.Error("it was emptied")
			}
			publish(t, nc, stream+".new", "the application goes on")
		})
	}
}

func TestStagedStreamIsOutOfReach(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 60, Consumers: true})
	want := look(t, nc, stream)
	b := take(t, nc, stream)
	remove(t, nc, stream)
	var checked bool
	p := must(restore.Prepare(ctx(t), nc, b, restore.Options{Progress: func(s restore.Progress) {
		if s.Phase != restore.PhaseCheck || checked {
			return
		}
		checked = true
		if _, err := nc.Request(stream+".new", []byte("x"), time.Second); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a publish: %v", err)
		}
		c, err := newJetStream(t, nc).Consumer(ctx(t), stream, "fresh")
		if err != nil {
			t.Error(err)
			return
		}
		if m, err := c.Next(jetstream.FetchMaxWait(300 * time.Millisecond)); err == nil {
			t.Errorf("a consumer delivers %d bytes", len(m.Data()))
		}
	}}))(t)
	must(restore.Run(ctx(t), nc, p))(t)
	if !checked {
		t.Error("never checked")
	}
	got := look(t, nc, stream)
	for i := range got.Consumers {
		got.Consumers[i].Waiting = 0 // of the request above
	}
	same(t, stream, want, got)
}

// What is missing of a staged stream is found before it's activated.
func TestCheckFindsDifferences(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	for name, spoil := range map[string]func(js jetstream.JetStream, stream string) error{
		"20 messages instead of 21": func(js jetstream.JetStream, stream string) error {
			st, err := js.Stream(context.Background(), stream)
			if err == nil {
				err = st.DeleteMsg(context.Background(), 50)
			}
			return err
		},
		`consumer "odd" is missing`: func(js jetstream.JetStream, stream string) error {
			return js.DeleteConsumer(context.Background(), stream, "odd")
		},
		`consumer "new" isn't in the backup`: func(js jetstream.JetStream, stream string) error {
			_, err := js.CreateConsumer(context.Background(), stream, jetstream.ConsumerConfig{Durable: "new"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := s.Connect(t)
			stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 50, NoDeletes: true, Consumers: true})
			st := must(newJetStream(t, nc).Stream(ctx(t), stream))(t)
			for seq := range uint64(29) {
				check(t, st.DeleteMsg(ctx(t), seq+1))
			}
			b := take(t, nc, stream)
			remove(t, nc, stream)
			var once sync.Once
			p := must(restore.Prepare(ctx(t), nc, b, restore.Options{Progress: func(s restore.Progress) {
				if s.Phase == restore.PhaseCheck {
					once.Do(func() {
						if err := spoil(newJetStream(t, nc), stream); err != nil {
							t.Error(err)
						}
					})
				}
			}}))(t)
			_, err := restore.Run(ctx(t), nc, p)
			var differs *restore.CheckError
			if !errors.As(err, &differs) || !strings.Contains(err.Error(), name) {
				t.Error(err)
			}
			transferFailed(t, nc, stream, err)
		})
	}
}

// --keep-failed keeps the staged stream; the next restore recognises it.
func TestKeepFailed(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := fill(t, nc, 1500, 4000)
	want := look(t, nc, stream)
	h, b := inMemory(t, nc, stream)
	remove(t, nc, stream)
	p := prepare(t, nc, b, restore.Options{KeepFailed: true})
	good := h.objects[h.archive()]
	bad := bytes.Clone(good)
	bad[len(bad)*9/10] ^= 1
	h.objects[h.archive()] = bad
	_, err := restore.Run(ctx(t), nc, p)
	h.objects[h.archive()] = good
	var left *restore.LeftBehindError
	if !errors.As(err, &left) || !errors.Is(err, format.ErrCorrupt) || !strings.Contains(left.What, "--keep-failed") {
		t.Fatal(err)
	}
	if _, err := client(t, nc).StreamInfo(ctx(t), stream); err != nil {
		t.Error(err)
	}
	p, _ = mustRun(t, nc, b, restore.Options{})
	if p.Target.Existing != restore.TargetAbandoned {
		t.Errorf("%+v", p.Target)
	}
	same(t, stream, want, look(t, nc, stream))
}

// An interruption at any phase is rolled back and comes back as what it is.
func TestCancelledAtEachPhase(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	for _, phase := range []restore.Phase{restore.PhasePlan, restore.PhaseSend, restore.PhaseFinish, restore.PhaseCheck, restore.PhaseActivate} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			nc := s.Connect(t)
			stream := fill(t, nc, 500, 4000)
			b := take(t, nc, stream)
			remove(t, nc, stream)
			c, cancel := context.WithCancel(t.Context())
			var rolledBack bool
			p, err := restore.Prepare(c, nc, b, restore.Options{Progress: func(s restore.Progress) {
				if s.Phase == phase {
					cancel()
				}
				rolledBack = rolledBack || s.Phase == restore.PhaseRollBack
			}})
			if phase != restore.PhasePlan {
				check(t, err)
				_, err = restore.Run(c, nc, p)
				if !rolledBack {
					t.Error("it says nothing of rolling back")
				}
			}
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			var left *restore.LeftBehindError
			if errors.As(err, &left) {
				t.Error(err)
			}
			absent(t, nc, stream)
		})
	}
}
