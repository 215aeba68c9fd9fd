package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/slowlink"
	"github.com/jetkeep/jetkeep/internal/testnats"
)

// killing is a stream with a backup, whose restores are killed.
type killing struct {
	bin, stream, dir string
	url, hostPort    string
	size             int64 // of the archive
	nc               *nats.Conn
	js               *jsapi.Client
	before           everythingOf
}

// newKilling fills a stream, backs it up and looks at it.
func newKilling(t *testing.T, bin string, srv *testnats.Server, o testnats.FillOptions, more func(nc *nats.Conn, stream string)) *killing {
	t.Helper()
	k := &killing{bin: bin, url: srv.URL(), hostPort: srv.HostPort(), nc: srv.Connect(t), dir: filepath.Join(t.TempDir(), "repo")}
	k.stream = testnats.Fill(t, k.nc, o)
	if more != nil {
		more(k.nc, k.stream)
	}
	if _, err := repo.InitDir(k.dir); err != nil {
		t.Fatal(err)
	}
	mustSucceed(t, bin, "backup", k.stream, "--repo", k.dir, "-s", k.url)
	archive, err := filepath.Glob(filepath.Join(k.dir, "*", "*", "stream.arc.s2"))
	if err != nil || len(archive) != 1 {
		t.Fatalf("archives %v, %v", archive, err)
	}
	stat, err := os.Stat(archive[0])
	if err != nil {
		t.Fatal(err)
	}
	k.size = stat.Size()
	k.before = see(t, k.nc, k.stream)
	js, err := jsapi.New(k.nc, jsapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(js.Close)
	k.js = js
	return k
}

func (k *killing) args(url string) []string {
	return []string{"restore", k.stream, "--repo", k.dir, "-s", url, "--chunk-size", "16KiB", "--window-size", "64KiB"}
}

func (k *killing) remove(t *testing.T) {
	t.Helper()
	if err := k.js.DeleteStream(background(t), k.stream); err != nil && !jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		t.Fatal(err)
	}
}

// exact checks that the stream is what it was.
func (k *killing) exact(t *testing.T, when string) {
	t.Helper()
	equal(t, when, k.before, see(t, k.nc, k.stream))
}

// large is a stream whose data are most of what goes over the line.
func large() testnats.FillOptions {
	return testnats.FillOptions{Messages: 300, Size: 8 << 10}
}

// killedRestore: kill -9 at ten places of a restore leaves nothing that
// clients can reach; the next run removes what is left, at once, and is exact
// (R2).
func killedRestore(t *testing.T, bin string) {
	k := newKilling(t, bin, testnats.Single(t), large(), addConsumers(t, 7))
	k.remove(t)
	whole := testnats.Proxy(t, k.hostPort, testnats.ProxyOptions{})
	mustSucceed(t, bin, k.args(whole.URL())...)
	k.exact(t, "a restore")
	total := whole.Forwarded(slowlink.Up)

	points, found := 10, 0
	if soak {
		points = 60
	}
	for i := 1; i <= points; i++ {
		k.remove(t)
		link := testnats.Proxy(t, k.hostPort, testnats.ProxyOptions{})
		v := newVictim()
		link.After(slowlink.Up, total*int64(i)/int64(points+1), func() {
			v.process().kill9()
			link.Cut()
		})
		if code := v.is(launch(t, bin, k.args(link.URL())...)).wait(t); code != -1 {
			t.Fatalf("point %d: it ended with %d: %s", i, code, v.p.err.String())
		}
		unreachable(t, k.nc, k.stream)
		next := mustSucceed(t, bin, k.args(k.url)...)
		if strings.Contains(next.err.String(), "was interrupted and left") {
			found++
		}
		k.exact(t, "after a kill")
	}
	if found == 0 {
		t.Error("no run has found what a killed one left")
	}
	t.Logf("%d of %d runs found something to remove", found, points)
}

