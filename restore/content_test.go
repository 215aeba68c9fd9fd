package restore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// until waits for a moment, measured by this machine's clock.
func until(at time.Time) { time.Sleep(time.Until(at)) }

// C3: messages whose TTL is over at the restore lose their data and keep their
// sequence; the others expire when they should.
func TestPerMessageTTLs(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := create(t, nc, jetstream.StreamConfig{AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Hour, AllowRollup: true})
	var last time.Time
	for i := range 30 {
		ttl := []string{"1s", "never", "1h", ""}[i%4]
		if ttl == "" {
			publish(t, nc, fmt.Sprint(stream, ".", i), "x")
		} else {
			publish(t, nc, fmt.Sprint(stream, ".", i), "x", "Nats-TTL", ttl)
		}
		last = time.Now()
	}
	// On these the marker's own TTL would be the least: without markers a
	// second is a second.
	short := create(t, nc, jetstream.StreamConfig{AllowMsgTTL: true})
	for i := range 40 {
		ttl := []string{"1s", "never", "1h", "3s"}[i%4]
		publish(t, nc, fmt.Sprint(short, ".", i), "x", "Nats-TTL", ttl)
	}
	before := testnats.Dump(t, nc, stream)
	b, c := take(t, nc, stream), take(t, nc, short)
	remove(t, nc, stream)
	remove(t, nc, short)
	until(last.Add(1500 * time.Millisecond))

	plan, res := mustRun(t, nc, b, restore.Options{FullCheck: true})
	if plan.Rewrite || res.Expired != 0 {
		t.Errorf("with markers for an hour %d expired", res.Expired)
	}
	same(t, "with delete markers", before, testnats.Dump(t, nc, stream))

	plan, res = mustRun(t, nc, c, restore.Options{FullCheck: true})
	if plan.Expected.Expired != 10 || res.Expired < 10 || plan.Expected.Messages != 30 || plan.Expected.LastSeq != 40 {
		t.Errorf("expected %+v, result %+v", plan.Expected, res)
	}
	finding(t, plan, "expired", restore.OK, "10 of 40", "sequences are kept")
	testnats.Eventually(t, func() error { // those of three seconds are still found
		got := testnats.Dump(t, nc, short)
		if len(got.Messages) != 20 || got.LastSeq != 40 {
			return fmt.Errorf("%d messages, last %d", len(got.Messages), got.LastSeq)
		}
		return nil
	})
	for _, m := range testnats.Dump(t, nc, short).Messages {
		if !strings.Contains(m.Header, "never") && !strings.Contains(m.Header, "1h") {
			t.Errorf("%+v", m)
		}
	}
	if seq := publish(t, nc, short+".a", ""); seq != 41 {
		t.Errorf("the next message gets %d", seq)
	}
}

