package restore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// object makes a configuration.
func object(t testing.TB, fields map[string]any) format.Object {
	t.Helper()
	return must(format.ParseObject(must(json.Marshal(fields))(t)))(t)
}

// made is a backup of a file stream with messages of any age, in a directory.
func made(t testing.TB, cfg map[string]any, messages ...stored) *repo.Backup {
	t.Helper()
	st := format.State{FirstSeq: 1, LastSeq: uint64(len(messages)), Messages: uint64(len(messages))}
	for i := range messages {
		m := &messages[i]
		m.Seq = uint64(i + 1)
		fm := format.Message{Subject: []byte(m.Subject), Header: []byte(m.Header), Payload: []byte(m.Payload)}
		st.Bytes += fm.StoreSize()
	}
	if n := len(messages); n > 0 {
		st.FirstTime, st.LastTime = time.Unix(0, messages[0].Time).UTC(), time.Unix(0, messages[n-1].Time).UTC()
	}
	full := map[string]any{
		"retention": "limits", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1,
		"max_msg_size": -1, "discard": "old", "storage": "file", "num_replicas": 1, "duplicate_window": 120_000_000_000,
	}
	for k, v := range cfg {
		full[k] = v
	}
	if full["subjects"] == nil {
		full["subjects"] = []string{full["name"].(string) + ".>"}
	}
	dir := t.TempDir()
	c := contents{head: format.Head{State: st}, messages: messages}
	check(t, os.WriteFile(filepath.Join(dir, format.ArchiveV2Name), c.encode(t), 0o600))
	file := format.BackupFile{Config: object(t, full), State: must(json.Marshal(st))(t)}
	check(t, os.WriteFile(filepath.Join(dir, format.BackupFileName), must(json.Marshal(file))(t), 0o600))
	return must(repo.OpenPlain(dir))(t)
}

// some makes n messages on subjects of a stream in turn, so old.
func some(stream string, n, subjects int, age time.Duration) []stored {
	out := make([]stored, n)
	for i := range out {
		out[i] = stored{
			Subject: fmt.Sprintf("%s.%d", stream, i%subjects),
			Time:    time.Now().Add(-age).UnixNano() + int64(i),
			Payload: strings.Repeat("x", i%50),
		}
	}
	return out
}

// R4, R5 and more: the target's limits are reckoned with. Refused without
// consent; with it, the result is what the plan says.
func TestLossByLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits map[string]any
		kept   uint64 // of 1,000, of which 900 are two hours old, on 20 subjects
		words  []string
	}{
		"max_age":              {map[string]any{"max_age": time.Hour}, 100, []string{"900 of 1000", "max_age"}},
		"max_msgs":             {map[string]any{"max_msgs": 10}, 10, []string{"990 of 1000", "max_msgs is 10"}},
		"max_msgs_per_subject": {map[string]any{"max_msgs_per_subject": 3}, 60, []string{"940 of 1000", "max_msgs_per_subject 3"}},
		"age and messages":     {map[string]any{"max_age": time.Hour, "max_msgs": 500}, 100, []string{"900 of 1000"}},
		"subject and messages": {map[string]any{"max_msgs_per_subject": 10, "max_msgs": 150}, 150, []string{"850 of 1000"}},
		"subject and age":      {map[string]any{"max_msgs_per_subject": 10, "max_age": time.Hour}, 100, []string{"900 of 1000"}},
		"subject, age, bytes":  {map[string]any{"max_msgs_per_subject": 4, "max_age": time.Hour, "max_bytes": 2000}, 0, []string{"max_bytes is 2000"}},
		"max_bytes":            {map[string]any{"max_bytes": 10_000}, 0, []string{"max_bytes is 10000"}},
		"in memory":            {map[string]any{"max_bytes": 10_000, "storage": "memory"}, 0, []string{"max_bytes is 10000"}},
		"none in memory":       {map[string]any{"max_age": time.Hour, "storage": "memory"}, 100, []string{"900 of 1000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := testnats.Single(t).Connect(t)
			stream := testnats.Name(t)
			b := made(t, map[string]any{"name": stream}, append(some(stream, 900, 20, 2*time.Hour), some(stream, 100, 20, time.Minute)...)...)
			c.limits["name"], c.limits["subjects"] = stream, []string{stream + ".>"}
			cfg := object(t, c.limits)
			refused(t, nc, b, restore.Options{Config: &cfg}, "loss", append(c.words, "--accept-loss")...)
			p, _ := mustRun(t, nc, b, restore.Options{Config: &cfg, AcceptLoss: true})
			finding(t, p, "loss", restore.Warning, c.words...)
			e := p.Expected
			if e.Messages != 1000 || e.Lost+e.Kept != 1000 || c.kept != 0 && e.Kept != c.kept {
				t.Errorf("%+v", e)
			}
			if got := testnats.Dump(t, nc, stream); uint64(len(got.Messages)) != e.Kept || got.LastSeq != 1000 {
				t.Errorf("%d messages up to %d, the plan says %+v", len(got.Messages), got.LastSeq, e)
			}
		})
	}
}

