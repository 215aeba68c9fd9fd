package cmd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/embedded"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

const storeServer = "2.15.3"

// sdRun runs a command line.
func sdRun(ctx context.Context, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = Run(ctx, args, Streams{In: strings.NewReader(""), Out: &o, Err: &e}, Build{Version: "v0.0.0-test"})
	return code, o.String(), e.String()
}

// sdExits runs a command line that has to end with a code.
func sdExits(t *testing.T, want int, args ...string) (out, errs string) {
	t.Helper()
	code, out, errs := sdRun(context.Background(), args...)
	if code != want {
		t.Fatalf("jetkeep %s: exit code %d, expected %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
	}
	return out, errs
}

// sdHash is the SHA-256 of all files of a tree, by path, and its directories.
func sdHash(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			files[path] = "a directory"
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// sdUntouched checks that a tree is what it was, and that no temporary copy of
// it is left.
func sdUntouched(t *testing.T, root string, before map[string]string) {
	t.Helper()
	if d := cmp.Diff(before, sdHash(t, root)); d != "" {
		t.Errorf("the store directory changed (-before +after):\n%s", d)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "jetkeep-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v %v", left, err)
	}
}

// sdTemp gives the test a temporary directory of its own.
func sdTemp(t *testing.T) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
}

// sdLook is all that there is to a stream.
type sdLook struct {
	Contents  testnats.Contents
	Consumers []testnats.Consumer
	Config    map[string]any
}

func sdSee(t *testing.T, nc *nats.Conn, stream string) sdLook {
	t.Helper()
	l := sdLook{testnats.Dump(t, nc, stream), testnats.DumpConsumers(t, nc, stream), testnats.StreamConfig(t, nc, stream)}
	sdPlain(l.Config)
	for i := range l.Consumers {
		sdPlain(l.Consumers[i].Config)
		l.Consumers[i].Waiting = 0
	}
	return l
}

// sdPlain takes out of a configuration what servers add to it, and what they may
// show or leave out.
func sdPlain(cfg map[string]any) {
	if m, ok := cfg["metadata"].(map[string]any); ok {
		for k := range m {
			if strings.HasPrefix(k, "_nats.") {
				delete(m, k)
			}
		}
		if len(m) == 0 {
			delete(cfg, "metadata")
		}
	}
	for k, v := range cfg {
		switch x := v.(type) {
		case bool:
			if !x {
				delete(cfg, k)
			}
		case float64:
			if x == 0 {
				delete(cfg, k)
			}
		case map[string]any:
			if len(x) == 0 {
				delete(cfg, k)
			}
		}
	}
}

