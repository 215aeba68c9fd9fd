package testnats

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestRestartKeepsStreamsAndPort(t *testing.T) {
	s := Single(t)
	nc := s.Connect(t)
	stream := Fill(t, nc, FillOptions{Consumers: true, TTL: time.Hour})
	before, consumers := Dump(t, nc, stream), DumpConsumers(t, nc, stream)
	if len(before.Messages) < 300 || len(consumers) != 8 {
		t.Fatalf("%d messages, %d consumers", len(before.Messages), len(consumers))
	}
	url := s.URL()
	s.Restart(t)
	if s.URL() != url {
		t.Errorf("URL was %s, is %s", url, s.URL())
	}
	nc = s.Connect(t)
	if d := cmp.Diff(before, Dump(t, nc, stream)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(consumers, DumpConsumers(t, nc, stream)); d != "" {
		t.Error(d)
	}
}

func TestFillMakesWhatItPromises(t *testing.T) {
	nc := Single(t).Connect(t)
	stream := Fill(t, nc, FillOptions{TTL: time.Hour, Consumers: true})
	c := Dump(t, nc, stream)
	if c.LastSeq != 500 || c.Messages[len(c.Messages)-1].Seq == c.LastSeq || c.FirstSeq == 1 {
		t.Errorf("first %d, last %d: no deletes at the edges", c.FirstSeq, c.LastSeq)
	}
	kinds := map[string]int{}
	for _, m := range c.Messages {
		kinds[m.Subject]++
		for _, h := range []string{"Nats-TTL: 1h0m0s\r\n", "trace: a=1\r\ntrace: b=2\r\n", "X-Empty: \r\n", "Nats-Msg-Id"} {
			if strings.HasPrefix(m.Header, "NATS/1.0\r\n") && strings.Contains(m.Header, h) {
				kinds[h]++
			}
		}
	}
	if len(kinds) != 9 {
		t.Errorf("subjects and headers: %v", kinds)
	}
	for _, c := range DumpConsumers(t, nc, stream) {
		switch {
		case c.Name == "odd" && (c.AckPending == 0 || c.AckFloor.Stream >= c.Delivered.Stream || c.AckFloor.Consumer == 0),
			c.Name == "pending" && c.AckPending != 10,
			c.Name == "naked" && c.Redelivered != 5,
			c.Name == "paused" && !c.Paused,
			c.Name == "filtered" && c.AckFloor.Consumer != 10:
			t.Errorf("%+v", c)
		}
	}
}

func TestBucketsAreFilled(t *testing.T) {
	nc := Single(t).Connect(t)
	if c := Dump(t, nc, "KV_"+FillKV(t, nc)); len(c.Messages) < 50 {
		t.Errorf("key-value bucket: %d messages", len(c.Messages))
	}
	if c := Dump(t, nc, "OBJ_"+FillObjects(t, nc)); len(c.Messages) < 10 {
		t.Errorf("object store: %d messages", len(c.Messages))
	}
}

func TestAccountsUsersAndPermissions(t *testing.T) {
	s := Single(t, Options{MaxPayload: 9 << 20, Domain: "hub", Accounts: []Account{
		{Name: "A", MaxStore: 1 << 20, MaxStreams: 1, MaxConsumers: 2, MaxBytesRequired: true, Users: []User{
			{Name: "full"}, {Name: "few", PubAllow: []string{"$JS.API.>"}, PubDeny: []string{"$JS.API.STREAM.DELETE.>"}},
		}},
		{Name: "B"},
	}})
	js := newJetStream(t, s.Connect(t))
	info, err := js.AccountInfo(withTimeout(t))
	check(t, err)
	if info.Limits.MaxStore != 1<<20 || info.Limits.MaxStreams != 1 || !info.Limits.MaxBytesRequired || info.Domain != "hub" {
		t.Errorf("limits %+v, domain %q", info.Limits, info.Domain)
	}
	if n := s.Connect(t, nats.UserInfo("B", "B")).MaxPayload(); n != 9<<20 {
		t.Errorf("max_payload %d", n)
	}
	denied := make(chan error, 1)
	nc := s.Connect(t, nats.UserInfo("few", "few"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		denied <- err
	}))
	check(t, nc.Publish("$JS.API.STREAM.DELETE.x", nil))
	if err := <-denied; !strings.Contains(err.Error(), "permissions violation") && !strings.Contains(err.Error(), "Permissions Violation") {
		t.Error(err)
	}
	s.ConnectSystem(t)
}

func TestEncryptedStoreAndLog(t *testing.T) {
	s := Single(t, Options{EncryptionKey: "s3cr3t", Cipher: "aes"})
	Fill(t, s.Connect(t), FillOptions{Messages: 10})
	if len(s.Log.Find("Encryption:      AES")) == 0 {
		t.Errorf("log: %v", s.Log.Lines())
	}
	s.Reconfigure(t, Options{EncryptionKey: "wrong", Cipher: "aes"})
	s.Log.Wait(t, "Error decrypting our stream metafile")
}

func TestProxyInFrontOfAServer(t *testing.T) {
	s := Single(t)
	l := Proxy(t, s.URL(), ProxyOptions{Delay: 10 * time.Millisecond})
	nc := connect(t, l.URL())
	rtt, err := nc.RTT()
	check(t, err)
	if rtt < 20*time.Millisecond {
		t.Errorf("round trip %v", rtt)
	}
}

func TestClusterLeadersAndRestart(t *testing.T) {
	g := Cluster(t, 3)
	nc := g.Connect(t, 0)
	stream := Fill(t, nc, FillOptions{Messages: 50, Configure: func(c *jetstream.StreamConfig) { c.Replicas = 3 }})
	before := Dump(t, nc, stream)
	g.WaitStreamCurrent(t, stream)
	g.StepDown(t, stream)
	leader, other := g.StreamLeader(t, stream), g.NonLeader(t, stream)
	if leader == other {
		t.Error("the leader is its own opposite")
	}
	i := g.Index(leader)
	g.Kill(i)
	g.StreamLeader(t, stream)
	g.Restart(t, i)
	g.WaitStreamCurrent(t, stream)
	if d := cmp.Diff(before, Dump(t, leader.Connect(t), stream)); d != "" {
		t.Error(d)
	}
}