// The prediction holds for any limits.
func TestLossByRandomLimits(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	rnd := rand.New(rand.NewPCG(7, 11))
	for i := range 15 {
		stream := testnats.Name(t)
		var messages []stored
		for j := range 120 {
			messages = append(messages, stored{
				Subject: fmt.Sprintf("%s.%d", stream, rnd.IntN(6)),
				Time:    time.Now().Add(-time.Duration(120-j) * time.Minute).UnixNano(),
				Payload: strings.Repeat("x", rnd.IntN(200)),
			})
		}
		limits := map[string]any{"name": stream, "subjects": []string{stream + ".>"}, "storage": []string{"file", "memory"}[i%2]}
		for _, l := range []struct {
			field string
			v     any
		}{
			{"max_age", (time.Duration(rnd.IntN(120))*time.Minute + 30*time.Second)}, {"max_msgs", 1 + rnd.IntN(120)},
			{"max_bytes", 300 + rnd.IntN(15000)}, {"max_msgs_per_subject", 1 + rnd.IntN(25)},
		} {
			if rnd.IntN(2) == 0 {
				limits[l.field] = l.v
			}
		}
		cfg := object(t, limits)
		p, res, err := run(t, nc, made(t, map[string]any{"name": stream}, messages...), restore.Options{Config: &cfg, AcceptLoss: true})
		if err != nil || res.State.Messages != p.Expected.Kept || len(res.Warnings) > 0 {
			t.Errorf("%v: %v: %+v, the plan says %+v", limits, err, res, p.Expected)
		}
	}
}

// With discard new the stream is kept whole, and then refuses publishes.
func TestDiscardNewKeeps(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	for name, limits := range map[string]map[string]any{
		"max_msgs":  {"max_msgs": 10},
		"max_bytes": {"max_bytes": 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := s.Connect(t)
			stream := testnats.Name(t)
			limits["name"], limits["subjects"], limits["discard"] = stream, []string{stream + ".>"}, "new"
			cfg := object(t, limits)
			p, res := mustRun(t, nc, made(t, map[string]any{"name": stream}, some(stream, 200, 5, time.Minute)...), restore.Options{Config: &cfg, FullCheck: true})
			finding(t, p, "loss", restore.OK, "200")
			if res.State.Messages != 200 {
				t.Errorf("%d messages", res.State.Messages)
			}
			if _, err := tryPublish(t, nc, stream+".1", "x"); err == nil {
				t.Error("a publish was accepted")
			}
		})
	}
}

