package testnats

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
)

// Child is a nats-server as a child process, for what can't be done to one in
// the process: stopping it in mid-air, kill -9, other versions.
type Child struct {
	// Log is kept over restarts.
	Log *Log

	bin  string
	opts Options
	dir  string // for the configuration and the ports file
	port int

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been waited for
}

// Process starts the binary with the options given, of which there may be at
// most one, and waits until it accepts connections. Take the binary from
// ServerBinary. The process is killed at the end of the test.
func Process(t testing.TB, bin string, opts ...Options) *Child {
	t.Helper()
	if len(opts) > 1 {
		t.Fatal("testnats.Process takes one Options")
	}
	var o Options
	if len(opts) == 1 {
		o = opts[0]
	}
	o.Name = orDefault(o.Name, Name(t))
	if o.StoreDir == "" {
		o.StoreDir = t.TempDir()
	}
	c := &Child{Log: &Log{}, bin: bin, opts: o, dir: t.TempDir(), port: -1}
	t.Cleanup(c.Kill)
	c.Start(t)
	return c
}

// Start starts a process that has been stopped or killed, on the same port and
// store directory.
func (c *Child) Start(t testing.TB) {
	t.Helper()
	conf := filepath.Join(c.dir, "server.conf")
	text := c.opts.render(c.port, nil) + fmt.Sprintf("ports_file_dir: %q\n", c.dir)
	check(t, os.WriteFile(conf, []byte(text), 0o600))
	cmd := exec.Command(c.bin, "-c", conf)
	stderr, err := cmd.StderrPipe()
	check(t, err)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", c.bin, err)
	}
	done := make(chan struct{})
	c.mu.Lock()
	c.cmd, c.done = cmd, done
	c.mu.Unlock()
	go func() {
		c.collect(bufio.NewScanner(stderr))
		_ = cmd.Wait() // how it ended is of no interest: tests kill it
		close(done)
	}()
	c.waitReady(t, text)
}

// collect turns "[pid] 2026/01/02 03:04:05.678901 [WRN] text" into "WRN text".
func (c *Child) collect(lines *bufio.Scanner) {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		for _, level := range []string{"INF", "WRN", "ERR", "FTL", "DBG", "TRC"} {
			if _, text, ok := strings.Cut(line, " ["+level+"] "); ok {
				line = level + " " + text
				break
			}
		}
		c.Log.add(line)
	}
}

// waitReady waits for the ports file and for the port in it.
func (c *Child) waitReady(t testing.TB, conf string) {
	t.Helper()
	file := filepath.Join(c.dir, fmt.Sprintf("%s_%d.ports", filepath.Base(c.bin), c.PID()))
	Eventually(t, func() error {
		select {
		case <-c.done:
			t.Fatalf("%s has ended:\n%s\n%s", c.bin, strings.Join(c.Log.Lines(), "\n"), conf)
		default:
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, strings.Join(c.Log.Lines(), "\n"))
		}
		var ports struct {
			Nats []string `json:"nats"`
		}
		if err := json.Unmarshal(data, &ports); err != nil || len(ports.Nats) == 0 {
			return fmt.Errorf("ports file %q: %v", data, err)
		}
		u, err := url.Parse(ports.Nats[0])
		if err != nil {
			return err
		}
		c.port, err = strconv.Atoi(u.Port())
		return err
	})
	Eventually(t, func() error {
		nc, err := nats.Connect(c.URL())
		if err == nil {
			nc.Close()
		}
		return err
	})
}

// PID is the process id.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cmd.Process.Pid
}

// URL is the server's nats:// URL. It stays the same over restarts.
func (c *Child) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", c.port) }

// HostPort is URL without the scheme, for Proxy.
func (c *Child) HostPort() string { return fmt.Sprintf("127.0.0.1:%d", c.port) }

// StoreDir is the server's store_dir, which holds jetstream/.
func (c *Child) StoreDir() string { return c.opts.StoreDir }

// Connect opens a connection that reconnects for ever and is closed at the end
// of the test.
func (c *Child) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, c.URL(), opts...)
}

// Stop ends the process cleanly and waits for it.
func (c *Child) Stop(t testing.TB) {
	t.Helper()
	c.signal(t, os.Interrupt)
	c.Continue(t)
	<-c.done
}

// Kill ends the process with kill -9 and waits for it. It may be called more
// than once.
func (c *Child) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill() // that it has ended already is fine
	<-c.done
}

// Pause stops the process with SIGSTOP: its connections stay open and silent.
func (c *Child) Pause(t testing.TB) {
	t.Helper()
	c.signal(t, sigStop)
}

// Continue ends a Pause.
func (c *Child) Continue(t testing.TB) {
	t.Helper()
	c.signal(t, sigCont)
}

func (c *Child) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if s == syscall.Signal(0) {
		missing(t, "no such signal on this system")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("signal %v: %v", s, err)
	}
}
