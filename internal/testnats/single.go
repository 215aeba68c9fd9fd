package testnats

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Server is a server in the process.
type Server struct {
	// Server is the running server. Restart replaces it.
	*server.Server
	// Log is kept over restarts.
	Log *Log

	opts    Options
	port    int
	cluster *clusterConf

	mu sync.Mutex // one Shutdown or Restart at a time
}

// Single starts a server in the process, with the options given, of which
// there may be at most one.
func Single(t testing.TB, opts ...Options) *Server {
	t.Helper()
	if len(opts) > 1 {
		t.Fatal("testnats.Single takes one Options")
	}
	var o Options
	if len(opts) == 1 {
		o = opts[0]
	}
	s := newServer(t, o, nil)
	s.start(t)
	s.ready(t)
	return s
}

func newServer(t testing.TB, o Options, c *clusterConf) *Server {
	t.Helper()
	if o.Name == "" {
		o.Name = Name(t)
	}
	if o.StoreDir == "" {
		o.StoreDir = t.TempDir()
	}
	s := &Server{Log: &Log{}, opts: o, port: -1, cluster: c}
	t.Cleanup(s.Shutdown) // after TempDir's own cleanup is registered, so it runs before
	return s
}

// start begins to start the server; ready waits for it.
func (s *Server) start(t testing.TB) {
	t.Helper()
	conf := s.opts.render(s.port, s.cluster)
	var so server.Options
	if err := so.ProcessConfigString(conf); err != nil {
		t.Fatalf("server configuration: %v\n%s", err, conf)
	}
	so.NoSigs = true
	so.DisableJetStreamBanner = true
	srv, err := server.NewServer(&so)
	if err != nil {
		t.Fatalf("server: %v\n%s", err, conf)
	}
	srv.SetLoggerV2(s.Log, false, false, false)
	s.Server = srv
	srv.Start()
}

func (s *Server) ready(t testing.TB) {
	t.Helper()
	if !s.Server.ReadyForConnections(patience) {
		t.Fatalf("server isn't ready:\n%s", strings.Join(s.Log.Lines(), "\n"))
	}
	if fatal := s.Log.Find("FTL "); len(fatal) > 0 {
		t.Fatalf("server: %v", fatal)
	}
	s.port = s.Server.Addr().(*net.TCPAddr).Port
}

// URL is the server's nats:// URL. It stays the same over restarts.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

// HostPort is URL without the scheme, for Proxy.
func (s *Server) HostPort() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// StoreDir is the server's store_dir, which holds jetstream/.
func (s *Server) StoreDir() string { return s.opts.StoreDir }

// Connect opens a connection that reconnects for ever and is closed at the end
// of the test. Further options, such as nats.UserInfo, are added.
func (s *Server) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, s.URL(), opts...)
}

// ConnectSystem connects to the system account.
func (s *Server) ConnectSystem(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return s.Connect(t, append([]nats.Option{nats.UserInfo(SystemUser, SystemUser)}, opts...)...)
}

// Shutdown stops the server cleanly and waits until it has stopped. It may be
// called more than once.
func (s *Server) Shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Server == nil {
		return
	}
	s.Server.Shutdown()
	s.Server.WaitForShutdown()
}

// Restart stops the server, if it still runs, and starts it again on the same
// port and store directory.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Shutdown()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start(t)
	s.ready(t)
}

// Reconfigure is Restart with other options. Name and store directory stay.
func (s *Server) Reconfigure(t testing.TB, o Options) {
	t.Helper()
	o.Name, o.StoreDir = s.opts.Name, s.opts.StoreDir
	s.Shutdown()
	s.opts = o
	s.Restart(t)
}