// sdBackedUp is the same of a backup, as far as it goes.
func sdBackedUp(t *testing.T, dir string) (sdLook, *format.Manifest) {
	t.Helper()
	ctx := context.Background()
	b, err := repo.OpenPlain(dir)
	if err != nil {
		t.Fatal(err)
	}
	file, err := b.BackupFile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Archive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var l sdLook
	ins, err := format.Inspect(ctx, r, format.InspectOptions{OnMessage: func(m *format.Message) error {
		l.Contents.Messages = append(l.Contents.Messages, testnats.Message{
			Seq: m.Seq, Subject: string(m.Subject), Time: time.Unix(0, m.Time).UTC(), Header: string(m.Header), Data: bytes.Clone(m.Payload),
		})
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.Contents.FirstSeq, l.Contents.LastSeq = ins.Head.State.FirstSeq, ins.Head.State.LastSeq
	if err := file.Config.Decode(&l.Config); err != nil {
		t.Fatal(err)
	}
	sdPlain(l.Config)
	for i, c := range ins.Head.Consumers {
		f := ins.Figures.Consumers[i]
		k := testnats.Consumer{
			Name: c.Name, AckPending: int(f.Pending), Paused: f.Paused,
			Delivered: testnats.Position{Consumer: f.Delivered.Consumer, Stream: f.Delivered.Stream},
			AckFloor:  testnats.Position{Consumer: f.AckFloor.Consumer, Stream: f.AckFloor.Stream},
		}
		if err := c.Config.Decode(&k.Config); err != nil {
			t.Fatal(err)
		}
		sdPlain(k.Config)
		l.Consumers = append(l.Consumers, k)
	}
	slices.SortFunc(l.Consumers, func(a, b testnats.Consumer) int { return strings.Compare(a.Name, b.Name) })
	return l, b.Manifest
}

// sdSame compares a backup with the stream that it's of.
func sdSame(t *testing.T, want sdLook, dir string) *format.Manifest {
	t.Helper()
	got, m := sdBackedUp(t, dir)
	// The archive doesn't have these.
	without := cmpopts.IgnoreFields(testnats.Consumer{}, "Pending", "Redelivered", "Waiting")
	if d := cmp.Diff(want, got, without, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("backup %s (-stream +backup):\n%s", dir, d)
	}
	return m
}

// sdCreate makes a stream of n messages.
func sdCreate(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig, n int) {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		t.Fatalf("%s: %v", cfg.Name, err)
	}
	for i := range n {
		if _, err := js.Publish(ctx, fmt.Sprintf("%s.%d", strings.TrimSuffix(cfg.Subjects[0], ".*"), i%7), fmt.Appendf(nil, "message %d of %s", i, cfg.Name)); err != nil {
			t.Fatalf("%s: %v", cfg.Name, err)
		}
	}
}

func sdConsumer(t *testing.T, nc *nats.Conn, stream string, cfg jetstream.ConsumerConfig, fetch, ack int) {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := js.CreateConsumer(ctx, stream, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if fetch == 0 {
		return
	}
	batch, err := c.FetchNoWait(fetch)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		if ack--; ack >= 0 {
			if err := m.DoubleAck(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sdStreams fills a server with streams that would change if a server opened
// them unprepared, and returns their names; those in perish have changed a few
// seconds later.
func sdStreams(t *testing.T, nc *nats.Conn) (lasting, perish []string) {
	fill := func(name string, o testnats.FillOptions) {
		o.Stream = name
		if o.Messages == 0 {
			o.Messages = 120
		}
		testnats.Fill(t, nc, o)
		lasting = append(lasting, name)
	}
	fill("ORDERS", testnats.FillOptions{TTL: time.Hour, Consumers: true})
	fill("PACKED", testnats.FillOptions{Configure: func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression }, Consumers: true})
	fill("LIMITED", testnats.FillOptions{NoDeletes: true, Configure: func(c *jetstream.StreamConfig) { c.MaxMsgs, c.MaxBytes, c.MaxMsgsPerSubject = 60, 1<<20, 15 }})
	fill("NEWONLY", testnats.FillOptions{Messages: 40, Configure: func(c *jetstream.StreamConfig) {
		c.MaxMsgsPerSubject, c.Discard, c.DiscardNewPerSubject, c.MaxMsgs = 30, jetstream.DiscardNew, true, 100
	}})
	fill("WORK", testnats.FillOptions{Configure: func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, Consumers: true})
	fill("SEALED", testnats.FillOptions{Consumers: true})

	sdCreate(t, nc, jetstream.StreamConfig{Name: "INTEREST", Subjects: []string{"interest.*"}, Retention: jetstream.InterestPolicy}, 0)
	sdConsumer(t, nc, "INTEREST", jetstream.ConsumerConfig{Durable: "wants", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "interest.1"}, 0, 0)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 10 {
		if _, err := js.Publish(ctx, "interest.1", []byte("wanted")); err != nil {
			t.Fatal(err)
		}
	}
	sdConsumer(t, nc, "INTEREST", jetstream.ConsumerConfig{Durable: "wants", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "interest.1"}, 5, 2)
	s, err := js.Stream(ctx, "SEALED")
	if err != nil {
		t.Fatal(err)
	}
	sealed := s.CachedInfo().Config
	sealed.Sealed, sealed.DenyDelete, sealed.DenyPurge = true, true, true
	if _, err := js.UpdateStream(ctx, sealed); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "ORDERS"}},
		{Name: "AGGREGATE", Sources: []*jetstream.StreamSource{{Name: "ORDERS"}, {Name: "NEWONLY"}}},
		{Name: "FIRST1000", Subjects: []string{"first1000"}, FirstSeq: 1000},
		{Name: "UNUSED", Subjects: []string{"unused"}},
	} {
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			t.Fatalf("%s: %v", cfg.Name, err)
		}
		lasting = append(lasting, cfg.Name)
	}
	lasting = append(lasting, "INTEREST")
	sdCreate(t, nc, jetstream.StreamConfig{Name: "REPUBLISHED", Subjects: []string{"republished.*"},
		RePublish: &jetstream.RePublish{Source: ">", Destination: "again.>"}}, 12)
	lasting = append(lasting, "REPUBLISHED")
	// A server on a copy would add its own advisories to it.
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ADVISORIES", Subjects: []string{"$JS.EVENT.ADVISORY.>"}}); err != nil {
		t.Fatal(err)
	}
	sdCaughtUp(t, nc, "MIRROR", "AGGREGATE")

	sdCreate(t, nc, jetstream.StreamConfig{Name: "MEMORY", Subjects: []string{"memory.*"}, Storage: jetstream.MemoryStorage}, 3)
	sdCreate(t, nc, jetstream.StreamConfig{Name: "AGED", Subjects: []string{"aged.*"}, MaxAge: 10 * time.Second, Duplicates: 5 * time.Second}, 40)
	sdConsumer(t, nc, "AGED", jetstream.ConsumerConfig{Name: "fleeting", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: 1, InactiveThreshold: 10 * time.Second}, 7, 3)
	sdCreate(t, nc, jetstream.StreamConfig{Name: "MARKED", Subjects: []string{"marked.*"}, MaxAge: 10 * time.Second, Duplicates: time.Second, AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Minute}, 20)
	sdCreate(t, nc, jetstream.StreamConfig{Name: "TTLS", Subjects: []string{"ttls.*"}, AllowMsgTTL: true}, 5)
	sdCreate(t, nc, jetstream.StreamConfig{Name: "SCHEDULED", Subjects: []string{"scheduled.*"}, AllowMsgSchedules: true, AllowMsgTTL: true}, 5)
	for i := range 30 {
		m := nats.NewMsg(fmt.Sprintf("ttls.%d", i%4))
		m.Header.Set("Nats-TTL", "10s")
		if i%3 == 0 {
			m.Header.Del("Nats-TTL")
		}
		if _, err := js.PublishMsg(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	m := nats.NewMsg("scheduled.later")
	m.Header.Set("Nats-Schedule", "@at "+time.Now().Add(10*time.Second).UTC().Format(time.RFC3339))
	m.Header.Set("Nats-Schedule-Target", "scheduled.fired")
	if _, err := js.PublishMsg(ctx, m); err != nil {
		t.Fatal(err)
	}
	return lasting, []string{"AGED", "MARKED", "TTLS", "SCHEDULED"}
}

// sdCaughtUp waits until streams have what their origin has.
func sdCaughtUp(t *testing.T, nc *nats.Conn, streams ...string) {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range streams {
		testnats.Eventually(t, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			i := s.CachedInfo()
			for _, o := range append(slices.Clone(i.Sources), i.Mirror) {
				if o != nil && (o.Lag != 0 || o.Active < 0) {
					return fmt.Errorf("%s is behind", name)
				}
			}
			if i.State.Msgs == 0 {
				return fmt.Errorf("%s is empty", name)
			}
			return nil
		})
	}
}

// TestStoreDirRoundTrip backs up every stream of a directory that a real server
// left, cleanly or not, restores it into another one, and has a real server
// start on that.
func TestStoreDirRoundTrip(t *testing.T) {
	for _, ended := range []string{"cleanly", "by kill -9"} {
		t.Run(ended, func(t *testing.T) {
			sdTemp(t)
			bin := testnats.ServerBinary(t, storeServer)
			srv := testnats.Process(t, bin)
			nc := srv.Connect(t)
			lasting, perish := sdStreams(t, nc)
			deadline := time.Now().Add(11 * time.Second)
			looks := map[string]sdLook{}
			for _, name := range slices.Concat(perish, lasting) {
				looks[name] = sdSee(t, nc, name)
			}
			advisories := len(testnats.Dump(t, nc, "ADVISORIES").Messages)
			nc.Close()
			if ended == "cleanly" {
				srv.Stop(t)
			} else {
				srv.Kill()
			}
			time.Sleep(time.Until(deadline)) // until the time of the messages is over
			store := srv.StoreDir()
			before := sdHash(t, store)
			backups := t.TempDir()
			for name, want := range looks {
				dir := filepath.Join(backups, name)
				out, errs := sdExits(t, exitOK, "backup", name, "--store-dir", store, "-o", dir)
				if errs != "" || !strings.Contains(out, "from store directory "+store+" (account $G)") {
					t.Errorf("%s%s", out, errs)
				}
				m := sdSame(t, want, dir)
				if m.Account != "$G" || m.Server.Version != storeServer || m.Server.Name != "" || time.Since(m.Created) > time.Hour || m.Created.After(m.Started.Add(-time.Second)) {
					t.Errorf("%s: manifest %+v", name, m)
				}
				sdExits(t, exitOK, "verify", dir)
			}
			sdExits(t, exitOK, "backup", "ADVISORIES", "--store-dir", store, "-o", filepath.Join(backups, "ADVISORIES"))
			if l, _ := sdBackedUp(t, filepath.Join(backups, "ADVISORIES")); len(l.Contents.Messages) < advisories || strings.Contains(fmt.Sprint(l.Contents.Messages), "jetkeep-") {
				t.Errorf("%d advisories, at least %d before", len(l.Contents.Messages), advisories)
			}
			if _, errs := sdExits(t, exitNotFound, "backup", "MEMORY", "--store-dir", store, "-o", filepath.Join(backups, "MEMORY")); !strings.Contains(errs, "a memory stream isn't on disk") || !strings.Contains(errs, "ORDERS") {
				t.Error(errs)
			}
			sdUntouched(t, store, before)

			target := filepath.Join(t.TempDir(), "new")
			// Origins first, as an operator would.
			for _, name := range lasting {
				dir := filepath.Join(backups, name)
				out, _ := sdExits(t, exitOK, "restore", dir, "--store-dir", target, "--check", "full", "--accept-loss")
				if !strings.Contains(out, "to store directory "+target+" (account $G)") {
					t.Error(out)
				}
			}
			sdUntouched(t, store, before)
			again := testnats.Process(t, bin, testnats.Options{StoreDir: target})
			nc = again.Connect(t)
			sdCaughtUp(t, nc, "MIRROR", "AGGREGATE")
			for _, name := range lasting {
				got := sdSee(t, nc, name)
				want := looks[name]
				if name == "UNUSED" {
					want.Contents.FirstSeq = got.Contents.FirstSeq // 1 instead of 0 after a restore
				}
				if name == "AGGREGATE" { // what restore does about sources is its own affair
					for _, l := range []sdLook{want, got} {
						delete(l.Config, "sources")
						for i := range l.Contents.Messages {
							l.Contents.Messages[i].Header = ""
						}
					}
				}
				if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
					t.Errorf("%s (-before +restored):\n%s", name, d)
				}
			}
		})
	}
}