// Every finding of preflight that refuses, on a server without limits.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t, testnats.Options{MaxPayload: 64 << 10})
	nc := s.Connect(t)
	live := create(t, nc, jetstream.StreamConfig{Subjects: []string{"live.>"}})
	publish(t, nc, "live.x", "x")
	config := func(fields map[string]any) *format.Object {
		o := object(t, fields)
		return &o
	}
	large := append(some("big", 5, 1, 0), stored{Subject: "big.huge", Header: "NATS/1.0\r\nA: b\r\n\r\n", Payload: strings.Repeat("x", 70<<10), Time: time.Now().UnixNano()})
	k := func(fields map[string]any) map[string]any {
		fields["name"] = "T"
		return fields
	}
	for name, c := range map[string]struct {
		b     *repo.Backup
		o     restore.Options
		check string
		words []string
	}{
		"occupied": {made(t, map[string]any{"name": live}, some(live, 3, 1, 0)...), restore.Options{}, "target", []string{"target stream not empty: 1 messages"}},
		"uncovered by another configuration": {made(t, k(map[string]any{}), some("T", 10, 3, 0)...), restore.Options{Config: config(map[string]any{"subjects": []string{"T.1", "else"}})},
			"subjects", []string{"7 messages", "T.0 (4)", "T.2 (3)"}},
		"uncovered by --subjects": {made(t, k(map[string]any{}), some("T", 10, 3, 0)...), restore.Options{Subjects: []string{"T.*.more"}}, "subjects", []string{"10 messages"}},
		"overlap": {made(t, k(map[string]any{"subjects": []string{"live.a", "own"}}), stored{Subject: "live.a"}), restore.Options{},
			"subject-overlap", []string{"live.a with live.> of stream " + live}},
		"overlap of a clone's own subjects": {made(t, k(map[string]any{}), some("T", 1, 1, 0)...), restore.Options{As: "U", Subjects: []string{"live.*", "T.>"}}, "subject-overlap", []string{"live.* with live.>"}},
		"replicas":                          {made(t, k(map[string]any{"num_replicas": 3})), restore.Options{}, "replicas", []string{"num_replicas 3", "single server"}},
		"replicas asked for":                {made(t, k(map[string]any{})), restore.Options{Replicas: 5}, "replicas", []string{"num_replicas 5"}},
		"API level":                         {made(t, k(map[string]any{"metadata": map[string]string{"_nats.req.level": "99"}})), restore.Options{}, "api-level", []string{"level 99"}},
		"max_payload":                       {made(t, map[string]any{"name": "big"}, large...), restore.Options{}, "message-size", []string{"sequence 6", "big.huge", "71698 bytes", "max_payload is 65536"}},
		"max_msg_size":                      {made(t, k(map[string]any{}), some("T", 50, 1, 0)...), restore.Options{Config: config(map[string]any{"subjects": []string{"T.>"}, "max_msg_size": 40})}, "message-size", []string{"sequence 50", "T.0", "49 bytes", "max_msg_size is 40", "9 messages are larger"}},
		"interest":                          {made(t, k(map[string]any{"retention": "interest"}), some("T", 7, 1, 0)...), restore.Options{}, "interest", []string{"7 messages", "--accept-loss"}},
		"V1 is for the future":              {v1(t), restore.Options{}, "format", []string{"V1"}},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, nc, c.b, c.o, c.check, c.words...)
		})
	}
	// One that fits the limits is restored.
	mustRun(t, nc, made(t, map[string]any{"name": "fits"}, large[:5]...), restore.Options{Subjects: []string{"big.>"}})
}

// v1 is a backup in the format of servers before 2.15.
func v1(t testing.TB) *repo.Backup {
	t.Helper()
	dir := t.TempDir()
	b := format.BackupFile{Config: object(t, map[string]any{"name": "OLD"}), State: []byte(`{"messages":0}`)}
	check(t, os.WriteFile(filepath.Join(dir, format.BackupFileName), must(json.Marshal(b))(t), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, format.ArchiveV1Name), []byte("anything"), 0o600))
	return must(repo.OpenPlain(dir))(t)
}

// The stream's own configuration need not cover its old messages.
func TestUncoveredByItsOwnConfiguration(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	p, res := mustRun(t, nc, made(t, map[string]any{"name": "T", "subjects": []string{"now.>"}}, append(some("old", 9, 2, 0), some("now", 3, 1, 0)...)...), restore.Options{FullCheck: true})
	finding(t, p, "subjects", restore.Warning, "9 messages", "old.0 (5), old.1 (4)")
	if res.State.Messages != 12 {
		t.Errorf("%+v", res.State)
	}
}

func TestInterestWithoutConsumers(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	p, _ := mustRun(t, nc, made(t, map[string]any{"name": "T", "retention": "interest"}, some("T", 7, 1, 0)...), restore.Options{AcceptLoss: true})
	finding(t, p, "interest", restore.Warning, "7 messages")
}

// What only informs.
func TestWarnings(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	cfg := map[string]any{"name": "T", "placement": map[string]any{"cluster": "C1", "tags": []string{"a"}}}
	p := prepare(t, nc, made(t, cfg), restore.Options{})
	finding(t, p, "placement", restore.Warning, "single server")
	p = prepare(t, nc, made(t, cfg), restore.Options{PlacementTags: []string{""}})
	if p.Config.Has("placement") {
		t.Error("the placement stays")
	}
	p = prepare(t, nc, made(t, cfg), restore.Options{PlacementCluster: "C2", PlacementTags: []string{"x", "y"}, Replicas: 1, Storage: "memory"})
	if got := string(must(json.Marshal(p.Config.Raw("placement")))(t)); got != `{"cluster":"C2","tags":["x","y"]}` || string(p.Config.Raw("storage")) != `"memory"` {
		t.Errorf("%s %s", got, p.Config.Raw("storage"))
	}
	p = prepare(t, nc, made(t, map[string]any{"name": "$MQTT_msgs"}), restore.Options{})
	finding(t, p, "mqtt", restore.Warning, "together")
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 50, Consumers: true})
	b := take(t, nc, stream)
	remove(t, nc, stream)
	b.Manifest.MissingConsumers = []string{"lost"}
	finding(t, prepare(t, nc, b, restore.Options{}), "consumers", restore.Warning, "lost")
}