// Messages with a TTL in a stream that doesn't allow it never expire there, and
// a restoring server drops them all the same.
func TestTTLWithoutAllowance(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	// A mirror has the headers of its origin and needs no allowance.
	origin := create(t, nc, jetstream.StreamConfig{AllowMsgTTL: true})
	stream := create(t, nc, jetstream.StreamConfig{Sources: []*jetstream.StreamSource{{Name: origin}}})
	var last time.Time
	for i := range 4 {
		publish(t, nc, fmt.Sprint(origin, ".", i), "x", "Nats-TTL", []string{"1s", "1h"}[i%2])
		last = time.Now()
	}
	testnats.Eventually(t, func() error {
		if n := len(testnats.Dump(t, nc, stream).Messages); n != 4 {
			return fmt.Errorf("%d sourced", n)
		}
		return nil
	})
	b := take(t, nc, stream)
	until(last.Add(1200 * time.Millisecond))
	testnats.Eventually(t, func() error {
		if n := len(testnats.Dump(t, nc, origin).Messages); n != 2 {
			return fmt.Errorf("the origin holds %d", n)
		}
		return nil
	})
	if n := len(testnats.Dump(t, nc, stream).Messages); n != 4 {
		t.Fatalf("the aggregate holds %d", n)
	}
	remove(t, nc, stream)
	refused(t, nc, b, restore.Options{}, "expired", "2 of 4 messages", "allow_msg_ttl")
	p, _ := mustRun(t, nc, b, restore.Options{AcceptLoss: true})
	finding(t, p, "expired", restore.Warning, "2 of 4 messages")
	if n := len(testnats.Dump(t, nc, stream).Messages); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// C12: a message id within the window is rejected after the restore.
func TestDuplicatesStayDuplicates(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := create(t, nc, jetstream.StreamConfig{Duplicates: time.Hour})
	publish(t, nc, stream+".a", "x", "Nats-Msg-Id", "one")
	publish(t, nc, stream+".a", "x", "Nats-Msg-Id", "two")
	b := take(t, nc, stream)
	remove(t, nc, stream)
	p, _ := mustRun(t, nc, b, restore.Options{})
	finding(t, p, "duplicates", restore.OK, "2 messages")
	if ack, err := tryPublish(t, nc, stream+".a", "x", "Nats-Msg-Id", "one"); err != nil || !ack.Duplicate || ack.Sequence != 1 {
		t.Errorf("%+v, %v", ack, err)
	}
	if ack, err := tryPublish(t, nc, stream+".a", "x", "Nats-Msg-Id", "three"); err != nil || ack.Duplicate || ack.Sequence != 3 {
		t.Errorf("%+v, %v", ack, err)
	}
}

// C9: nothing is republished or transformed a second time, and both go on for
// new messages.
func TestRepublishAndTransform(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	name := testnats.Name(t)
	create(t, nc, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".in.>"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: name + ".in.>", Destination: name + ".in.again.>"},
		RePublish:        &jetstream.RePublish{Source: ">", Destination: "copy." + name + ".>"},
	})
	for range 5 {
		publish(t, nc, name+".in.x", "x")
	}
	sub := must(nc.SubscribeSync("copy." + name + ".>"))(t)
	again(t, nc, name)
	if m, err := sub.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("republished: %s", m.Subject)
	}
	publish(t, nc, name+".in.y", "y")
	m := must(sub.NextMsg(5 * time.Second))(t)
	if want := "copy." + name + "." + name + ".in.again.y"; m.Subject != want {
		t.Errorf("republished on %s instead of %s", m.Subject, want)
	}
}

// C10: counters go on from their value.
func TestCounters(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := create(t, nc, jetstream.StreamConfig{AllowMsgCounter: true, AllowDirect: true})
	for range 5 {
		publish(t, nc, stream+".hits", "", "Nats-Incr", "+3")
	}
	again(t, nc, stream)
	publish(t, nc, stream+".hits", "", "Nats-Incr", "-1")
	m := must(must(newJetStream(t, nc).Stream(ctx(t), stream))(t).GetLastMsgForSubject(ctx(t), stream+".hits"))(t)
	if string(m.Data) != `{"val":"14"}` {
		t.Errorf("%s", m.Data)
	}
}

// C10: scheduled messages stay armed; those that are due fire.
func TestSchedules(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := create(t, nc, jetstream.StreamConfig{AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true})
	at := func(d time.Duration) string { return "@at " + time.Now().UTC().Add(d).Format(time.RFC3339Nano) }
	due := time.Now().Add(time.Second)
	publish(t, nc, stream+".due", "due", "Nats-Schedule", at(time.Second), "Nats-Schedule-Target", stream+".fired.due")
	publish(t, nc, stream+".soon", "soon", "Nats-Schedule", at(4*time.Second), "Nats-Schedule-Target", stream+".fired.soon")
	publish(t, nc, stream+".later", "later", "Nats-Schedule", at(time.Hour), "Nats-Schedule-Target", stream+".fired.later")
	publish(t, nc, stream+".plain", "plain")
	b := take(t, nc, stream)
	remove(t, nc, stream)
	until(due.Add(500 * time.Millisecond))
	p, _ := mustRun(t, nc, b, restore.Options{FullCheck: true})
	if p.Expected.Scheduled != 3 {
		t.Errorf("%+v", p.Expected)
	}
	finding(t, p, "schedules", restore.Warning, "3 messages")
	st := must(newJetStream(t, nc).Stream(ctx(t), stream))(t)
	for _, subject := range []string{".fired.due", ".fired.soon", ".later", ".plain"} {
		testnats.Eventually(t, func() error {
			_, err := st.GetLastMsgForSubject(ctx(t), stream+subject)
			return err
		})
	}
	if m, err := st.GetLastMsgForSubject(ctx(t), stream+".fired.later"); err == nil {
		t.Errorf("fired early: %s", m.Data)
	}
}