func TestStoreDirAccounts(t *testing.T) {
	sdTemp(t)
	bin := testnats.ServerBinary(t, storeServer)
	accounts := []testnats.Account{{Name: "SHOP", MaxStore: 1 << 30}, {Name: "BANK", MaxStore: 1 << 30}}
	srv := testnats.Process(t, bin, testnats.Options{Accounts: accounts})
	shop, bank := srv.Connect(t, nats.UserInfo("SHOP", "SHOP")), srv.Connect(t, nats.UserInfo("BANK", "BANK"))
	testnats.Fill(t, shop, testnats.FillOptions{Stream: "ORDERS", Messages: 30})
	want := sdSee(t, shop, "ORDERS")
	store := srv.StoreDir()

	alone := filepath.Join(t.TempDir(), "b")
	srv.Stop(t)
	sdExits(t, exitOK, "backup", "ORDERS", "--store-dir", store, "-o", alone) // the only one that has streams
	sdSame(t, want, alone)
	srv.Start(t)
	testnats.Fill(t, bank, testnats.FillOptions{Stream: "ORDERS", Messages: 50})
	wantBank := sdSee(t, bank, "ORDERS")
	shop.Close()
	bank.Close()
	srv.Stop(t)
	before := sdHash(t, store)

	dir := t.TempDir()
	if _, errs := sdExits(t, exitNotFound, "backup", "ORDERS", "--store-dir", store, "-o", filepath.Join(dir, "x")); !strings.Contains(errs, "BANK, SHOP") {
		t.Error(errs)
	}
	if _, errs := sdExits(t, exitNotFound, "backup", "ORDERS", "--store-dir", store, "--account", "NONE", "-o", filepath.Join(dir, "x")); !strings.Contains(errs, "BANK, SHOP") {
		t.Error(errs)
	}
	for _, bad := range []string{"../x", ".", "$SYS"} {
		sdExits(t, exitNotFound, "backup", "ORDERS", "--store-dir", store, "--account", bad, "-o", filepath.Join(dir, "x"))
	}
	sdExits(t, exitOK, "backup", "ORDERS", "--store-dir", store, "--account", "BANK", "-o", filepath.Join(dir, "bank"))
	sdExits(t, exitOK, "backup", "ORDERS", "--store-dir", store, "--account", "SHOP", "-o", filepath.Join(dir, "shop"))
	if m := sdSame(t, wantBank, filepath.Join(dir, "bank")); m.Account != "BANK" {
		t.Errorf("account %q in the manifest", m.Account)
	}
	sdSame(t, want, filepath.Join(dir, "shop"))
	sdUntouched(t, store, before)

	// Into the other account, beside its own stream.
	sdExits(t, exitRefused, "restore", filepath.Join(dir, "shop"), "--store-dir", store, "--account", "BANK")
	sdExits(t, exitOK, "restore", filepath.Join(dir, "shop"), "--store-dir", store, "--account", "BANK", "--as", "SHOPPED")
	srv.Start(t)
	shop, bank = srv.Connect(t, nats.UserInfo("SHOP", "SHOP")), srv.Connect(t, nats.UserInfo("BANK", "BANK"))
	if d := cmp.Diff(want, sdSee(t, shop, "ORDERS"), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(wantBank, sdSee(t, bank, "ORDERS"), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want.Contents, testnats.Dump(t, bank, "SHOPPED"), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func TestStoreDirOfAClusterNode(t *testing.T) {
	sdTemp(t)
	g := testnats.Cluster(t, 3)
	nc := g.Connect(t, 0)
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "ORDERS", Messages: 60, Consumers: true, Configure: func(c *jetstream.StreamConfig) {
		c.Replicas, c.Retention = 3, jetstream.LimitsPolicy
	}})
	g.WaitStreamCurrent(t, "ORDERS")
	want := sdSee(t, nc, "ORDERS")
	nc.Close()
	for i := range g.Servers {
		g.Kill(i)
	}
	for _, s := range g.Servers {
		store, want := s.StoreDir(), want
		want.Consumers = slices.Clone(want.Consumers)
		before := sdHash(t, store)
		dir := filepath.Join(t.TempDir(), "b")
		sdExits(t, exitOK, "backup", "ORDERS", "--store-dir", store, "-o", dir)
		got, _ := sdBackedUp(t, dir)
		// The ephemeral consumer has one replica.
		if len(got.Consumers) < len(want.Consumers) {
			want.Consumers = slices.DeleteFunc(slices.Clone(want.Consumers), func(c testnats.Consumer) bool { return c.Config["durable_name"] == nil })
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(testnats.Consumer{}, "Pending", "Redelivered", "Waiting"), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("(-stream +backup):\n%s", d)
		}
		// A restore into it would be undone by the cluster.
		if _, errs := sdExits(t, exitRefused, "restore", dir, "--store-dir", store, "--as", "OTHER"); !strings.Contains(errs, "a node of a cluster") {
			t.Error(errs)
		}
		sdUntouched(t, store, before)
		single := filepath.Join(t.TempDir(), "single")
		sdExits(t, exitOK, "restore", dir, "--store-dir", single, "--replicas", "1", "--check", "full")
		alone := testnats.Single(t, testnats.Options{StoreDir: single})
		restored := sdSee(t, alone.Connect(t), "ORDERS")
		alone.Shutdown()
		want.Config, restored.Config = nil, nil // it has one replica now
		for _, l := range []sdLook{want, restored} {
			for i := range l.Consumers {
				c := &l.Consumers[i]
				c.AckFloor.Stream = max(c.AckFloor.Stream, 3) // before the first message: it makes no difference
			}
		}
		if d := cmp.Diff(want, restored, cmpopts.IgnoreFields(testnats.Consumer{}, "Config", "Redelivered"), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("(-stream +restored):\n%s", d)
		}
	}
}

// TestStoreDirDamage: what is lost is said, and nothing is backed up unless that
// is accepted.
func TestStoreDirDamage(t *testing.T) {
	sdTemp(t)
	srv := testnats.Process(t, testnats.ServerBinary(t, storeServer))
	nc := srv.Connect(t)
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "ORDERS", Messages: 200, Consumers: true})
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "PACKED", Messages: 200, Configure: func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression }})
	want := sdSee(t, nc, "ORDERS")
	nc.Close()
	srv.Stop(t)
	edit := func(path string, f func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, store string) {
			t.Helper()
			found, err := filepath.Glob(filepath.Join(store, "jetstream", "$G", "streams", path))
			if err != nil || len(found) == 0 {
				t.Fatalf("%s: %v %v", path, found, err)
			}
			data, err := os.ReadFile(found[0])
			if err != nil {
				t.Fatal(err)
			}
			if data = f(data); data == nil {
				err = os.Remove(found[0])
			} else {
				err = os.WriteFile(found[0], data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	flipped := func(at int) func([]byte) []byte {
		return func(data []byte) []byte { data[at*len(data)/100] ^= 4; return data }
	}
	gone := func([]byte) []byte { return nil }
	both := func(fs ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, store string) {
			for _, f := range fs {
				f(t, store)
			}
		}
	}
	for _, c := range []struct {
		name, stream string
		damage       func(*testing.T, string)
		says         string
		accepted     int      // the exit code with --accept-loss
		code         int      // without, if not exitDamaged
		flags        []string // in any case
	}{
		{name: "meta.inf", stream: "ORDERS", damage: edit("ORDERS/meta.inf", flipped(30)), says: "checksums do not match", accepted: exitDamaged},
		{name: "meta.sum", stream: "ORDERS", damage: edit("ORDERS/meta.sum", flipped(30)), says: "checksums do not match", accepted: exitDamaged},
		{name: "no meta.inf", stream: "ORDERS", damage: edit("ORDERS/meta.inf", gone), says: "Missing stream metafile", accepted: exitDamaged},
		{name: "block", stream: "ORDERS", damage: edit("ORDERS/msgs/*.blk", flipped(50)), says: "can't be read", accepted: exitOK},
		{name: "block without index", stream: "ORDERS", damage: both(edit("ORDERS/msgs/*.blk", flipped(50)), edit("ORDERS/msgs/index.db", gone)), says: "can't be read", accepted: exitOK},
		{name: "block cut", stream: "ORDERS", damage: edit("ORDERS/msgs/*.blk", func(b []byte) []byte { return b[:len(b)/2] }), says: "can't be read", accepted: exitOK},
		{name: "block gone", stream: "ORDERS", damage: edit("ORDERS/msgs/*.blk", gone), says: "can't be read", accepted: exitOK},
		{name: "index", stream: "ORDERS", damage: edit("ORDERS/msgs/index.db", flipped(50)), code: exitOK, accepted: exitOK},
		{name: "no index", stream: "ORDERS", damage: edit("ORDERS/msgs/index.db", gone), code: exitOK, accepted: exitOK},
		{name: "compressed block", stream: "PACKED", damage: edit("PACKED/msgs/*.blk", flipped(50)), says: "can't be read", accepted: exitOK},
		{name: "consumer's meta.inf", stream: "ORDERS", damage: edit("ORDERS/obs/odd/meta.inf", func([]byte) []byte { return []byte("{") }), says: "consumer odd of stream ORDERS", accepted: exitOK},
		{name: "consumer's meta.inf, without consumers", stream: "ORDERS", damage: edit("ORDERS/obs/odd/meta.inf", gone), code: exitOK, accepted: exitOK, flags: []string{"--no-consumers"}},
		{name: "consumer's state", stream: "ORDERS", damage: edit("ORDERS/obs/odd/o.dat", func(b []byte) []byte { return b[:3] }), says: "odd", accepted: exitOK},
		{name: "another stream", stream: "ORDERS", damage: edit("PACKED/meta.inf", flipped(30)), code: exitOK, accepted: exitOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := filepath.Join(t.TempDir(), "store")
			if err := os.CopyFS(store, os.DirFS(srv.StoreDir())); err != nil {
				t.Fatal(err)
			}
			c.damage(t, store)
			before := sdHash(t, store)
			dir := filepath.Join(t.TempDir(), "b")
			args := append([]string{"backup", c.stream, "--store-dir", store, "-o", dir}, c.flags...)
			code := exitDamaged
			if c.says == "" && c.code == exitOK && c.stream == "ORDERS" {
				code = exitOK
			}
			out, errs := sdExits(t, code, args...)
			t.Logf("%s%s", out, errs)
			if !strings.Contains(errs, c.says) || strings.Contains(errs, os.Getenv("TMPDIR")+"/jetkeep") {
				t.Errorf("said %s", errs)
			}
			if code == exitOK {
				if len(c.flags) == 0 {
					sdSame(t, want, dir)
				}
				return
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("there's a backup")
			}
			out, errs = sdExits(t, c.accepted, append(args, "--accept-loss", "--json")...)
			t.Logf("%s%s", out, errs)
			if c.accepted == exitOK {
				var s backupSummary
				lines := strings.Split(strings.TrimSpace(out), "\n")
				if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil || len(s.Warnings) == 0 {
					t.Errorf("warnings %v, %v", s.Warnings, err)
				}
				sdExits(t, exitOK, "verify", dir)
			}
			sdUntouched(t, store, before)
		})
	}
}