// The account's limits, one account for each.
func TestAccountLimits(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t, testnats.Options{Accounts: []testnats.Account{
		{Name: "free"}, {Name: "storage", MaxStore: 20_000}, {Name: "memory", MaxMemory: 20_000},
		{Name: "streams", MaxStreams: 1}, {Name: "consumers", MaxConsumers: 2}, {Name: "pending", MaxAckPending: 50},
		{Name: "required", MaxBytesRequired: true}, {Name: "each", StoreMaxStreamBytes: 20_000}, {Name: "eachmem", MemoryMaxStreamBytes: 20_000},
	}})
	free := s.Connect(t, userInfo("free"))
	stream := testnats.Fill(t, free, testnats.FillOptions{Messages: 150, Consumers: true})
	b := take(t, free, stream)
	for _, c := range []struct {
		account string
		o       restore.Options
		check   string
		words   []string
	}{
		{"storage", restore.Options{}, "storage", []string{"for 1 replicas", "may hold 20000"}},
		{"memory", restore.Options{Storage: "memory"}, "storage", []string{"may hold 20000"}},
		{"streams", restore.Options{}, "streams", []string{"has 1 streams and may have 1"}},
		{"consumers", restore.Options{}, "consumers", []string{"8 consumers", "may have 2"}},
		{"pending", restore.Options{}, "consumers", []string{`"odd" has max_ack_pending 100`, "allows 50"}},
		{"required", restore.Options{}, "max-bytes", []string{"requires max_bytes"}},
		{"each", restore.Options{}, "max-bytes", []string{"allows 20000 a stream"}},
		{"eachmem", restore.Options{Storage: "memory"}, "max-bytes", []string{"allows 20000 a stream"}},
	} {
		t.Run(c.account, func(t *testing.T) {
			nc := s.Connect(t, userInfo(c.account))
			if c.account == "streams" {
				create(t, nc, jetstream.StreamConfig{})
			}
			refused(t, nc, b, c.o, c.check, c.words...)
		})
	}
	// Where there's room it's restored, with max_bytes staged where it's required.
	nc := s.Connect(t, userInfo("required"))
	o := must(b.BackupFile(ctx(t)))(t).Config
	o.Set("max_bytes", 500_000)
	mustRun(t, nc, b, restore.Options{Config: &o, FullCheck: true})
	remove(t, nc, stream)
	o.Set("max_bytes", 10_000) // less than the archive
	p, res := mustRun(t, nc, b, restore.Options{Config: &o, AcceptLoss: true})
	same(t, "kept", p.Expected.Kept, res.State.Messages)
	mustRun(t, s.Connect(t, userInfo("consumers")), b, restore.Options{NoConsumers: true})
}

// The configuration's own limits of consumers.
func TestConsumerLimitsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 50, Consumers: true})
	b := take(t, nc, stream)
	remove(t, nc, stream)
	for _, c := range []struct {
		field string
		value any
		words []string
	}{
		{"max_consumers", 3, []string{"8 consumers, and max_consumers is 3"}},
		{"consumer_limits", map[string]any{"max_ack_pending": 50}, []string{`"odd"`, "100", "allows 50"}},
		{"consumer_limits", map[string]any{"inactive_threshold": time.Minute}, []string{"1h0m0s", "allow 1m0s"}},
	} {
		cfg := must(b.BackupFile(ctx(t)))(t).Config
		cfg.Set(c.field, c.value)
		refused(t, nc, b, restore.Options{Config: &cfg}, "consumers", c.words...)
	}
}