// C4: a bucket reads as before through the client's own API, and an update with
// an old revision number works.
func TestKeyValue(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	for name, configure := range map[string]func(*jetstream.KeyValueConfig){
		"file":    func(*jetstream.KeyValueConfig) {},
		"memory":  func(c *jetstream.KeyValueConfig) { c.Storage = jetstream.MemoryStorage },
		"markers": func(c *jetstream.KeyValueConfig) { c.LimitMarkerTTL = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bucket := testnats.FillKV(t, nc, configure)
			js := newJetStream(t, nc)
			kv := must(js.KeyValue(ctx(t), bucket))(t)
			must(kv.Put(ctx(t), "big", bytes.Repeat([]byte("x"), 900<<10)))(t)
			if name == "markers" {
				must(kv.Create(ctx(t), "mayfly", []byte("x"), jetstream.KeyTTL(time.Hour)))(t)
				check(t, kv.Purge(ctx(t), "app.7.setting", jetstream.PurgeTTL(time.Hour)))
			}
			before := readKV(t, nc, bucket)
			again(t, nc, "KV_"+bucket)
			same(t, bucket, before, readKV(t, nc, bucket))
			kv = must(js.KeyValue(ctx(t), bucket))(t)
			e := must(kv.Get(ctx(t), "app.1.setting"))(t)
			if _, err := kv.Update(ctx(t), "app.1.setting", []byte("wrong"), e.Revision()-1); err == nil {
				t.Error("an update with a wrong revision worked")
			}
			must(kv.Update(ctx(t), "app.1.setting", []byte("new"), e.Revision()))(t)
		})
	}
}

// readKV reads a bucket's history, as a client does.
func readKV(t testing.TB, nc *nats.Conn, bucket string) map[string][]string {
	t.Helper()
	kv := must(newJetStream(t, nc).KeyValue(ctx(t), bucket))(t)
	w := must(kv.WatchAll(ctx(t), jetstream.IncludeHistory()))(t)
	defer w.Stop()
	all := map[string][]string{}
	for e := range w.Updates() {
		if e == nil {
			break
		}
		all[e.Key()] = append(all[e.Key()], fmt.Sprint(e.Revision(), e.Operation(), e.Created().UnixNano(), len(e.Value()), string(e.Value()[:min(99, len(e.Value()))])))
	}
	for key, revisions := range all {
		e, err := kv.Get(ctx(t), key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // deleted: the last revision says so
		}
		check(t, err)
		if last := revisions[len(revisions)-1]; !strings.HasPrefix(last, fmt.Sprint(e.Revision(), " ")) && !strings.HasPrefix(last, fmt.Sprint(e.Revision())) {
			t.Errorf("key %s reads as revision %d, its last is %s", key, e.Revision(), last)
		}
	}
	return all
}

