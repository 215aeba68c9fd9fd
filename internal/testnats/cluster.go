package testnats

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Group is a cluster of servers in the process.
type Group struct {
	Servers []*Server
}

// Cluster starts a cluster of n servers, 3 if n is 0, and waits until it has a
// meta leader and all servers are current.
func Cluster(t testing.TB, n int, opts ...Options) *Group {
	t.Helper()
	var o Options
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.StoreDir != "" || o.Name != "" {
		t.Fatal("testnats.Cluster names its servers and directories itself")
	}
	n = orDefault(n, 3)
	name, ports := Name(t), freePorts(t, n)
	g := &Group{}
	for i := range n {
		c := &clusterConf{name: name, port: ports[i], routes: ports}
		so := o
		so.Name = fmt.Sprintf("%s-%d", name, i)
		s := newServer(t, so, c)
		g.Servers = append(g.Servers, s)
		s.start(t)
	}
	for _, s := range g.Servers {
		s.ready(t)
	}
	g.WaitCurrent(t)
	return g
}

// freePorts returns ports that were free a moment ago: each server of a
// cluster has to know the ports of all before the first one starts.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func (g *Group) running() []*Server {
	var up []*Server
	for _, s := range g.Servers {
		if s.Running() {
			up = append(up, s)
		}
	}
	return up
}

// WaitCurrent waits until there is a meta leader and every running server is
// current.
func (g *Group) WaitCurrent(t testing.TB) {
	t.Helper()
	Eventually(t, func() error {
		leaders := 0
		for _, s := range g.running() {
			if s.JetStreamIsLeader() {
				leaders++
				if got := len(s.JetStreamClusterPeers()); got < len(g.running()) {
					return fmt.Errorf("the meta leader knows %d peers", got)
				}
			}
			if !s.JetStreamIsCurrent() {
				return fmt.Errorf("%s isn't current", s.opts.Name)
			}
		}
		if leaders != 1 {
			return fmt.Errorf("%d meta leaders", leaders)
		}
		return nil
	})
}

// account is the one that connections without a user get.
func (g *Group) account() string {
	o := g.Servers[0].opts
	if len(o.Users) == 0 && len(o.Accounts) > 0 {
		return o.Accounts[0].Name
	}
	return "$G"
}

// StreamLeader waits until the stream has a leader and returns it.
func (g *Group) StreamLeader(t testing.TB, stream string) *Server {
	t.Helper()
	var leader *Server
	Eventually(t, func() error {
		for _, s := range g.running() {
			if s.JetStreamIsStreamLeader(g.account(), stream) {
				leader = s
				return nil
			}
		}
		return fmt.Errorf("stream %s has no leader", stream)
	})
	return leader
}

// NonLeader returns a running server that doesn't lead the stream.
func (g *Group) NonLeader(t testing.TB, stream string) *Server {
	t.Helper()
	leader := g.StreamLeader(t, stream)
	for _, s := range g.running() {
		if s != leader {
			return s
		}
	}
	t.Fatalf("only the leader of %s is running", stream)
	return nil
}

// Index is the position of s in Servers, for Kill and Restart.
func (g *Group) Index(s *Server) int {
	for i := range g.Servers {
		if g.Servers[i] == s {
			return i
		}
	}
	return -1
}

// Kill stops server i. It is a clean stop, as far as one in the process can be.
func (g *Group) Kill(i int) { g.Servers[i].Shutdown() }

// Restart starts server i again on the same port and directory, and waits until
// the cluster is current.
func (g *Group) Restart(t testing.TB, i int) {
	t.Helper()
	g.Servers[i].Restart(t)
	g.WaitCurrent(t)
}

// StepDown makes the stream's leader hand over, and waits until another server
// leads. The stream needs more than one replica.
func (g *Group) StepDown(t testing.TB, stream string) {
	t.Helper()
	old := g.StreamLeader(t, stream)
	nc := connect(t, old.URL())
	defer nc.Close()
	Eventually(t, func() error {
		if !old.JetStreamIsStreamLeader(g.account(), stream) {
			return nil
		}
		m, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, 2*time.Second)
		if err != nil {
			return err
		}
		return apiError(m.Data)
	})
	Eventually(t, func() error {
		if s := g.StreamLeader(t, stream); s == old {
			return errors.New("the old leader leads again")
		}
		return nil
	})
}

// WaitStreamCurrent waits until every running server that has a replica of the
// stream is current.
func (g *Group) WaitStreamCurrent(t testing.TB, stream string) {
	t.Helper()
	Eventually(t, func() error {
		for _, s := range g.running() {
			if s.JetStreamIsStreamAssigned(g.account(), stream) && !s.JetStreamIsStreamCurrent(g.account(), stream) {
				return fmt.Errorf("stream %s isn't current on %s", stream, s.opts.Name)
			}
		}
		return nil
	})
}

// Connect opens a connection to server i. It knows no other server.
func (g *Group) Connect(t testing.TB, i int, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return g.Servers[i].Connect(t, opts...)
}

// apiError is the error in an answer of the JetStream API, if there is one.
func apiError(data []byte) error {
	var r struct {
		Error *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("answer of the API: %w: %q", err, data)
	}
	if r.Error != nil {
		return fmt.Errorf("%s (%d/%d)", r.Error.Description, r.Error.Code, r.Error.ErrCode)
	}
	return nil
}
