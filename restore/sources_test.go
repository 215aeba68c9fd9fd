package restore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// count waits until a stream holds n messages, and makes sure that it stays so:
// what is sourced twice comes at once or never.
func count(t testing.TB, nc *nats.Conn, stream string, n uint64) {
	t.Helper()
	testnats.Eventually(t, func() error {
		if got := must(client(t, nc).StreamInfo(ctx(t), stream))(t).State.Messages; got < n {
			return fmt.Errorf("%s has %d messages of %d", stream, got, n)
		}
		return nil
	})
	if got := must(client(t, nc).StreamInfo(ctx(t), stream))(t).State.Messages; got != n {
		t.Errorf("%s has %d messages instead of %d", stream, got, n)
	}
}

// connected waits until a stream has reached its sources and read them.
func connected(t testing.TB, nc *nats.Conn, stream string) {
	t.Helper()
	testnats.Eventually(t, func() error {
		info := must(client(t, nc).StreamInfo(ctx(t), stream))(t)
		for _, s := range info.Sources {
			if s.Active < 0 || s.Lag > 0 || s.Error != nil {
				return fmt.Errorf("%s: %+v", stream, s)
			}
		}
		return nil
	})
}

// aggregate makes two origins with messages and a stream that sources from both,
// one of them filtered and transformed.
func aggregate(t testing.TB, nc *nats.Conn) (one, two, agg string) {
	t.Helper()
	one, two, agg = create(t, nc, jetstream.StreamConfig{}), create(t, nc, jetstream.StreamConfig{}), testnats.Name(t)
	create(t, nc, jetstream.StreamConfig{Name: agg, Subjects: []string{agg + ".own"}, Sources: []*jetstream.StreamSource{
		{Name: one},
		{Name: two, SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: two + ".a", Destination: "moved." + agg + ".a"}}},
	}})
	for i := range 50 {
		publish(t, nc, one+".x", fmt.Sprint(i))
		publish(t, nc, two+".a", fmt.Sprint(i))
		publish(t, nc, two+".b", fmt.Sprint(i))
	}
	publish(t, nc, agg+".own", "own")
	count(t, nc, agg, 101)
	return one, two, agg
}

// The origins are still there: everything is sourced exactly once.
func TestAggregateNextToItsOrigins(t *testing.T) {
	t.Parallel()
	s := testnats.Single(t)
	nc := s.Connect(t)
	one, two, agg := aggregate(t, nc)
	b := take(t, nc, agg)
	before := look(t, nc, agg)
	remove(t, nc, agg)
	publish(t, nc, one+".x", "missed")
	p, _ := mustRun(t, nc, b, restore.Options{FullCheck: true})
	finding(t, p, "source", restore.OK, one, "exists")
	finding(t, p, "source", restore.OK, two, "exists")
	if p.Rewrite {
		t.Error("needlessly rewritten")
	}
	same(t, "configuration", before.Config, testnats.StreamConfig(t, nc, agg))
	count(t, nc, agg, 102)
	publish(t, nc, two+".a", "new")
	count(t, nc, agg, 103)
}

// On a new server the origins are restored first, or last; in the end everything
// is there exactly once, the configuration is as it was, and a restart changes
// nothing.
func TestAggregateOnANewServer(t *testing.T) {
	t.Parallel()
	for _, originsFirst := range []bool{true, false} {
		for _, storage := range []string{"file", "memory"} {
			t.Run(fmt.Sprint("origins first ", originsFirst, " ", storage), func(t *testing.T) {
				t.Parallel()
				old := testnats.Single(t).Connect(t)
				one, two, agg := aggregate(t, old)
				want := testnats.StreamConfig(t, old, agg)
				bOne, bTwo, bAgg := take(t, old, one), take(t, old, two), take(t, old, agg)

				s := testnats.Single(t)
				nc := s.Connect(t)
				origins := func() {
					mustRun(t, nc, bOne, restore.Options{FullCheck: true})
					mustRun(t, nc, bTwo, restore.Options{FullCheck: true})
				}
				if originsFirst {
					origins()
				}
				p, _ := mustRun(t, nc, bAgg, restore.Options{FullCheck: true, Storage: storage})
				if originsFirst {
					finding(t, p, "source", restore.OK, one, "created anew", "behind sequence 50")
					finding(t, p, "source", restore.OK, two, "created anew", "behind sequence 99")
				} else {
					finding(t, p, "source", restore.Warning, one, "doesn't exist", "behind sequence 50")
					origins()
				}
				want["storage"] = storage
				same(t, "configuration", want, testnats.StreamConfig(t, nc, agg))
				connected(t, nc, agg)
				count(t, nc, agg, 101)
				if storage == "file" {
					s.Restart(t)
					nc = s.Connect(t)
					connected(t, nc, agg)
					count(t, nc, agg, 101)
				}
				publish(t, nc, one+".x", "new")
				publish(t, nc, two+".a", "new")
				count(t, nc, agg, 103)
			})
		}
	}
}

// An origin that is new and holds less than was read of the old one: the server
// reads it from its beginning, and the plan says so.
func TestAggregateWithAShorterOrigin(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	one, _, agg := aggregate(t, nc)
	b := take(t, nc, agg)
	remove(t, nc, agg)
	remove(t, nc, one)
	create(t, nc, jetstream.StreamConfig{Name: one})
	publish(t, nc, one+".x", "new")
	p, _ := mustRun(t, nc, b, restore.Options{FullCheck: true})
	finding(t, p, "source", restore.Warning, one, "ends at sequence 1 of 50")
	count(t, nc, agg, 102)
}