func TestStoreDirInUse(t *testing.T) {
	sdTemp(t)
	srv := testnats.Process(t, testnats.ServerBinary(t, storeServer))
	nc := srv.Connect(t)
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "ORDERS", Messages: 20})
	dir := filepath.Join(t.TempDir(), "b")
	sdExits(t, exitOK, "backup", "ORDERS", "-s", srv.URL(), "-o", dir)
	for _, args := range [][]string{
		{"backup", "ORDERS", "--store-dir", srv.StoreDir(), "-o", filepath.Join(t.TempDir(), "x")},
		{"restore", dir, "--store-dir", srv.StoreDir(), "--as", "OTHER"},
		{"restore", dir, "--store-dir", srv.StoreDir(), "--as", "OTHER", "--dry-run"},
	} {
		if _, errs := sdExits(t, exitLocked, args...); !strings.Contains(errs, fmt.Sprintf("in use by process %d (nats-server", srv.PID())) {
			t.Error(errs)
		}
	}
}

// TestStoreDirRestoreInterrupted: what a restore that doesn't get to its end
// leaves, into a directory with a stream and into none.
func TestStoreDirRestoreInterrupted(t *testing.T) {
	sdTemp(t)
	bin := testnats.ServerBinary(t, storeServer)
	srv := testnats.Process(t, bin)
	nc := srv.Connect(t)
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "OTHER", Messages: 50, Consumers: true})
	other := sdSee(t, nc, "OTHER")
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "BIG", Messages: 10000, Size: 4000, NoDeletes: true})
	dir := filepath.Join(t.TempDir(), "b")
	sdExits(t, exitOK, "backup", "BIG", "-s", srv.URL(), "-o", dir)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(context.Background(), "BIG"); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	srv.Stop(t)

	interrupt := func(t *testing.T, store string) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				if blocks, _ := filepath.Glob(filepath.Join(store, "jetstream", "$G", "streams", "BIG", "msgs", "*.blk")); len(blocks) > 0 {
					cancel()
				}
				time.Sleep(time.Millisecond)
			}
		}()
		code, out, errs := sdRun(ctx, "restore", dir, "--store-dir", store)
		if code != exitInterrupted {
			t.Fatalf("exit code %d: %s%s", code, out, errs)
		}
	}
	t.Run("new directory", func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "new")
		interrupt(t, store)
		if _, err := os.Stat(store); err == nil {
			t.Errorf("%s is still there: %v", store, sdHash(t, store))
		}
	})
	t.Run("directory with a stream", func(t *testing.T) {
		interrupt(t, srv.StoreDir())
		names, err := os.ReadDir(filepath.Join(srv.StoreDir(), "jetstream", "$G", "streams"))
		if err != nil || len(names) != 1 || names[0].Name() != "OTHER" {
			t.Errorf("streams %v, %v", names, err)
		}
		srv.Start(t)
		nc := srv.Connect(t)
		if d := cmp.Diff(other, sdSee(t, nc, "OTHER"), cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
		nc.Close()
		srv.Stop(t)
	})
	t.Run("killed", func(t *testing.T) {
		// A directory that a run was killed on: the next one removes what is there.
		store := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(store, os.DirFS(srv.StoreDir())); err != nil {
			t.Fatal(err)
		}
		cmd := sdCommand(t, "restore", dir, "--store-dir", store)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testnats.Eventually(t, func() error {
			if blocks, _ := filepath.Glob(filepath.Join(store, "jetstream", "$G", "streams", "BIG", "msgs", "*.blk")); len(blocks) > 0 {
				return nil
			}
			return fmt.Errorf("no block yet")
		})
		// Another run meanwhile is refused.
		if _, errs := sdExits(t, exitLocked, "restore", dir, "--store-dir", store); !strings.Contains(errs, fmt.Sprint(cmd.Process.Pid)) {
			t.Error(errs)
		}
		sdExits(t, exitLocked, "backup", "OTHER", "--store-dir", store, "-o", filepath.Join(t.TempDir(), "x"))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out, _ := sdExits(t, exitRefused, "restore", dir, "--store-dir", store, "--dry-run", "--as", "OTHER")
		if !strings.Contains(out, "a stream with data") {
			t.Error(out)
		}
		sdExits(t, exitOK, "restore", dir, "--store-dir", store)
		again := testnats.Process(t, bin, testnats.Options{StoreDir: store})
		nc := again.Connect(t)
		if got := len(testnats.Dump(t, nc, "BIG").Messages); got != 10000 {
			t.Errorf("%d messages", got)
		}
		if d := cmp.Diff(other, sdSee(t, nc, "OTHER"), cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
	})
}

func TestStoreDirDryRunTouchesNothing(t *testing.T) {
	sdTemp(t)
	srv := testnats.Process(t, testnats.ServerBinary(t, storeServer))
	nc := srv.Connect(t)
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "ORDERS", Messages: 50})
	sdCreate(t, nc, jetstream.StreamConfig{Name: "AGED", Subjects: []string{"aged.*"}, MaxAge: time.Second, Duplicates: time.Second}, 10)
	nc.Close()
	srv.Stop(t)
	dir := filepath.Join(t.TempDir(), "b")
	sdExits(t, exitOK, "backup", "ORDERS", "--store-dir", srv.StoreDir(), "-o", dir)
	before := sdHash(t, srv.StoreDir())
	out, _ := sdExits(t, exitOK, "restore", dir, "--store-dir", srv.StoreDir(), "--as", "COPY", "--dry-run")
	if !strings.Contains(out, "on store directory "+srv.StoreDir()) {
		t.Error(out)
	}
	if out, _ := sdExits(t, exitRefused, "restore", dir, "--store-dir", srv.StoreDir(), "--dry-run"); !strings.Contains(out, "not empty") {
		t.Error(out)
	}
	sdUntouched(t, srv.StoreDir(), before)
	missing := filepath.Join(t.TempDir(), "new")
	sdExits(t, exitOK, "restore", dir, "--store-dir", missing, "--dry-run")
	if _, err := os.Stat(missing); err == nil {
		t.Error("a dry run made the directory")
	}
	sdExits(t, exitRefused, "restore", dir, "--store-dir", missing, "--replicas", "3")
	if _, err := os.Stat(missing); err == nil {
		t.Error("a refused restore made the directory")
	}
}