// R10: a bucket under another name, next to the live one.
func TestKeyValueUnderAnotherName(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	bucket := testnats.FillKV(t, nc)
	before, live := readKV(t, nc, bucket), look(t, nc, "KV_"+bucket)
	filtered := jetstream.ConsumerConfig{Durable: "c", FilterSubject: "$KV." + bucket + ".app.>", AckPolicy: jetstream.AckExplicitPolicy}
	must(newJetStream(t, nc).CreateConsumer(ctx(t), "KV_"+bucket, filtered))(t)
	b := take(t, nc, "KV_"+bucket)
	check(t, newJetStream(t, nc).DeleteConsumer(ctx(t), "KV_"+bucket, "c"))

	refusedName(t, nc, b, "COPY")
	refusedName(t, nc, b, "KV_")
	refusedName(t, nc, b, "OBJ_x")

	p, _ := mustRun(t, nc, b, restore.Options{As: "KV_" + bucket + "_copy", FullCheck: true})
	if !p.Rewrite {
		t.Error("subjects weren't rewritten")
	}
	same(t, "the copy", before, readKV(t, nc, bucket+"_copy"))
	same(t, "the live bucket", live, look(t, nc, "KV_"+bucket))
	if c := testnats.DumpConsumers(t, nc, "KV_"+bucket+"_copy"); len(c) != 1 || c[0].Config["filter_subject"] != "$KV."+bucket+"_copy.app.>" || c[0].Pending == 0 {
		t.Errorf("consumers: %+v", c)
	}
	kv := must(newJetStream(t, nc).KeyValue(ctx(t), bucket+"_copy"))(t)
	rev := must(kv.PutString(ctx(t), "app.1.setting", "new"))(t)
	if rev != live.Contents.LastSeq+1 {
		t.Errorf("revision %d", rev)
	}
	same(t, "the live bucket", live, look(t, nc, "KV_"+bucket))
}

// refusedName checks that a name is no good for a backup.
func refusedName(t *testing.T, nc *nats.Conn, b *repo.Backup, as string) {
	t.Helper()
	refused(t, nc, b, restore.Options{As: as}, "name", "bucket", "has to begin with KV_")
}

// readObjects reads every object, links included.
func readObjects(t testing.TB, nc *nats.Conn, bucket string) map[string]string {
	t.Helper()
	o := must(newJetStream(t, nc).ObjectStore(ctx(t), bucket))(t)
	all := map[string]string{}
	for _, info := range must(o.List(ctx(t), jetstream.ListObjectsShowDeleted()))(t) {
		if info.Bucket != bucket {
			t.Errorf("object %s says that it is in %s", info.Name, info.Bucket)
		}
		what := fmt.Sprint(info.Size, info.Digest, info.Headers, info.Metadata, info.Deleted)
		if !info.Deleted {
			r := must(o.Get(ctx(t), info.Name))(t)
			data := must(io.ReadAll(r))(t)
			check(t, r.Close())
			what += string(data)
		}
		all[info.Name] = what
	}
	return all
}

func TestObjectStore(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	bucket := testnats.FillObjects(t, nc)
	before := readObjects(t, nc, bucket)
	if len(before) < 5 {
		t.Fatalf("%d objects", len(before))
	}
	again(t, nc, "OBJ_"+bucket)
	same(t, "objects", before, readObjects(t, nc, bucket))

	live := look(t, nc, "OBJ_"+bucket)
	b := take(t, nc, "OBJ_"+bucket)
	mustRun(t, nc, b, restore.Options{As: "OBJ_" + bucket + "_copy", FullCheck: true})
	same(t, "the live store", live, look(t, nc, "OBJ_"+bucket))
	// Links inside the bucket lead to the copy's objects.
	remove(t, nc, "OBJ_"+bucket)
	same(t, "objects of the copy", before, readObjects(t, nc, bucket+"_copy"))
	o := must(newJetStream(t, nc).ObjectStore(ctx(t), bucket+"_copy"))(t)
	must(o.PutString(ctx(t), "new", "object"))(t)
	if s := must(o.GetString(ctx(t), "new"))(t); s != "object" {
		t.Error(s)
	}
}