// A source of which the backup holds nothing.
func TestAggregateThatHasNothingOfASource(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	one, _, agg := aggregate(t, nc)
	check(t, must(newJetStream(t, nc).Stream(ctx(t), agg))(t).Purge(ctx(t)))
	b := take(t, nc, agg)
	remove(t, nc, agg)
	p, _ := mustRun(t, nc, b, restore.Options{})
	finding(t, p, "source", restore.Warning, one, "no message", "again or not")
}

// Restoring an origin of a live aggregate: the plan says what will come of it.
func TestOriginOfALiveAggregate(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	one, _, agg := aggregate(t, nc)
	b := take(t, nc, one)
	remove(t, nc, one)
	p := prepare(t, nc, b, restore.Options{})
	finding(t, p, "readers", restore.Warning, agg, "opt_start_seq (51")
	// And its advice is right.
	update(t, nc, agg, map[string]any{"sources": []map[string]any{{"name": one, "opt_start_seq": 51}}})
	must(restore.Run(ctx(t), nc, p))(t)
	connected(t, nc, agg)
	count(t, nc, agg, 101)
	publish(t, nc, one+".x", "new")
	count(t, nc, agg, 102)
}

// A clone of an aggregate next to it sources nothing.
func TestCloneOfAnAggregate(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	one, _, agg := aggregate(t, nc)
	only := create(t, nc, jetstream.StreamConfig{Sources: []*jetstream.StreamSource{{Name: one}}})
	count(t, nc, only, 50)
	for _, stream := range []string{agg, only} {
		b := take(t, nc, stream)
		want := must(client(t, nc).StreamInfo(ctx(t), stream))(t).State.Messages
		p, _ := mustRun(t, nc, b, restore.Options{As: stream + "_copy", FullCheck: true})
		finding(t, p, "clone", restore.Warning, "no sources")
		cfg := testnats.StreamConfig(t, nc, stream+"_copy")
		if cfg["sources"] != nil || fmt.Sprint(cfg["subjects"]) != "[_jetkeep."+p.RestoreID+"]" {
			t.Errorf("%v", cfg)
		}
		publish(t, nc, one+".x", "new")
		count(t, nc, stream, want+1)
		count(t, nc, stream+"_copy", want)
	}
}

// C8: a mirror is restored directly, and goes on where it was.
func TestMirrors(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	origin := create(t, nc, jetstream.StreamConfig{})
	for i := range 50 {
		publish(t, nc, origin+".x", fmt.Sprint(i))
	}
	mirror := create(t, nc, jetstream.StreamConfig{Mirror: &jetstream.StreamSource{Name: origin}, MaxAge: time.Hour, MirrorDirect: true})
	count(t, nc, mirror, 50)
	must(newJetStream(t, nc).CreateConsumer(ctx(t), mirror, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour}))(t)
	ackEvery(t, nc, mirror, "c", 10, 3)
	before := look(t, nc, mirror)
	b := take(t, nc, mirror)
	bOrigin := take(t, nc, origin)

	t.Run("the origin is there", func(t *testing.T) {
		remove(t, nc, mirror)
		p, _ := mustRun(t, nc, b, restore.Options{FullCheck: true})
		finding(t, p, "staging", restore.Warning, "directly")
		finding(t, p, "mirror", restore.OK, origin)
		same(t, "mirror", before, look(t, nc, mirror))
	})
	t.Run("the origin has gone on", func(t *testing.T) {
		remove(t, nc, mirror)
		for range 5 {
			publish(t, nc, origin+".x", "more")
		}
		mustRun(t, nc, b, restore.Options{FullCheck: true})
		count(t, nc, mirror, 55)
		same(t, "configuration", before.Config, testnats.StreamConfig(t, nc, mirror))
	})
	t.Run("the origin is missing", func(t *testing.T) {
		remove(t, nc, mirror)
		remove(t, nc, origin)
		p, _ := mustRun(t, nc, b, restore.Options{FullCheck: true})
		finding(t, p, "mirror", restore.Warning, origin, "doesn't exist")
		same(t, "messages", before.Contents, testnats.Dump(t, nc, mirror))
	})
	t.Run("the origin comes back", func(t *testing.T) {
		mustRun(t, nc, bOrigin, restore.Options{})
		publish(t, nc, origin+".x", "more")
		count(t, nc, mirror, 51)
	})
	t.Run("the origin is shorter", func(t *testing.T) {
		remove(t, nc, mirror)
		remove(t, nc, origin)
		create(t, nc, jetstream.StreamConfig{Name: origin})
		publish(t, nc, origin+".x", "short")
		p, _ := mustRun(t, nc, b, restore.Options{FullCheck: true})
		finding(t, p, "mirror", restore.Warning, "ends at sequence 1", "the backup at 50", "stalls")
		same(t, "messages", before.Contents, testnats.Dump(t, nc, mirror))
	})
	t.Run("an empty one", func(t *testing.T) {
		empty := create(t, nc, jetstream.StreamConfig{Mirror: &jetstream.StreamSource{Name: "missing_" + origin}})
		b := take(t, nc, empty)
		remove(t, nc, empty)
		create(t, nc, jetstream.StreamConfig{Name: "missing_" + origin})
		publish(t, nc, "missing_"+origin+".x", "x")
		mustRun(t, nc, b, restore.Options{FullCheck: true})
		count(t, nc, empty, 1)
	})
}