// An empty target keeps its configuration; it's put back when the restore fails
// and when the server refuses.
func TestEmptyTarget(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	nc := s.Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 50, Consumers: true})
	before := look(t, nc, stream)
	h, b := inMemory(t, nc, stream)
	remove(t, nc, stream)
	create(t, nc, jetstream.StreamConfig{Name: stream, Description: "made by an application", Subjects: []string{stream + ".>"}, MaxMsgs: 10_000, Metadata: map[string]string{"a": "b"}})
	empty := testnats.StreamConfig(t, nc, stream)

	t.Run("the restore fails", func(t *testing.T) {
		p := prepare(t, nc, b, restore.Options{})
		if p.Target.Existing != restore.TargetEmpty {
			t.Fatal(p.Target.Existing)
		}
		finding(t, p, "target", restore.Warning, "configuration is kept")
		good := h.objects[h.archive()]
		bad := append([]byte{}, good...)
		bad[len(bad)-5] ^= 1
		h.objects[h.archive()] = bad
		_, err := restore.Run(ctx(t), nc, p)
		h.objects[h.archive()] = good
		var failed *restore.TransferError
		if !errors.As(err, &failed) {
			t.Error(err)
		}
		same(t, "configuration", empty, testnats.StreamConfig(t, nc, stream))
		if c := testnats.Dump(t, nc, stream); c.LastSeq != 0 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("the server refuses", func(t *testing.T) {
		cfg := object(t, map[string]any{"name": stream, "subjects": []string{stream + ".>"}, "warp_factor": 9})
		_, _, err := run(t, nc, b, restore.Options{Config: &cfg})
		var r *restore.Refused
		if !errors.As(err, &r) || !strings.Contains(err.Error(), "warp_factor") {
			t.Error(err)
		}
		same(t, "configuration", empty, testnats.StreamConfig(t, nc, stream))
	})
	t.Run("it isn't empty any more", func(t *testing.T) {
		p := prepare(t, nc, b, restore.Options{})
		publish(t, nc, stream+".x", "x")
		_, err := restore.Run(ctx(t), nc, p)
		var r *restore.Refused
		if !errors.As(err, &r) || !strings.Contains(err.Error(), "not empty any more: 1 messages") {
			t.Error(err)
		}
		if c := testnats.Dump(t, nc, stream); len(c.Messages) != 1 {
			t.Errorf("%+v", c)
		}
		remove(t, nc, stream)
		create(t, nc, jetstream.StreamConfig{Name: stream, Description: "made by an application", Subjects: []string{stream + ".>"}, MaxMsgs: 10_000, Metadata: map[string]string{"a": "b"}})
	})
	t.Run("it's replaced", func(t *testing.T) {
		mustRun(t, nc, b, restore.Options{FullCheck: true})
		same(t, "configuration", empty, testnats.StreamConfig(t, nc, stream))
		same(t, "messages", before.Contents, testnats.Dump(t, nc, stream))
		same(t, "consumers", before.Consumers, testnats.DumpConsumers(t, nc, stream))
	})
}

// A stream that has consumers, or had messages, isn't empty.
func TestNotQuiteEmptyTargets(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	js := newJetStream(t, nc)
	stream := create(t, nc, jetstream.StreamConfig{})
	publish(t, nc, stream+".x", "x")
	b := take(t, nc, stream)
	check(t, must(js.Stream(ctx(t), stream))(t).Purge(ctx(t)))
	refused(t, nc, b, restore.Options{}, "target", "target stream not empty: 0 messages, last sequence 1")
	remove(t, nc, stream)
	create(t, nc, jetstream.StreamConfig{Name: stream})
	must(js.CreateConsumer(ctx(t), stream, jetstream.ConsumerConfig{Durable: "c"}))(t)
	refused(t, nc, b, restore.Options{}, "target", "1 consumers")
}

// A clone next to the live stream reaches out to nothing.
func TestCloneNextToTheLiveStream(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	name := testnats.Name(t)
	create(t, nc, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, RePublish: &jetstream.RePublish{Source: ">", Destination: "again.>"}})
	testnats.Fill(t, nc, testnats.FillOptions{Stream: name, Messages: 50, Consumers: true})
	inbox := must(nc.SubscribeSync("deliver." + name))(t)
	testnats.Eventually(t, func() error {
		if n, _, _ := inbox.Pending(); n < 30 {
			return fmt.Errorf("%d delivered", n)
		}
		return nil
	})
	check(t, inbox.Unsubscribe())
	before := look(t, nc, name)
	b := take(t, nc, name)
	inbox = must(nc.SubscribeSync("deliver." + name))(t)
	check(t, inbox.Unsubscribe())

	as := name + "_clone"
	p, _ := mustRun(t, nc, b, restore.Options{As: as, FullCheck: true})
	finding(t, p, "subject-overlap", restore.Warning, name+".> with "+name+".> of stream "+name, "--subjects")
	finding(t, p, "clone", restore.Warning, "no republish", "push consumers stay paused")
	clone := look(t, nc, as)
	same(t, "messages", before.Contents, clone.Contents)
	if clone.Config["republish"] != nil || fmt.Sprint(clone.Config["subjects"]) != "[_jetkeep."+p.RestoreID+"]" {
		t.Errorf("%v", clone.Config)
	}
	for i, c := range clone.Consumers {
		if c.Paused != (c.Name == "push" || c.Name == "paused") {
			t.Errorf("%s is paused: %v", c.Name, c.Paused)
		}
		if c.Delivered != before.Consumers[i].Delivered || c.AckFloor != before.Consumers[i].AckFloor {
			t.Errorf("%+v", c)
		}
	}
	publish(t, nc, name+".x", "only to the live one")
	if got := testnats.Dump(t, nc, as); got.LastSeq != before.Contents.LastSeq {
		t.Error("the clone takes publishes")
	}
	// With subjects of its own it takes publishes there; what covers its messages
	// overlaps with the live stream, so it has to be a plan without them.
	if _, err := restore.Prepare(ctx(t), nc, b, restore.Options{As: as + "2", Subjects: []string{"elsewhere.>"}}); err != nil {
		t.Error(err)
	}
}