// C11: paused consumers stay paused until their time, push consumers deliver
// nothing before the stream is live, pinned and priority consumers come back.
func TestConsumers(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	js := newJetStream(t, nc)
	stream := create(t, nc, jetstream.StreamConfig{})
	for range 20 {
		publish(t, nc, stream+".a", "x")
	}
	later, soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second), time.Now().Add(3*time.Second).UTC()
	for _, c := range []jetstream.ConsumerConfig{
		{Durable: "paused", PauseUntil: &later},
		{Durable: "soon", PauseUntil: &soon},
		{Durable: "pinned", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"}, PinnedTTL: time.Minute},
		{Durable: "overflow", PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"g"}},
		{Name: "ephemeral", InactiveThreshold: time.Hour},
		{Durable: "threshold", InactiveThreshold: time.Hour},
		{Durable: "replicas", Replicas: 1, MemoryStorage: true},
		{Durable: "metadata", Metadata: map[string]string{"team": "a"}, BackOff: []time.Duration{time.Minute, time.Hour}, MaxDeliver: 3},
		{Durable: "starts", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 7},
		{Durable: "new", DeliverPolicy: jetstream.DeliverNewPolicy},
		{Durable: "last", FilterSubject: stream + ".a", DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckAllPolicy},
		{Durable: "noack", AckPolicy: jetstream.AckNonePolicy},
	} {
		if c.AckPolicy == 0 && c.Durable != "noack" {
			c.AckPolicy = jetstream.AckExplicitPolicy
		}
		must(js.CreateConsumer(ctx(t), stream, c))(t)
	}
	ackEvery(t, nc, stream, "last", 5, 1)
	// Somebody listens on the deliver subject all the time.
	inbox := must(nc.SubscribeSync("deliver." + stream))(t)
	push := must(js.CreatePushConsumer(ctx(t), stream, jetstream.ConsumerConfig{
		Durable: "push", DeliverSubject: "deliver." + stream, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour,
	}))(t)
	_ = push
	for range 20 {
		m := must(inbox.NextMsg(5 * time.Second))(t)
		check(t, m.Ack())
	}
	testnats.Eventually(t, func() error {
		if i := must(client(t, nc).ConsumerInfo(ctx(t), stream, "push"))(t); i.AckFloor.Consumer != 20 {
			return fmt.Errorf("ack floor %d", i.AckFloor.Consumer)
		}
		return nil
	})
	// One message more, that the push consumer hasn't delivered.
	check(t, inbox.Unsubscribe())
	testnats.Eventually(t, func() error {
		if must(client(t, nc).ConsumerInfo(ctx(t), stream, "push"))(t).PushBound {
			return errors.New("still bound")
		}
		return nil
	})
	publish(t, nc, stream+".a", "undelivered")
	before := testnats.DumpConsumers(t, nc, stream)
	b := take(t, nc, stream)
	remove(t, nc, stream)

	inbox = must(nc.SubscribeSync("deliver." + stream))(t)
	check(t, nc.Flush())
	staged := 0
	p := must(restore.Prepare(ctx(t), nc, b, restore.Options{Progress: func(s restore.Progress) {
		if s.Phase == restore.PhaseCheck {
			n, _, _ := inbox.Pending()
			staged += n
		}
	}}))(t)
	must(restore.Run(ctx(t), nc, p))(t)
	if staged > 0 {
		t.Errorf("%d messages were delivered before the activation", staged)
	}
	if m := must(inbox.NextMsg(5 * time.Second))(t); string(m.Data) != "undelivered" {
		t.Errorf("delivered: %q", m.Data)
	}
	check(t, inbox.Unsubscribe())
	after := testnats.DumpConsumers(t, nc, stream)
	drop := func(cs []testnats.Consumer) []testnats.Consumer {
		return slices.DeleteFunc(cs, func(c testnats.Consumer) bool { return c.Name == "push" || c.Name == "soon" })
	}
	same(t, "consumers", drop(before), drop(after))
	for _, e := range p.Expected.Consumers {
		if want := e.Name == "paused" || e.Name == "soon"; e.Paused != want {
			t.Errorf("the plan says of %s: paused %v", e.Name, e.Paused)
		}
	}
	until(soon.Add(200 * time.Millisecond))
	if i := must(client(t, nc).ConsumerInfo(ctx(t), stream, "soon"))(t); i.Paused {
		t.Errorf("its pause is over: %+v", i)
	}
}

