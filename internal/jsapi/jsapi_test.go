package jsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/format"
)

// startServer runs a JetStream server in this process, without a port.
func startServer(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{ServerName: "S", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("server not ready")
	}
	return s
}

func connect(t *testing.T, s *server.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{nats.InProcessServer(s), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, opts...)
	nc, err := nats.Connect("", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func newClient(t *testing.T, nc *nats.Conn, o Options) *Client {
	t.Helper()
	c, err := New(nc, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func object(t *testing.T, s string) format.Object {
	t.Helper()
	o, err := format.ParseObject([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestStreamCalls(t *testing.T) {
	ctx := t.Context()
	nc := connect(t, startServer(t, nil))
	c := newClient(t, nc, Options{})
	info := must[*StreamInfo](t)

	created := info(c.CreateStream(ctx, object(t, `{"name":"ORDERS","subjects":["orders.>"],"storage":"file","retention":"limits","num_replicas":1,"persist_mode":"async","metadata":{"owner":"ops"}}`)))
	if created.Name() != "ORDERS" || created.Created.IsZero() || created.TimeStamp.IsZero() {
		t.Fatalf("created %+v", created)
	}
	// persist_mode is younger than most clients: it must come back all the same.
	if got := string(created.Config.Raw("persist_mode")); got != `"async"` {
		t.Errorf("persist_mode is %s", got)
	}
	for i := range 5 {
		msg := nats.NewMsg(fmt.Sprintf("orders.%d", i%3))
		msg.Header = nats.Header{"b-odd": {"x"}}
		msg.Data = []byte("payload")
		if _, err := nc.RequestMsg(msg, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Request(ctx, "STREAM.MSG.DELETE.ORDERS", map[string]any{"seq": 3}, nil); err != nil {
		t.Fatal(err)
	}
	got := info(c.StreamInfo(ctx, "ORDERS"))
	if got.State.Messages != 4 || got.State.NumDeleted != 1 || got.State.LastSeq != 5 || got.State.NumSubjects != 2 {
		t.Errorf("state %+v", got.State)
	}
	if d := must[[]uint64](t)(c.StreamDeleted(ctx, "ORDERS")); len(d) != 1 || d[0] != 3 {
		t.Errorf("deleted %v", d)
	}
	subjects := must[map[string]uint64](t)(c.StreamSubjects(ctx, "ORDERS", ">"))
	if !maps.Equal(subjects, map[string]uint64{"orders.0": 2, "orders.1": 2}) {
		t.Errorf("subjects %v", subjects)
	}
	m := must[*RawMsg](t)(c.GetMsg(ctx, "ORDERS", 1))
	if string(m.Header) != "NATS/1.0\r\nb-odd: x\r\n\r\n" || string(m.Data) != "payload" || m.Subject != "orders.0" || m.Seq != 1 {
		t.Errorf("message %+v, header %q", m, m.Header)
	}
	if _, err := c.GetMsg(ctx, "ORDERS", 99); !IsCode(err, CodeNoMessageFound) {
		t.Errorf("missing message: %v", err)
	}

	cfg := got.Config.Clone()
	cfg.Set("max_msgs", 3)
	if info(c.UpdateStream(ctx, cfg)); info(c.StreamInfo(ctx, "ORDERS")).State.Messages != 3 {
		t.Error("the update did nothing")
	}
	list := must[*StreamList](t)(c.Streams(ctx))
	if len(list.Streams) != 1 || list.Streams[0].Name() != "ORDERS" || len(list.Missing) != 0 {
		t.Errorf("list %+v", list)
	}
	if n := must[[]string](t)(c.StreamNames(ctx, "orders.7")); len(n) != 1 {
		t.Errorf("names %v", n)
	}
	if n := must[[]string](t)(c.StreamNames(ctx, "other")); len(n) != 0 {
		t.Errorf("names %v", n)
	}
	if err := c.DeleteStream(ctx, "ORDERS"); err != nil {
		t.Fatal(err)
	}
	_, err := c.StreamInfo(ctx, "ORDERS")
	var e *Error
	if !errors.As(err, &e) || e.Code != 404 || e.ErrCode != CodeStreamNotFound || err.Error() != "stream not found (10059)" {
		t.Errorf("after deletion: %v", err)
	}
	if Temporary(err) {
		t.Error("a missing stream isn't temporary")
	}
}

func TestListsHaveSeveralPages(t *testing.T) {
	ctx := t.Context()
	c := newClient(t, connect(t, startServer(t, nil)), Options{})
	const n = 300 // 256 fit on a page
	for i := range n {
		cfg := object(t, fmt.Sprintf(`{"name":"S%03d","subjects":["s.%d"],"storage":"memory"}`, i, i))
		if _, err := c.CreateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		cfg = object(t, fmt.Sprintf(`{"durable_name":"C%03d","ack_policy":"explicit"}`, i))
		if _, err := c.CreateConsumer(ctx, "S000", cfg); err != nil {
			t.Fatal(err)
		}
	}
	list := must[*StreamList](t)(c.Streams(ctx))
	if len(list.Streams) != n || list.Streams[0].Name() != "S000" || list.Streams[n-1].Name() != "S299" {
		t.Errorf("%d streams", len(list.Streams))
	}
	consumers := must[*ConsumerList](t)(c.Consumers(ctx, "S000"))
	if len(consumers.Consumers) != n || consumers.Consumers[n-1].Name != "C299" {
		t.Errorf("%d consumers", len(consumers.Consumers))
	}
}

func TestConsumerCalls(t *testing.T) {
	ctx := t.Context()
	nc := connect(t, startServer(t, nil))
	c := newClient(t, nc, Options{})
	must[*StreamInfo](t)(c.CreateStream(ctx, object(t, `{"name":"S","subjects":["s.>"],"storage":"memory"}`)))
	info := must[*ConsumerInfo](t)

	cfg := object(t, `{"durable_name":"D","name":"D","ack_policy":"explicit","filter_subject":"s.a","metadata":{"k":"v"}}`)
	if got := info(c.CreateConsumer(ctx, "S", cfg)); got.Name != "D" || got.Stream != "S" || got.Created.IsZero() {
		t.Errorf("created %+v", got)
	}
	changed := cfg.Clone()
	changed.Set("ack_wait", 2*time.Second)
	if _, err := c.CreateConsumer(ctx, "S", changed); !IsCode(err, CodeConsumerAlreadyExists) {
		t.Errorf("second creation: %v", err)
	}
	if got := info(c.UpdateConsumer(ctx, "S", changed)); string(got.Config.Raw("ack_wait")) != "2000000000" {
		t.Errorf("updated %s", got.Config.Raw("ack_wait"))
	}
	absent := object(t, `{"name":"E","ack_policy":"explicit"}`)
	if _, err := c.UpdateConsumer(ctx, "S", absent); !IsCode(err, CodeConsumerDoesNotExist) {
		t.Errorf("update of a missing consumer: %v", err)
	}

	for range 3 {
		if _, err := nc.Request("s.a", nil, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	msg, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.S.D", nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got := info(c.ConsumerInfo(ctx, "S", "D")); got.Delivered.Stream != 1 || got.NumAckPending != 1 || got.NumPending != 2 || got.AckFloor.Stream != 0 {
		t.Errorf("before the ack %+v", got)
	}
	if _, err := nc.Request(msg.Reply, []byte("+ACK"), time.Second); err != nil {
		t.Fatal(err)
	}
	if got := info(c.ConsumerInfo(ctx, "S", "D")); got.AckFloor != (format.SequencePair{Consumer: 1, Stream: 1}) || got.NumAckPending != 0 {
		t.Errorf("after the ack %+v", got)
	}

	if err := c.PauseConsumer(ctx, "S", "D", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := info(c.ConsumerInfo(ctx, "S", "D")); !got.Paused || got.PauseRemaining < 59*time.Minute {
		t.Errorf("paused %+v", got)
	}
	if err := c.PauseConsumer(ctx, "S", "D", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := info(c.ConsumerInfo(ctx, "S", "D")); got.Paused || got.Config.Has("pause_until") {
		t.Errorf("unpaused %+v", got)
	}
	if err := c.DeleteConsumer(ctx, "S", "D"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ConsumerInfo(ctx, "S", "D"); !IsCode(err, CodeConsumerNotFound) {
		t.Errorf("after deletion: %v", err)
	}
}

func TestAccount(t *testing.T) {
	ctx := t.Context()
	s := startServer(t, func(o *server.Options) { o.JetStreamDomain = "hub"; o.JetStreamMaxStore = 1 << 30 })
	c := newClient(t, connect(t, s), Options{Domain: "hub"})
	must[*StreamInfo](t)(c.CreateStream(ctx, object(t, `{"name":"S","max_bytes":1000,"storage":"file"}`)))
	a := must[*AccountInfo](t)(c.AccountInfo(ctx))
	if a.Streams != 1 || a.Domain != "hub" || a.API.Level == 0 || a.Limits.MaxStreams != -1 || a.ReservedStorage != 1000 {
		t.Errorf("account %+v", a)
	}
	user, err := c.UserInfo(ctx)
	if err != nil || user.Account != "$G" {
		t.Errorf("user %+v, %v", user, err)
	}
	if _, err := New(c.Conn(), Options{Domain: "a", Prefix: "b"}); err == nil {
		t.Error("domain and prefix together")
	}
	if _, err := New(c.Conn(), Options{Prefix: "a.*"}); err == nil {
		t.Error("a wildcard in the prefix")
	}
}

func TestSnapshotAndRestoreStart(t *testing.T) {
	ctx := t.Context()
	nc := connect(t, startServer(t, nil), nats.CustomInboxPrefix("_JK"))
	c := newClient(t, nc, Options{})
	must[*StreamInfo](t)(c.CreateStream(ctx, object(t, `{"name":"S","subjects":["s"],"storage":"file"}`)))
	inbox := c.NewInbox()
	if !strings.HasPrefix(inbox, "_JK.") {
		t.Errorf("inbox %s", inbox)
	}
	if strings.HasPrefix(inbox, c.respPrefix) {
		t.Errorf("inbox %s lies under that of requests, %s", inbox, c.respPrefix)
	}
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	snap := must[*SnapshotResponse](t)(c.StartSnapshot(ctx, "S", SnapshotRequest{DeliverSubject: inbox}))
	if !json.Valid(snap.State) || string(snap.Config.Raw("name")) != `"S"` {
		t.Errorf("snapshot %+v", snap)
	}
	var archive []byte
	for {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) == 0 {
			break
		}
		archive = append(archive, m.Data...)
		_ = m.Respond(nil)
	}

	if _, err := c.StartRestore(ctx, "S", snap.Config, snap.State); !IsCode(err, CodeRestoreNameExists) {
		t.Errorf("restore over a stream: %v", err)
	}
	cfg := snap.Config.Clone()
	cfg.Set("name", "T")
	cfg.Set("subjects", []string{"t"})
	deliver, err := c.StartRestore(ctx, "T", cfg, snap.State)
	if err != nil {
		t.Fatal(err)
	}
	for _, chunk := range [][]byte{archive, nil} {
		if _, err := nc.Request(deliver, chunk, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	must[*StreamInfo](t)(c.StreamInfo(ctx, "T"))

	cfg.Set("x_from_the_future", true)
	cfg.Set("name", "U")
	if _, err := c.StartRestore(ctx, "U", cfg, snap.State); !IsCode(err, CodeInvalidJSON) || !strings.Contains(err.Error(), "x_from_the_future") {
		t.Errorf("an unknown field must reach the server: %v", err)
	}
	cfg.Delete("x_from_the_future")
	cfg.Set("metadata", map[string]string{"_nats.req.level": "9999"})
	if _, err := c.StartRestore(ctx, "U", cfg, snap.State); !IsCode(err, CodeRequiredAPILevel) {
		t.Errorf("a level beyond the server's: %v", err)
	}
}

func TestNamesStayInOneToken(t *testing.T) {
	c := newClient(t, connect(t, startServer(t, nil)), Options{})
	for _, name := range []string{"", "a.b", "*", "a>", "a b", "a\r\nPUB x 0"} {
		if err := c.DeleteStream(t.Context(), name); err == nil || strings.Contains(err.Error(), "10059") {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := c.ConsumerInfo(t.Context(), "S", name); err == nil || strings.Contains(err.Error(), "1001") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestNoResponders(t *testing.T) {
	s := startServer(t, func(o *server.Options) { o.JetStream = false })
	c := newClient(t, connect(t, s), Options{})
	_, err := c.AccountInfo(t.Context())
	const want = "no JetStream API answers on $JS.API.INFO: is JetStream enabled for this account / is the stream's leader there?"
	if !errors.Is(err, ErrNoResponders) || err.Error() != want || !Temporary(err) {
		t.Errorf("%v", err)
	}
}

func TestTimeoutAndContext(t *testing.T) {
	s := startServer(t, func(o *server.Options) { o.JetStream = false })
	nc := connect(t, s)
	if _, err := nc.SubscribeSync("$JS.API.>"); err != nil { // hears, and says nothing
		t.Fatal(err)
	}
	c := newClient(t, nc, Options{Timeout: 30 * time.Millisecond})
	if _, err := c.AccountInfo(t.Context()); !errors.Is(err, ErrTimeout) || !Temporary(err) || !strings.Contains(err.Error(), "$JS.API.INFO within 30ms") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.AccountInfo(ctx); !errors.Is(err, context.Canceled) || Temporary(err) {
		t.Errorf("%v", err)
	}
	nc.Close()
	if _, err := c.AccountInfo(t.Context()); !errors.Is(err, nats.ErrConnectionClosed) || Temporary(err) {
		t.Errorf("%v", err)
	}
}

func TestAnswerOfSomethingElse(t *testing.T) {
	s := startServer(t, func(o *server.Options) { o.JetStream = false })
	nc := connect(t, s)
	if _, err := nc.Subscribe("$JS.API.>", func(m *nats.Msg) { _ = m.Respond([]byte("hello")) }); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, nc, Options{})
	if _, err := c.AccountInfo(t.Context()); err == nil || !strings.Contains(err.Error(), "isn't one of the JetStream API") {
		t.Errorf("%v", err)
	}
}

// TestCodes holds the constants against the server's own.
func TestCodes(t *testing.T) {
	for code, e := range map[int]*server.ApiError{
		CodeStreamNotFound:        server.NewJSStreamNotFoundError(),
		CodeRestoreFailed:         server.NewJSStreamRestoreError(errors.New("x")),
		CodeRestoreNameExists:     server.NewJSStreamNameExistRestoreFailedError(),
		CodeSubjectOverlap:        server.NewJSStreamSubjectOverlapError(),
		CodeInsufficientStorage:   server.NewJSStorageResourcesExceededError(),
		CodeInsufficientMemory:    server.NewJSMemoryResourcesExceededError(),
		CodeMessageDeleteFailed:   server.NewJSStreamMsgDeleteFailedError(errors.New("x")),
		CodeStreamNameExists:      server.NewJSStreamNameExistError(),
		CodeInvalidJSON:           server.NewJSInvalidJSONError(errors.New("x")),
		CodeMaxBytesRequired:      server.NewJSStreamMaxBytesRequiredError(),
		CodeInsufficientResources: server.NewJSInsufficientResourcesError(),
		CodeClusterNotAvailable:   server.NewJSClusterNotAvailError(),
		CodeConsumerNotFound:      server.NewJSConsumerNotFoundError(),
		CodeNotEnabled:            server.NewJSNotEnabledError(),
		CodeNotEnabledForAccount:  server.NewJSNotEnabledForAccountError(),
		CodeSnapshotFailed:        server.NewJSStreamSnapshotError(errors.New("x")),
		CodeNoMessageFound:        server.NewJSNoMessageFoundError(),
		CodeMaximumStreams:        server.NewJSMaximumStreamsLimitError(),
		CodeMaximumConsumers:      server.NewJSMaximumConsumersLimitError(),
		CodeStreamSealed:          server.NewJSStreamSealedError(),
		CodeMaxStreamBytes:        server.NewJSStreamMaxStreamBytesExceededError(),
		CodeRequiredAPILevel:      server.NewJSRequiredApiLevelError(),
		CodeConsumerAlreadyExists: server.NewJSConsumerAlreadyExistsError(),
		CodeConsumerDoesNotExist:  server.NewJSConsumerDoesNotExistError(),
		CodeAccountResources:      server.NewJSAccountResourcesExceededError(),
		CodeTooManyRequests:       server.NewJSStreamTooManyRequestsError(),
		CodeNoLimits:              server.NewJSNoLimitsError(),
	} {
		if int(e.ErrCode) != code {
			t.Errorf("%d is %q, which has %d", code, e.Description, e.ErrCode)
		}
	}
}

// TestDomainOverLeafnode reaches the hub's JetStream from a leaf that has its
// own.
func TestDomainOverLeafnode(t *testing.T) {
	hub := startServer(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain, o.DontListen = "HUB", "hub", false
		o.Host, o.Port = "127.0.0.1", -1
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", -1
	})
	varz, err := hub.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf := startServer(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "LEAF", "leaf"
		u := &url.URL{Scheme: "nats-leaf", Host: fmt.Sprintf("127.0.0.1:%d", varz.LeafNode.Port)}
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{u}}}
	})
	waitFor(t, func() bool { return leaf.NumLeafNodes() == 1 && hub.NumLeafNodes() == 1 })
	nc := connect(t, leaf)
	far, near := newClient(t, nc, Options{Domain: "hub"}), newClient(t, nc, Options{})
	var info *StreamInfo
	waitFor(t, func() (ok bool) { // the leaf has to hear of the hub's API first
		var err error
		info, err = far.CreateStream(t.Context(), object(t, `{"name":"S","storage":"memory"}`))
		return !Temporary(err)
	})
	if info == nil || info.Name() != "S" {
		t.Fatalf("created %+v", info)
	}
	if _, err := near.StreamInfo(t.Context(), "S"); !IsCode(err, CodeStreamNotFound) {
		t.Errorf("the leaf's own JetStream: %v", err)
	}
	if got, err := far.StreamInfo(t.Context(), "S"); err != nil || got.Domain != "hub" {
		t.Errorf("%+v, %v", got, err)
	}
}