// A1, digests: what doesn't belong together isn't restored.
func TestBackupsThatDontBelongTogether(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	s1, age := testnats.Fill(t, nc, testnats.FillOptions{Messages: 30}), testnats.Fill(t, nc, testnats.FillOptions{Messages: 40})
	for _, withManifest := range []bool{false, true} {
		dir := t.TempDir() + "/plain"
		plain(t, nc, s1, dir)
		other := take(t, nc, age)
		archive := must(os.ReadFile(filepath.Join(other.Location(), format.ArchiveV2Name)))(t)
		check(t, os.WriteFile(filepath.Join(dir, format.ArchiveV2Name), archive, 0o600))
		if withManifest { // the other's, but for what repo itself checks
			own := take(t, nc, s1)
			m := *own.Manifest
			m.Objects[0].Bytes = int64(len(archive))
			check(t, os.WriteFile(filepath.Join(dir, format.BackupFileName), must(os.ReadFile(filepath.Join(own.Location(), format.BackupFileName)))(t), 0o600))
			check(t, os.WriteFile(filepath.Join(dir, format.ManifestName), must(json.Marshal(m))(t), 0o600))
		}
		before := everything(t, nc)
		_, err := restore.Prepare(ctx(t), nc, must(repo.OpenPlain(dir))(t), restore.Options{As: "X"})
		if !errors.Is(err, format.ErrMismatch) {
			t.Errorf("with a manifest %v: %v", withManifest, err)
		}
		same(t, "the account", before, everything(t, nc))
	}
	// A sound archive with the right figures and another digest than the
	// manifest's.
	h, b := inMemory(t, nc, s1)
	archive := h.objects[h.archive()]
	h.objects[h.archive()] = append(append([]byte{}, archive...), format.Padding...)
	b.Manifest.Objects[0].Bytes += int64(len(format.Padding))
	if _, err := restore.Prepare(ctx(t), nc, b, restore.Options{As: "X"}); !errors.Is(err, format.ErrMismatch) || !strings.Contains(err.Error(), "SHA-256") {
		t.Error(err)
	}
}

// A5: a file stream's V2 archive into memory, and back.
func TestStorageIsOverridden(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 100, Consumers: true})
	before := look(t, nc, stream)
	for _, storage := range []string{"memory", "file"} {
		b := take(t, nc, stream)
		remove(t, nc, stream)
		mustRun(t, nc, b, restore.Options{Storage: storage, FullCheck: true})
		before.Config["storage"] = storage
		same(t, storage, before, look(t, nc, stream))
	}
}

// A5: a V2 archive for a server that is too old.
func TestOldServers(t *testing.T) {
	t.Parallel()
	src := testnats.Single(t).Connect(t)
	b := take(t, src, testnats.Fill(t, src, testnats.FillOptions{Messages: 20}))
	for _, version := range []string{"2.14.9", "2.12.15"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			old := testnats.Process(t, testnats.ServerBinary(t, version)).Connect(t)
			create(t, old, jetstream.StreamConfig{})
			refused(t, old, b, restore.Options{}, "version", version, "2.15 or later")
		})
	}
}
