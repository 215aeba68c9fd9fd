package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jetkeep/jetkeep/internal/embedded"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

func start(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop() })
	return s
}

func stop(t *testing.T, s *embedded.Server) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}

func conn(t *testing.T, s *embedded.Server, account string) *nats.Conn {
	t.Helper()
	nc, err := s.Connect(account)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// snapshotOf is all that a stream holds and is.
type snapshotOf struct {
	Contents  testnats.Contents
	Consumers []testnats.Consumer
	Config    map[string]any
}

func snapshot(t *testing.T, nc *nats.Conn, stream string) snapshotOf {
	t.Helper()
	return snapshotOf{testnats.Dump(t, nc, stream), testnats.DumpConsumers(t, nc, stream), testnats.StreamConfig(t, nc, stream)}
}

func equal(t *testing.T, want, got snapshotOf) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestStopAndStartKeepEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	s := start(t, embedded.Options{StoreDir: dir})
	nc := conn(t, s, "")
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true, TTL: time.Hour})
	kv := "KV_" + testnats.FillKV(t, nc)
	wantStream, wantKV := snapshot(t, nc, stream), snapshot(t, nc, kv)
	stop(t, s)
	stop(t, s) // a second time does nothing

	if index := filepath.Join(dir, "jetstream", "$G", "streams", stream, "msgs", "index.db"); !exists(index) {
		t.Errorf("no %s after Stop", index)
	}
	s = start(t, embedded.Options{StoreDir: dir})
	nc = conn(t, s, "")
	equal(t, wantStream, snapshot(t, nc, stream))
	equal(t, wantKV, snapshot(t, nc, kv))
	if u := s.Unrecovered(); len(u) > 0 {
		t.Errorf("unrecovered: %v", u)
	}
	if w := s.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestServerBinaryStartsOnADirectoryOfOurs(t *testing.T) {
	bin := testnats.ServerBinary(t, "2.15.3")
	dir := t.TempDir()
	s := start(t, embedded.Options{StoreDir: dir, EncryptionKey: "s3cr3t", Cipher: "aes"})
	nc := conn(t, s, "")
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true})
	want := snapshot(t, nc, stream)
	stop(t, s)

	c := testnats.Process(t, bin, testnats.Options{StoreDir: dir, EncryptionKey: "s3cr3t", Cipher: "aes"})
	equal(t, want, snapshot(t, c.Connect(t), stream))
	c.Stop(t)

	// And back, after the binary has had it.
	s = start(t, embedded.Options{StoreDir: dir, EncryptionKey: "s3cr3t", Cipher: "aes"})
	equal(t, want, snapshot(t, conn(t, s, ""), stream))
}

func TestAccountsAreFoundOnDisk(t *testing.T) {
	key, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	operatorMode, _ := key.PublicKey()
	names := []string{"$G", operatorMode, "TEAM A"}
	dir := t.TempDir()
	s := start(t, embedded.Options{StoreDir: dir, Accounts: names})
	streams := map[string]string{}
	want := map[string]snapshotOf{}
	for _, name := range names {
		nc := conn(t, s, name)
		streams[name] = testnats.Fill(t, nc, testnats.FillOptions{Messages: 20})
		want[name] = snapshot(t, nc, streams[name])
	}
	stop(t, s)

	found, err := embedded.Accounts(dir)
	if d := cmp.Diff(names, found); d != "" || err != nil {
		t.Errorf("%s %v", d, err)
	}
	dirs, err := embedded.StreamDirs(dir, operatorMode)
	if err != nil || len(dirs) != 1 || filepath.Base(dirs[0]) != streams[operatorMode] {
		t.Errorf("stream directories %v, %v", dirs, err)
	}
	s = start(t, embedded.Options{StoreDir: dir})
	for _, name := range names {
		equal(t, want[name], snapshot(t, conn(t, s, name), streams[name]))
	}
	if _, err := s.Connect("OTHER"); err == nil {
		t.Error("connected to an account that isn't open")
	}
	stop(t, s)

	// One alone leaves the others as they are.
	s = start(t, embedded.Options{StoreDir: dir, Accounts: []string{"TEAM A"}})
	equal(t, want["TEAM A"], snapshot(t, conn(t, s, ""), streams["TEAM A"]))
	stop(t, s)
	if found, _ := embedded.Accounts(dir); len(found) != 3 {
		t.Errorf("accounts left: %v", found)
	}
}