// TestStoreDirUnrecoveredInTheWay: files of a stream that can't be recovered are
// neither added to nor passed over in silence.
func TestStoreDirUnrecoveredInTheWay(t *testing.T) {
	sdTemp(t)
	srv := testnats.Process(t, testnats.ServerBinary(t, storeServer))
	nc := srv.Connect(t)
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "ORDERS", Messages: 50})
	nc.Close()
	srv.Stop(t)
	store, dir := srv.StoreDir(), filepath.Join(t.TempDir(), "b")
	sdExits(t, exitOK, "backup", "ORDERS", "--store-dir", store, "-o", dir)
	sum := filepath.Join(store, "jetstream", "$G", "streams", "ORDERS", "meta.sum")
	if err := os.WriteFile(sum, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := sdHash(t, store)
	if _, errs := sdExits(t, exitRefused, "restore", dir, "--store-dir", store); !strings.Contains(errs, "move it out of") {
		t.Error(errs)
	}
	sdUntouched(t, store, before)
	out, _ := sdExits(t, exitOK, "restore", dir, "--store-dir", store, "--as", "NEW", "--json")
	if !strings.Contains(out, "checksums do not match") {
		t.Errorf("nothing is said about the other stream: %s", out)
	}
}

func TestStoreDirEncrypted(t *testing.T) {
	bin := testnats.ServerBinary(t, storeServer)
	for _, cipher := range []string{"chachapoly", "aes"} {
		t.Run(cipher, func(t *testing.T) {
			sdTemp(t)
			srv := testnats.Process(t, bin, testnats.Options{EncryptionKey: "s3cr3t key", Cipher: cipher})
			nc := srv.Connect(t)
			testnats.Fill(t, nc, testnats.FillOptions{Stream: "ORDERS", Messages: 100, Consumers: true})
			sdCreate(t, nc, jetstream.StreamConfig{Name: "AGED", Subjects: []string{"aged.*"}, MaxAge: 4 * time.Second, Duplicates: time.Second}, 10)
			aged, want := sdSee(t, nc, "AGED"), sdSee(t, nc, "ORDERS")
			nc.Close()
			srv.Stop(t)
			time.Sleep(4 * time.Second)
			store, dir := srv.StoreDir(), t.TempDir()
			before := sdHash(t, store)
			x := filepath.Join(dir, "x")
			if _, errs := sdExits(t, exitConnection, "backup", "ORDERS", "--store-dir", store, "-o", x); !strings.Contains(errs, `stream "ORDERS": it is encrypted, and no key is given`) {
				t.Error(errs)
			}
			t.Setenv("JETKEEP_STORE_KEY", "wrong")
			if _, errs := sdExits(t, exitConnection, "backup", "ORDERS", "--store-dir", store, "-o", x); !strings.Contains(errs, `stream "ORDERS": it is encrypted with another key`) {
				t.Error(errs)
			}
			keyFile := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(keyFile, []byte("s3cr3t key\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			sdExits(t, exitOK, "backup", "AGED", "--store-dir", store, "-o", filepath.Join(dir, "aged"), "--store-key-file", keyFile)
			sdSame(t, aged, filepath.Join(dir, "aged"))
			t.Setenv("JETKEEP_STORE_KEY", "s3cr3t key")
			sdExits(t, exitOK, "backup", "ORDERS", "--store-dir", store, "-o", filepath.Join(dir, "orders"))
			sdSame(t, want, filepath.Join(dir, "orders"))
			sdUntouched(t, store, before)

			// Restoring: never with another cipher or key than the streams that are there.
			other := map[string]string{"aes": "chacha", "chachapoly": "aes"}[cipher]
			orders := filepath.Join(dir, "orders")
			if _, errs := sdExits(t, exitConnection, "restore", orders, "--store-dir", store, "--as", "COPY", "--store-cipher", other); !strings.Contains(errs, "encrypted with "+cipher) {
				t.Error(errs)
			}
			t.Setenv("JETKEEP_STORE_KEY", "")
			sdExits(t, exitConnection, "restore", orders, "--store-dir", store, "--as", "COPY")
			sdUntouched(t, store, before)
			sdExits(t, exitOK, "restore", orders, "--store-dir", store, "--as", "COPY", "--store-key-file", keyFile)
			target := filepath.Join(t.TempDir(), "new")
			sdExits(t, exitOK, "restore", orders, "--store-dir", target, "--store-key-file", keyFile, "--store-cipher", cipher)
			for _, c := range []struct{ dir, stream string }{{store, "COPY"}, {store, "ORDERS"}, {target, "ORDERS"}} {
				again := testnats.Process(t, bin, testnats.Options{StoreDir: c.dir, EncryptionKey: "s3cr3t key", Cipher: cipher})
				nc := again.Connect(t)
				if d := cmp.Diff(want.Contents, testnats.Dump(t, nc, c.stream)); d != "" {
					t.Error(d)
				}
				if conv := again.Log.Find("onverting"); len(conv) > 0 {
					t.Error(conv)
				}
				nc.Close()
				again.Stop(t)
			}
		})
	}
	t.Run("a key for plain text", func(t *testing.T) {
		sdTemp(t)
		srv := testnats.Process(t, bin)
		nc := srv.Connect(t)
		testnats.Fill(t, nc, testnats.FillOptions{Stream: "ORDERS", Messages: 20})
		want := sdSee(t, nc, "ORDERS")
		nc.Close()
		srv.Stop(t)
		before := sdHash(t, srv.StoreDir())
		dir := filepath.Join(t.TempDir(), "b")
		t.Setenv("JETKEEP_STORE_KEY", "useless")
		sdExits(t, exitOK, "backup", "ORDERS", "--store-dir", srv.StoreDir(), "-o", dir)
		sdSame(t, want, dir)
		if _, errs := sdExits(t, exitConnection, "restore", dir, "--store-dir", srv.StoreDir(), "--as", "COPY"); !strings.Contains(errs, "would encrypt it") {
			t.Error(errs)
		}
		sdUntouched(t, srv.StoreDir(), before)
	})
}

// sdCommand is the test binary as a jetkeep process.
func sdCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "jetkeep")
	if err := os.Symlink(self, bin); err != nil {
		t.Skip(err)
	}
	return exec.Command(bin, args...)
}

func TestStoreDirExitCodes(t *testing.T) {
	damaged := &embedded.DamagedError{Dir: "d", Stream: "S", Reasons: []string{"x"}}
	for _, c := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("open: %w", &embedded.InUseError{Dir: "d", PID: 1}), exitLocked},
		{embedded.ErrChanged, exitLocked},
		{embedded.ErrNotStoreDir, exitNotFound},
		{embedded.ErrNoAccount, exitNotFound},
		{embedded.ErrNoStream, exitNotFound},
		{damaged, exitDamaged},
		{&backup.TransferError{Stream: "S", Err: damaged}, exitDamaged},
		{&embedded.ClusteredError{Dir: "d"}, exitRefused},
		{&embedded.KeyError{Stream: "S"}, exitConnection},
		{embedded.ErrNoRoom, exitFailed},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, expected %d", c.err, got, c.want)
		}
	}
}