func TestNoConsumers(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 50, Consumers: true})
	before := testnats.Dump(t, nc, stream)
	b := take(t, nc, stream)
	remove(t, nc, stream)
	p, res := mustRun(t, nc, b, restore.Options{NoConsumers: true, FullCheck: true})
	finding(t, p, "consumers", restore.Warning, "8 consumers are left out")
	if res.Consumers != 0 || len(p.Expected.Consumers) != 0 || len(testnats.DumpConsumers(t, nc, stream)) != 0 {
		t.Errorf("%d consumers", res.Consumers)
	}
	same(t, "messages", before, testnats.Dump(t, nc, stream))
}

// C13: what this version doesn't know survives; what the server doesn't know is
// refused by name.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := create(t, nc, jetstream.StreamConfig{Metadata: map[string]string{"owner": "me", "jetkeeper": "kept"}})
	publish(t, nc, stream+".a", "x")
	dir := t.TempDir() + "/plain"
	plain(t, nc, stream, dir)
	want := testnats.StreamConfig(t, nc, stream)
	remove(t, nc, stream)
	editConfig(t, dir, func(o *format.Object) { o.Set("flux_capacitor", 88) })
	b := must(repo.OpenPlain(dir))(t)
	before := everything(t, nc)
	p, _, err := run(t, nc, b, restore.Options{})
	var r *restore.Refused
	if !errors.As(err, &r) || !strings.Contains(err.Error(), "flux_capacitor") || r.Findings[0].Check != "server" {
		t.Fatal(err)
	}
	if !p.Config.Has("flux_capacitor") {
		t.Error("the plan has lost a field")
	}
	same(t, "the account", before, everything(t, nc))
	editConfig(t, dir, func(o *format.Object) { o.Delete("flux_capacitor") })
	mustRun(t, nc, must(repo.OpenPlain(dir))(t), restore.Options{})
	same(t, "configuration", want, testnats.StreamConfig(t, nc, stream))
}

// plain backs a stream up into a directory of its own, without manifest.
func plain(t testing.TB, nc *nats.Conn, stream, dir string) {
	t.Helper()
	b := take(t, nc, stream)
	check(t, os.MkdirAll(dir, 0o700))
	for _, name := range []string{format.BackupFileName, format.ArchiveV2Name} {
		check(t, os.WriteFile(filepath.Join(dir, name), must(os.ReadFile(filepath.Join(b.Location(), name)))(t), 0o600))
	}
}

// editConfig changes the configuration in a backup.json.
func editConfig(t testing.TB, dir string, f func(*format.Object)) {
	t.Helper()
	path := filepath.Join(dir, format.BackupFileName)
	b := must(format.ParseBackupFile(must(os.ReadFile(path))(t)))(t)
	f(&b.Config)
	check(t, os.WriteFile(path, must(json.Marshal(b))(t), 0o600))
}

// An archive that the nats CLI made restores.
func TestRestoresWhatThePeerBackedUp(t *testing.T) {
	t.Parallel()
	peer := testnats.Peer(t)
	s := testnats.Single(t)
	nc := s.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 200, Consumers: true})
	before := look(t, nc, stream)
	dir := t.TempDir() + "/peer"
	cmd := exec.Command(peer, "--server", s.URL(), "stream", "backup", stream, dir, "--no-progress")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "NATS_CONTEXT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	remove(t, nc, stream)
	p, _ := mustRun(t, nc, must(repo.OpenPlain(dir))(t), restore.Options{FullCheck: true})
	if p.Source.ID != "" {
		t.Errorf("%+v", p.Source)
	}
	same(t, stream, before, look(t, nc, stream))
}