// outlived: a server goes on with a killed run's restore for five seconds. What
// it then does mustn't reach the stream that the next run has restored under the
// same name: neither at once, nor once the server has been started again.
func outlived(t *testing.T, bin string) {
	srv := testnats.Single(t)
	k := newKilling(t, bin, srv, large(), addConsumers(t, 7))
	ended, err := k.nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE." + k.stream)
	if err != nil {
		t.Fatal(err)
	}
	k.remove(t)
	link := testnats.Proxy(t, k.hostPort, testnats.ProxyOptions{})
	v := newVictim()
	link.After(slowlink.Up, k.size/2, func() {
		v.process().kill9()
		link.Cut()
	})
	v.is(launch(t, bin, k.args(link.URL())...)).wait(t)
	mustSucceed(t, bin, k.args(k.url)...)
	for range 2 {
		if _, err := ended.NextMsg(20 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	k.exact(t, "once the killed run's restore has ended")
	srv.Restart(t)
	k.exact(t, "after a restart of the server")
}

// mutating reports whether an API call belongs to an activation's steps.
func mutating(subject string) bool {
	for _, call := range []string{"STREAM.UPDATE.", "CONSUMER.PAUSE.", "CONSUMER.CREATE."} {
		if strings.HasPrefix(subject, "$JS.API."+call) {
			return true
		}
	}
	return false
}

// addConsumers adds one consumer of each kind that an activation treats in its
// own way, with so many messages delivered to those that take any.
func addConsumers(t *testing.T, delivered int) func(nc *nats.Conn, stream string) {
	return func(nc *nats.Conn, stream string) {
		t.Helper()
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		s, err := js.Stream(background(t), stream)
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
		for _, cfg := range []jetstream.ConsumerConfig{
			{Durable: "paused", PauseUntil: &until, InactiveThreshold: 48 * time.Hour},
			{Durable: "pending", Metadata: map[string]string{"team": "orders"}},
			{Name: "passing", InactiveThreshold: time.Hour},
		} {
			cfg.AckPolicy, cfg.AckWait = jetstream.AckExplicitPolicy, time.Hour
			c, err := s.CreateConsumer(background(t), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.PauseUntil != nil || delivered == 0 {
				continue
			}
			batch, err := c.FetchNoWait(delivered)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for m := range batch.Messages() {
				if n++; n%3 == 1 {
					if err := m.DoubleAck(background(t)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if _, err := s.CreatePushConsumer(background(t), jetstream.ConsumerConfig{
			Durable: "push", DeliverSubject: "deliver." + stream, AckPolicy: jetstream.AckExplicitPolicy,
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// atStep runs a restore and calls f before the n-th step of its activation
// reaches the server; f says whether it does. Without f the server is gone for
// good from there on, and the process gets a SIGINT. It returns the process,
// which has ended, and how many steps it has taken.
func (k *killing) atStep(t *testing.T, n int64, f func(p *process) bool) (*process, int64) {
	t.Helper()
	v := newVictim()
	var steps atomic.Int64
	var gate *tollgate
	gate = newTollgate(t, k.hostPort, func(subject string) bool {
		switch {
		case !mutating(subject) || steps.Add(1) != n:
			return true
		case f == nil:
			gate.ln.Close()
			v.process().signal(t, syscall.SIGINT)
			return false
		}
		return f(v.process())
	})
	p := v.is(launch(t, k.bin, k.args(gate.url())...))
	p.wait(t)
	return p, steps.Load()
}

// killedActivation: kill -9 before each step of an activation. The next run
// finishes it, or begins anew while the stream is still staged, and everything is
// exact.
func killedActivation(t *testing.T, bin string) {
	srv := testnats.Single(t)
	k := newKilling(t, bin, srv, testnats.FillOptions{Messages: 60, TTL: time.Hour}, addConsumers(t, 7))
	k.remove(t)
	p, steps := k.atStep(t, 0, nil)
	if p.ProcessState.ExitCode() != exitOK {
		t.Fatal(p.err.String())
	}
	k.exact(t, "a restore")
	if steps != 2+2*4 {
		t.Errorf("an activation with four consumers took %d steps", steps)
	}
	for n := int64(1); n <= steps; n++ {
		k.remove(t)
		p, got := k.atStep(t, n, func(p *process) bool { p.kill9(); return false })
		if p.ProcessState.ExitCode() != -1 || got != n {
			t.Fatalf("step %d: it ended with %v after %d steps: %s", n, p.ProcessState, got, p.err.String())
		}
		said := "it will be finished"
		if n == 1 {
			said = "it will be removed"
			unreachable(t, k.nc, k.stream)
		} else {
			equal(t, "messages", k.before.Contents, testnats.Dump(t, k.nc, k.stream))
		}
		if next := mustSucceed(t, bin, k.args(k.url)...); !strings.Contains(next.err.String(), said) {
			t.Errorf("step %d: the next run doesn't say %q: %s", n, said, next.err.String())
		}
		k.exact(t, "after a kill in the activation")
	}
}

// interruptedRestore: SIGINT and SIGTERM. Before the activation nothing is
// left; once it has begun, it's finished: that takes two requests a consumer.
func interruptedRestore(t *testing.T, bin string) {
	k := newKilling(t, bin, testnats.Single(t), large(), addConsumers(t, 7))

	for i, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		// In mid-transfer.
		k.remove(t)
		link := testnats.Proxy(t, k.hostPort, testnats.ProxyOptions{})
		v := newVictim()
		link.After(slowlink.Up, k.size*int64(2*i+1)/4, func() { v.process().signal(t, sig) })
		p := v.is(launch(t, bin, k.args(link.URL())...))
		if code := p.wait(t); code != exitInterrupted || !strings.Contains(p.err.String(), "interrupted: signal "+sig.String()) {
			t.Errorf("%v in mid-transfer: exit code %d: %s", sig, code, p.err.String())
		}
		k.gone(t, sig.String()+" in mid-transfer")

		// While it activates: with the first step, a later one, the last one.
		for _, n := range []int64{1, 4, 10} {
			k.remove(t)
			p, steps := k.atStep(t, n, func(p *process) bool { p.signal(t, sig); return true })
			if code := p.ProcessState.ExitCode(); code != exitOK || steps != 10 {
				t.Errorf("%v at step %d: exit code %d after %d steps: %s", sig, n, code, steps, p.err.String())
			}
			k.exact(t, "after a signal in the activation")
		}
	}
}

// gone checks that nothing is under the stream's name.
func (k *killing) gone(t *testing.T, when string) {
	t.Helper()
	if info, err := k.js.StreamInfo(background(t), k.stream); !jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		t.Errorf("%s: %v %+v", when, err, info)
	}
}

// lostInTheActivation: the server goes once the activation has begun. What is
// left is said, with exit code 16, and the next run finishes it.
func lostInTheActivation(t *testing.T, bin string) {
	k := newKilling(t, bin, testnats.Single(t), testnats.FillOptions{Messages: 60}, addConsumers(t, 7))
	k.remove(t)
	p, _ := k.atStep(t, 3, nil)
	if code := p.ProcessState.ExitCode(); code != exitLeftBehind || !strings.Contains(p.err.String(), "run the same restore again to finish it") {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	mustSucceed(t, bin, k.args(k.url)...)
	k.exact(t, "after the next run")
}

// stoppedRestore: a restore that doesn't run but lives is left alone. When it
// goes on it finds itself dropped, and cleans up.
func stoppedRestore(t *testing.T, bin string) {
	k := newKilling(t, bin, testnats.Single(t), large(), nil)
	k.remove(t)
	link := testnats.Proxy(t, k.hostPort, testnats.ProxyOptions{})
	v := newVictim()
	stopped := make(chan struct{})
	link.After(slowlink.Up, k.size*3/4, func() {
		v.process().signal(t, syscall.SIGSTOP)
		close(stopped)
	})
	p := v.is(launch(t, bin, k.args(link.URL())...))
	select {
	case <-stopped:
	case <-p.done:
		t.Fatalf("it has ended: %s", p.err.String())
	}
	testnats.Eventually(t, func() error { // the server has taken the first block
		_, err := k.js.StreamInfo(background(t), k.stream)
		return err
	})
	second := launch(t, bin, k.args(k.url)...)
	if code := second.wait(t); code != exitRefused || !strings.Contains(second.err.String(), "another run") {
		t.Errorf("the second run ends with %d: %s", code, second.err.String())
	}
	p.signal(t, syscall.SIGCONT)
	if code := p.wait(t); code == exitTransfer {
		k.gone(t, "after the transfer failed")
		mustSucceed(t, bin, k.args(k.url)...)
	} else if code != exitOK { // it may have been quick enough
		t.Errorf("the stopped run ends with %d: %s", code, p.err.String())
	}
	k.exact(t, "in the end")
}
