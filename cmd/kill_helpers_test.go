package cmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/internal/testnats"
)

// The kill tests run the real binary as a process and end it at an exact place:
// when so many bytes have passed a proxy, or before a certain API request
// reaches the server.

// soak asks for every place instead of some.
var soak = os.Getenv("JETKEEP_SOAK") != ""

// TestKill builds the binary once and has it end in every way.
func TestKill(t *testing.T) {
	t.Parallel()
	bin := buildJetkeep(t)
	for name, f := range map[string]func(*testing.T, string){
		"backup":                       killedBackup,
		"restore":                      killedRestore,
		"activation":                   killedActivation,
		"restore, by signals":          interruptedRestore,
		"restore, outlived":            outlived,
		"restore, stopped":             stoppedRestore,
		"cluster":                      killedInCluster,
		"activation, without a server": lostInTheActivation,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, bin)
		})
	}
}

// buildJetkeep builds the binary that the kill tests run.
func buildJetkeep(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("signals of Unix")
	}
	bin := filepath.Join(t.TempDir(), "jetkeep")
	if out, err := exec.Command("go", "build", "-o", bin, "..").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// process is a run of the binary.
type process struct {
	*exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
}

// launch starts the binary.
func launch(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(bin, args...), done: make(chan struct{})}
	p.Stdout, p.Stderr = &p.out, &p.err
	p.Env = append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Cmd.Wait() // ProcessState has how it ended
		close(p.done)
	}()
	t.Cleanup(p.kill9)
	return p
}

// kill9 ends the process for certain. It may be called more than once.
func (p *process) kill9() {
	_ = p.Process.Kill()
	<-p.done
}

// wait waits for the end and returns the exit code, -1 for a killed process.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("it doesn't end: %s", p.err.String())
	}
	return p.ProcessState.ExitCode()
}

// mustSucceed runs the binary to a good end.
func mustSucceed(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	p := launch(t, bin, args...)
	if code := p.wait(t); code != exitOK {
		t.Fatalf("jetkeep %s: exit code %d: %s", strings.Join(args, " "), code, p.err.String())
	}
	return p
}

// victim is a process that isn't there yet when its end is prepared.
type victim struct {
	p  *process
	ok chan struct{}
}

func newVictim() *victim { return &victim{ok: make(chan struct{})} }

func (v *victim) is(p *process) *process {
	v.p = p
	close(v.ok)
	return p
}

func (v *victim) process() *process {
	<-v.ok
	return v.p
}

// everythingOf is all that can be seen of a stream.
type everythingOf struct {
	Contents  testnats.Contents
	Consumers []testnats.Consumer
	Config    map[string]any
}

func see(t *testing.T, nc *nats.Conn, stream string) everythingOf {
	t.Helper()
	return everythingOf{testnats.Dump(t, nc, stream), testnats.DumpConsumers(t, nc, stream), testnats.StreamConfig(t, nc, stream)}
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if reflect.DeepEqual(want, got) {
		return // cmp takes its time over large payloads
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// unreachable checks that no client can get at the stream by its subjects.
func unreachable(t *testing.T, nc *nats.Conn, stream string) {
	t.Helper()
	_, err := nc.Request(stream+".new", []byte("x"), 2*time.Second)
	if !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a publish to the stream's subject gets %v", err)
	}
}

// tollgate is a proxy that knows the NATS protocol: it calls pass with the
// subject of each message that the client publishes to JetStream, before the
// server gets it. When pass returns false, the connection is cut there.
type tollgate struct {
	ln     net.Listener
	target string
	pass   func(subject string) bool

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newTollgate(t *testing.T, target string, pass func(subject string) bool) *tollgate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &tollgate{ln: ln, target: target, pass: pass}
	g.wg.Go(g.accept)
	t.Cleanup(func() {
		ln.Close()
		g.cut()
		g.wg.Wait()
	})
	return g
}

func (g *tollgate) url() string { return "nats://" + g.ln.Addr().String() }

func (g *tollgate) accept() {
	for {
		client, err := g.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", g.target)
		if err != nil {
			client.Close()
			continue
		}
		g.mu.Lock()
		g.conns = append(g.conns, client, server)
		g.mu.Unlock()
		g.wg.Go(func() {
			_, _ = io.Copy(client, server)
			client.Close()
		})
		g.wg.Go(func() {
			if err := g.up(bufio.NewReaderSize(client, 64<<10), server); err != nil {
				server.Close()
				client.Close()
			}
		})
	}
}

// cut ends all connections.
func (g *tollgate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		c.Close()
	}
}

var errCut = errors.New("cut")

// up passes on what the client sends.
func (g *tollgate) up(r *bufio.Reader, w io.Writer) error {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		f := strings.Fields(string(line))
		size := 0
		if len(f) >= 3 && (f[0] == "PUB" || f[0] == "HPUB") {
			if size, err = strconv.Atoi(f[len(f)-1]); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			size += 2
			if strings.HasPrefix(f[1], "$JS.") && !g.pass(f[1]) {
				return errCut
			}
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		if _, err := io.CopyN(w, r, int64(size)); err != nil {
			return err
		}
	}
}

// signal sends a signal to the process.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

func background(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}
