//go:build unix

package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// server is a nats-server in a process of its own.
type server struct {
	addr, url string
	cmd       *exec.Cmd
	nc        *nats.Conn
	js        jetstream.JetStream
}

func startServer(ctx context.Context, t *tools, store string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{addr: l.Addr().String()}
	l.Close()
	s.url = "nats://" + s.addr
	if err := os.MkdirAll(store, 0o700); err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(store, "..", "server.log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s.cmd = exec.CommandContext(ctx, t.server, "-js", "-sd", store, "-a", "127.0.0.1", "-p", s.addr[strings.LastIndexByte(s.addr, ':')+1:])
	s.cmd.Stderr = out
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for n := 0; s.nc == nil; n++ {
		if s.nc, err = nats.Connect(s.url); err != nil && n > 100 {
			s.stop()
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(4000))
	return s, err
}

func (s *server) stop() {
	if s.nc != nil {
		s.nc.Close()
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// fill publishes messages with headers, half of each payload compressible, and
// makes four consumers of which some have messages pending.
func (s *server) fill(ctx context.Context, stream string, messages, size, subjects int) error {
	log.Printf("filling %s with %d messages", stream, messages)
	_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{strings.ToLower(stream) + ".>"}})
	if err != nil {
		return err
	}
	rnd := rand.NewChaCha8([32]byte{1})
	payload := make([]byte, size)
	copy(payload, strings.Repeat(`{"order":1,"state":"packed"}`, size/28+1))
	for i := range messages {
		body := append([]byte(nil), payload...)
		_, _ = rnd.Read(body[size/2:])
		m := nats.NewMsg(fmt.Sprintf("%s.%d", strings.ToLower(stream), i%subjects))
		m.Header.Set("Order-Id", fmt.Sprint(i))
		m.Header.Set("Traceparent", fmt.Sprintf("00-%032x-%016x-01", i*7919, i))
		m.Data = body
		if _, err := s.js.PublishMsgAsync(m, jetstream.WithStallWait(10*time.Second)); err != nil {
			return err
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	for i := range 4 {
		c, err := s.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: fmt.Sprintf("C%d", i), AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour})
		if err != nil {
			return err
		}
		batch, err := c.Fetch(100 * (i + 1))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			if md, err := m.Metadata(); err == nil && md.Sequence.Stream%3 != 0 {
				_ = m.Ack()
			}
		}
	}
	return s.count(ctx, stream, uint64(messages))
}

// count fails unless the stream holds so many messages and its consumers.
func (s *server) count(ctx context.Context, stream string, want uint64) error {
	st, err := s.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	info, err := st.Info(ctx)
	if err != nil {
		return err
	}
	if info.State.Msgs != want || info.State.LastSeq != want || info.State.Consumers != 4 {
		return fmt.Errorf("stream %s has %d messages up to %d and %d consumers instead of %d and 4", stream, info.State.Msgs, info.State.LastSeq, info.State.Consumers, want)
	}
	return nil
}

// remove deletes a stream, and waits until its files are gone.
func (s *server) remove(ctx context.Context, stream string) error {
	if err := s.js.DeleteStream(ctx, stream); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	return nil
}
