package format

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

func sample(t testing.TB) []byte {
	var buf bytes.Buffer
	w := NewWriter(&buf)
	c, _ := ParseObject([]byte(`{"durable_name":"C","name":"C"}`))
	st, _ := ParseObject([]byte(`{"delivered":{"consumer_seq":1,"stream_seq":1},"ack_floor":{"consumer_seq":0,"stream_seq":0}}`))
	if err := w.WriteHead(&Head{State: State{Messages: 3, FirstSeq: 1, LastSeq: 9}, Consumers: []Consumer{{Name: "C", Config: c, State: st}}}); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{1, 2, 7} {
		if err := w.WriteMessage(&Message{Seq: seq, Time: 1e18, Subject: []byte("orders.eu"), Header: []byte("NATS/1.0\r\nNats-TTL: 10s\r\n\r\n"), Payload: []byte("hello")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestRoundTrip(t *testing.T) {
	a := sample(t)
	var n int
	ins, err := Inspect(context.Background(), bytes.NewReader(a), InspectOptions{OnMessage: func(m *Message) error { n++; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", ins.Figures)
	if n != 3 || ins.Figures.Deleted != 6 || ins.Figures.Gaps != 2 {
		t.Fatalf("%d %+v", n, ins.Figures)
	}
	for cut := range a {
		if _, err := Inspect(context.Background(), bytes.NewReader(a[:cut]), InspectOptions{}); err == nil {
			t.Fatalf("cut at %d accepted", cut)
		}
	}
	for bit := range len(a) * 8 {
		b := bytes.Clone(a)
		b[bit/8] ^= 1 << (bit % 8)
		_, err := Inspect(context.Background(), bytes.NewReader(b), InspectOptions{})
		var d *DamageError
		if !errors.As(err, &d) {
			t.Fatalf("flip %d: %v", bit, err)
		}
	}
}