func TestAccountOfAConfiguredServer(t *testing.T) {
	live := testnats.Single(t, testnats.Options{Accounts: []testnats.Account{{Name: "SHOP", MaxStore: 1 << 30}}})
	nc := live.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true})
	want := snapshot(t, nc, stream)
	live.Shutdown()
	s := start(t, embedded.Options{StoreDir: live.StoreDir()})
	equal(t, want, snapshot(t, conn(t, s, "SHOP"), stream))
}

func TestUnrecoveredStreamsAndConsumersAreNamed(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embedded.Options{StoreDir: dir})
	nc := conn(t, s, "")
	good := testnats.Fill(t, nc, testnats.FillOptions{Messages: 20, Consumers: true})
	var bad []string
	for range 3 {
		bad = append(bad, testnats.Fill(t, nc, testnats.FillOptions{Messages: 20}))
	}
	stop(t, s)
	in := func(elem ...string) string {
		return filepath.Join(append([]string{dir, "jetstream", "$G", "streams"}, elem...)...)
	}
	rewrite(t, in(bad[0], "meta.inf"), func(b []byte) []byte { return bytes.Replace(b, []byte("orders"), []byte("0rders"), 1) })
	remove(t, in(bad[1], "meta.inf"))
	remove(t, in(bad[2], "meta.sum"))
	rewrite(t, in(good, "obs", "odd", "meta.inf"), func(b []byte) []byte { return []byte("{") })

	var log bytes.Buffer
	s = start(t, embedded.Options{StoreDir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	got := map[string]string{}
	for _, u := range s.Unrecovered() {
		got[u.Stream+u.Consumer] = u.Reason
	}
	want := map[string]string{
		bad[0]:       "checksums do not match",
		bad[1]:       "Missing stream metafile",
		bad[2]:       "Missing stream checksum file",
		good + "odd": "Error unmarshalling consumer metafile",
	}
	for name, reason := range want {
		if !strings.Contains(got[name], reason) {
			t.Errorf("%s: got reason %q, want %q", name, got[name], reason)
		}
	}
	if len(got) != len(want) {
		t.Errorf("unrecovered: %v", s.Unrecovered())
	}
	stop(t, s)
	if !strings.Contains(log.String(), "level=WARN") {
		t.Error("the warnings were not passed on")
	}
}

func rewrite(t *testing.T, path string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, f(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestWrongKeyRecoversNothingAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embedded.Options{StoreDir: dir, EncryptionKey: "right"})
	nc := conn(t, s, "")
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 20})
	want := snapshot(t, nc, stream)
	stop(t, s)
	for _, key := range []string{"wrong", ""} {
		s = start(t, embedded.Options{StoreDir: dir, EncryptionKey: key})
		u := s.Unrecovered()
		if len(u) != 1 || u[0].Stream != stream || !strings.Contains(u[0].Reason, "metafile") {
			t.Errorf("key %q: %v", key, u)
		}
		stop(t, s)
	}
	s = start(t, embedded.Options{StoreDir: dir, EncryptionKey: "right"})
	equal(t, want, snapshot(t, conn(t, s, ""), stream))
}

