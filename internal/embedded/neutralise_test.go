package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

func writeAsset(t *testing.T, a asset, text string) {
	t.Helper()
	fields, err := format.ParseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.write(&meta{fields: fields}); err != nil {
		t.Fatal(err)
	}
}

func readAsset(t *testing.T, a asset) map[string]any {
	t.Helper()
	m, err := a.read("")
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := m.fields.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNeutralise(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "S")
	stream := asset{dir: dir, account: "A", stream: "S"}
	writeAsset(t, stream, `{"Created":"2020-01-02T03:04:05Z","name":"S","subjects":["$JS.EVENT.>"],"retention":"workqueue",
		"max_age":5,"max_msgs":7,"max_bytes":8,"max_msgs_per_subject":9,"discard":"new","discard_new_per_subject":true,
		"num_replicas":3,"placement":{"cluster":"c"},"mirror":{"name":"o"},"mirror_direct":true,"sources":[{"name":"o"}],
		"republish":{"src":">","dest":"x.>"},"subject_transform":{"src":"a","dest":"b"},"allow_msg_ttl":true,
		"subject_delete_marker_ttl":6,"allow_msg_schedules":true,"allow_atomic":true,"first_seq":100,
		"consumer_limits":{"max_ack_pending":1},"max_consumers":1,
		"sealed":true,"deny_delete":true,"deny_purge":true,"storage":"file","future":{"kept":[1.50,null]}}`)
	consumer := func(name string) asset {
		return asset{dir: filepath.Join(dir, consumersDir, name), account: "A", stream: "S", consumer: name}
	}
	writeAsset(t, consumer("explicit"), `{"Created":"2020-01-02T03:04:05Z","Name":"explicit","name":"explicit","ack_policy":"explicit",
		"ack_wait":1,"max_deliver":2,"backoff":[1,2],"inactive_threshold":3,"num_replicas":3,"pause_until":"2021-01-01T00:00:00Z","future":true}`)
	writeAsset(t, consumer("flow"), `{"Name":"flow","ack_policy":"flow_control"}`)
	if err := os.MkdirAll(consumer("broken").dir, 0o700); err != nil {
		t.Fatal(err)
	}

	o, err := neutralise(dir, "A", "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]any{
		"Created": "2020-01-02T03:04:05Z", "name": "S", "subjects": []any{copySubject}, "retention": "limits",
		"max_age": 0.0, "max_msgs": 7.0, "max_bytes": 8.0, "max_msgs_per_subject": 9.0, "discard": "new", "discard_new_per_subject": true,
		"max_consumers": -1.0, "num_replicas": 1.0, "sealed": true, "deny_delete": true, "deny_purge": true,
		"storage": "file", "future": map[string]any{"kept": []any{1.5, nil}},
	}, readAsset(t, stream)); d != "" {
		t.Errorf("stream (-want +got)\n%s", d)
	}
	if raw := string(o.Config.Raw("future")); raw != `{"kept":[1.50,null]}` || o.Config.Has("Created") || string(o.Config.Raw("first_seq")) != "100" {
		t.Errorf("original: %v", o.Config)
	}
	if !o.Created.Equal(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("created %v", o.Created)
	}
	got := readAsset(t, consumer("explicit"))
	if until, _ := time.Parse(time.RFC3339, got["pause_until"].(string)); time.Until(until) < 24*time.Hour {
		t.Errorf("paused until %v", until)
	}
	delete(got, "pause_until")
	if d := cmp.Diff(map[string]any{
		"Created": "2020-01-02T03:04:05Z", "Name": "explicit", "name": "explicit", "ack_policy": "explicit", "ack_wait": float64(neutralTime), "max_deliver": -1.0,
		"inactive_threshold": float64(neutralTime), "num_replicas": 0.0, "future": true,
	}, got); d != "" {
		t.Errorf("consumer (-want +got)\n%s", d)
	}
	if flow := readAsset(t, consumer("flow")); flow["ack_wait"] != nil || flow["max_deliver"] != nil || flow["pause_until"] == nil {
		t.Errorf("consumer %v", flow)
	}
	if len(o.Consumers) != 2 || string(o.Consumers["explicit"].Raw("max_deliver")) != "2" || o.Consumers["explicit"].Has("Name") {
		t.Errorf("consumers %v", o.Consumers)
	}
}

func TestNeutraliseLeavesDamageAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "S")
	stream := asset{dir: dir, account: "A", stream: "S"}
	writeAsset(t, stream, `{"name":"S","max_age":5}`)
	sum := filepath.Join(dir, "meta.sum")
	if err := os.WriteFile(sum, []byte("0000000000000000"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := neutralise(dir, "A", ""); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(sum); string(data) != "0000000000000000" {
		t.Error("a wrong checksum was made right")
	}
}

func TestSealing(t *testing.T) {
	dir := t.TempDir()
	for _, cipher := range []string{CipherChaCha, CipherAES} {
		s, err := Start(context.Background(), Options{StoreDir: filepath.Join(dir, cipher), EncryptionKey: "k", Cipher: cipher})
		if err != nil {
			t.Fatal(err)
		}
		nc, err := s.Connect("")
		if err != nil {
			t.Fatal(err)
		}
		testnats.Fill(t, nc, testnats.FillOptions{Stream: "S", Messages: 30, Consumers: true})
		nc.Close()
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		a := asset{dir: filepath.Join(dir, cipher, "jetstream", "$G", "streams", "S"), account: "$G", stream: "S"}
		for _, a := range []asset{a, {filepath.Join(a.dir, "obs", "odd"), "$G", "S", "odd"}} {
			m, err := a.read("k")
			if err != nil || m.sealed.cipher != cipher {
				t.Fatalf("%s: %v, %+v", a.context(), err, m)
			}
			for _, key := range []string{"", "wrong"} {
				if _, err := a.read(key); !isKeyError(err) {
					t.Errorf("key %q: %v", key, err)
				}
			}
			wrong := a
			wrong.account = "OTHER"
			if _, err := wrong.read("k"); !isKeyError(err) {
				t.Errorf("another account: %v", err)
			}
			// Written by us, it's read by the server.
			m.fields.Set("description", "changed")
			if err := a.write(m); err != nil {
				t.Fatal(err)
			}
		}
		s, err = Start(context.Background(), Options{StoreDir: filepath.Join(dir, cipher), EncryptionKey: "k", Cipher: cipher})
		if err != nil {
			t.Fatal(err)
		}
		if u := s.Unrecovered(); len(u) > 0 {
			t.Errorf("unrecovered: %v", u)
		}
		nc, err = s.Connect("")
		if err != nil {
			t.Fatal(err)
		}
		if d := testnats.StreamConfig(t, nc, "S")["description"]; d != "changed" {
			t.Errorf("description %v", d)
		}
		nc.Close()
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		// Its own cipher is found, whatever is wanted by default; another is refused.
		if got, err := ChooseCipher(filepath.Join(dir, cipher), "$G", "k", ""); got != cipher || err != nil {
			t.Errorf("chose %q, %v", got, err)
		}
		other := map[string]string{CipherChaCha: CipherAES, CipherAES: "chacha"}[cipher]
		if got, err := ChooseCipher(filepath.Join(dir, cipher), "$G", "k", other); !isKeyError(err) {
			t.Errorf("chose %q, %v", got, err)
		}
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	read, err := lock(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	again, err := lock(dir, false)
	if err != nil {
		t.Fatalf("two readers: %v", err)
	}
	if _, err := lock(dir, true); err == nil {
		t.Skip("this system or file system has no locks on directories")
	}
	_, err = Start(context.Background(), Options{StoreDir: dir})
	if inUse, ok := errors.AsType[*InUseError](err); !ok || inUse.PID != os.Getpid() && inUse.PID != 0 {
		t.Errorf("started: %v", err)
	}
	read()
	again()
	s, err := Start(context.Background(), Options{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir, false); err == nil {
		t.Error("read under a server")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	free, err := lock(dir, true)
	if err != nil {
		t.Fatalf("after Stop: %v", err)
	}
	free()
}

func TestUndo(t *testing.T) {
	for _, made := range []string{"", "jetstream", filepath.Join("jetstream", "OTHER", "streams", "S")} {
		dir := filepath.Join(t.TempDir(), "[store]*")
		if made != "" {
			if err := os.MkdirAll(filepath.Join(dir, made), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		before := tree(t, dir)
		s, err := Start(context.Background(), Options{StoreDir: dir, Accounts: []string{"A"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Undo(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(before, tree(t, dir)); d != "" {
			t.Errorf("%q: %s", made, d)
		}
	}
	// What holds a stream stays.
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Start(context.Background(), Options{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := s.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "S", Messages: 5})
	nc.Close()
	if err := s.Undo(); err != nil {
		t.Fatal(err)
	}
	if dirs, err := StreamDirs(dir, "$G"); err != nil || len(dirs) != 1 {
		t.Errorf("streams %v, %v", dirs, err)
	}
}

// tree lists all paths; none for a root that isn't there.
func tree(t *testing.T, root string) (paths []string) {
	t.Helper()
	if _, err := os.Stat(root); err != nil {
		return nil
	}
	files, err := listTree(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		paths = append(paths, f.path)
	}
	slices.Sort(paths)
	return paths
}

func TestCopyNeedsRoomAndQuiet(t *testing.T) {
	dir := t.TempDir()
	s, err := Start(context.Background(), Options{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := s.Connect("")
	if err != nil {
		t.Fatal(err)
	}
	testnats.Fill(t, nc, testnats.FillOptions{Stream: "S", Messages: 3000, Size: 2000, NoDeletes: true})
	nc.Close()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	temp := t.TempDir()
	o := CopyOptions{StoreDir: dir, Account: GlobalAccount, TempDir: temp}
	t.Run("changed meanwhile", func(t *testing.T) {
		o := o
		o.Progress = func(done, total int64) {
			if done < total {
				_ = os.Chtimes(filepath.Join(dir, "jetstream", "$G", "streams", "S", "meta.inf"), time.Now(), time.Now().Add(-time.Hour))
			}
		}
		if c, err := OpenCopy(ctx, o, "S"); !errors.Is(err, ErrChanged) {
			t.Errorf("%v, %v", c, err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		o := o
		o.Progress = func(int64, int64) { cancel() }
		if c, err := OpenCopy(ctx, o, "S"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", c, err)
		}
	})
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	t.Run("no room", func(t *testing.T) {
		o := o
		o.TempDir = testnats.SmallDisk(t, 1<<20)
		if _, err := OpenCopy(context.Background(), o, "S"); !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "TMPDIR") {
			t.Errorf("got %v", err)
		}
	})
}