func TestStreamForANewerServerIsUnrecovered(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embedded.Options{StoreDir: dir})
	stream := testnats.Fill(t, conn(t, s, ""), testnats.FillOptions{Messages: 5})
	stop(t, s)
	// Its checksum is redone, as a newer server would have done it.
	rewriteMeta(t, filepath.Join(dir, "jetstream", "$G", "streams", stream), func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"_nats.req.level":"`), []byte(`"_nats.req.level":"9`), 1)
	})
	s = start(t, embedded.Options{StoreDir: dir})
	if u := s.Unrecovered(); len(u) != 1 || !strings.Contains(u[0].Reason, "API level") {
		t.Errorf("unrecovered: %v", u)
	}
}

func TestDirectoryInUseIsRefused(t *testing.T) {
	c := testnats.Process(t, testnats.ServerBinary(t, "2.15.3"))
	testnats.Fill(t, c.Connect(t), testnats.FillOptions{Messages: 20})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(c.StoreDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{c.StoreDir(), link} {
		_, err := embedded.Start(context.Background(), embedded.Options{StoreDir: dir})
		var inUse *embedded.InUseError
		if !errors.As(err, &inUse) || inUse.PID != c.PID() || !strings.Contains(err.Error(), fmt.Sprint(c.PID())) {
			t.Errorf("%s: got %v", dir, err)
		}
	}
	c.Stop(t)
	start(t, embedded.Options{StoreDir: link})
}

func TestDirectoryOfAnIdleServerIsRefused(t *testing.T) {
	// It has no streams, and so no file open: only its configuration tells.
	c := testnats.Process(t, testnats.ServerBinary(t, "2.15.3"))
	_, err := embedded.Start(context.Background(), embedded.Options{StoreDir: c.StoreDir()})
	var inUse *embedded.InUseError
	if !errors.As(err, &inUse) || inUse.PID != c.PID() {
		t.Errorf("got %v", err)
	}
}

func TestNothingListens(t *testing.T) {
	before := listening(t)
	s := start(t, embedded.Options{StoreDir: t.TempDir(), Accounts: []string{"$G", "A"}})
	testnats.Fill(t, conn(t, s, "A"), testnats.FillOptions{Messages: 5})
	if after := listening(t); after != before {
		t.Errorf("%d sockets listen, %d before", after, before)
	}
}

// listening counts the listening sockets of this process.
func listening(t *testing.T) int {
	t.Helper()
	inodes := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile("/proc/self/net/" + table)
		if err != nil {
			t.Skip("no /proc/self/net: ", err)
		}
		for _, line := range strings.Split(string(b), "\n")[1:] {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && inodes[to] {
			n++
		}
	}
	return n
}

func TestLimits(t *testing.T) {
	ctx := context.Background()
	create := func(o embedded.Options, maxBytes int64) error {
		o.StoreDir = t.TempDir()
		js, err := jetstream.New(conn(t, start(t, o), ""))
		if err != nil {
			t.Fatal(err)
		}
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "BIG", MaxBytes: maxBytes})
		return err
	}
	if err := create(embedded.Options{}, 1<<30); err != nil {
		t.Errorf("1 GiB by default: %v", err)
	}
	if err := create(embedded.Options{}, 1<<50); err == nil {
		t.Error("1 PiB was reserved on this disk")
	}
	if err := create(embedded.Options{MaxStore: embedded.Unlimited, Throwaway: true}, 1<<50); err != nil {
		t.Errorf("1 PiB without limit: %v", err)
	}
	if err := create(embedded.Options{MaxStore: 1000}, 1001); err == nil {
		t.Error("1001 bytes of 1000 were reserved")
	}
}

func TestLargestMessage(t *testing.T) {
	s := start(t, embedded.Options{StoreDir: t.TempDir(), Throwaway: true})
	nc := conn(t, s, "")
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "LARGE"}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "LARGE", make([]byte, 31<<20)); err != nil {
		t.Error(err)
	}
}

func TestFailuresOfStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inTheWay := t.TempDir()
	if err := os.WriteFile(filepath.Join(inTheWay, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]embedded.Options{
		"no directory":   {},
		"a file":         {StoreDir: file},
		"file in it":     {StoreDir: inTheWay, Accounts: []string{"$G"}},
		"system account": {StoreDir: t.TempDir(), Accounts: []string{"$SYS"}},
		"twice":          {StoreDir: t.TempDir(), Accounts: []string{"A", "A"}},
		"cipher":         {StoreDir: t.TempDir(), EncryptionKey: "k", Cipher: "rot13"},
	} {
		if s, err := embedded.Start(context.Background(), o); err == nil {
			s.Stop()
			t.Errorf("%s: started", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := embedded.Start(ctx, embedded.Options{StoreDir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestNoHomeNeeded(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	s := start(t, embedded.Options{StoreDir: t.TempDir()})
	testnats.Fill(t, conn(t, s, ""), testnats.FillOptions{Messages: 5})
}

func TestFullDiskIsAnErrorOfStop(t *testing.T) {
	dir := testnats.SmallDisk(t, 2<<20)
	s := start(t, embedded.Options{StoreDir: dir, MaxStore: embedded.Unlimited})
	js, err := jetstream.New(conn(t, s, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "FULL"}); err != nil {
		t.Fatal(err)
	}
	// The server doesn't answer the publish that fills the disk.
	for !strings.Contains(strings.Join(s.Warnings(), "\n"), "no space left") {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_, _ = js.Publish(ctx, "FULL", make([]byte, 100<<10))
		cancel()
	}
	if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("Stop on a full disk: %v", err)
	}
}
