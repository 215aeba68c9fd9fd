package slowlink

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net"
	"testing"
	"time"
)

// echo is a target that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

func start(t *testing.T, o Options) *Link {
	t.Helper()
	l, err := Start(echo(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l *Link) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c.(*net.TCPConn)
}

func TestDelayIsAddedEachWayAndOrderKept(t *testing.T) {
	l := start(t, Options{Delay: 20 * time.Millisecond})
	c := dial(t, l)
	began := time.Now()
	c.Write([]byte("ping"))
	io.ReadFull(c, make([]byte, 4))
	if d := time.Since(began); d < 40*time.Millisecond {
		t.Errorf("round trip took %v, want at least 40ms", d)
	}

	// Much more than what a delay without a wide window would let through.
	data := bytes.Repeat([]byte("0123456789abcdefghi"), 2<<20)
	began = time.Now()
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(got) != sha256.Sum256(data) {
		t.Fatalf("got %d bytes that differ from the %d sent", len(got), len(data))
	}
	t.Logf("%d MiB there and back in %v", len(data)>>20, time.Since(began))
}

func TestBandwidth(t *testing.T) {
	l := start(t, Options{Bandwidth: 1 << 20})
	c := dial(t, l)
	began := time.Now()
	go c.Write(make([]byte, 256<<10))
	io.ReadFull(c, make([]byte, 256<<10))
	if d := time.Since(began); d < 240*time.Millisecond {
		t.Errorf("256 KiB at 1 MiB/s took %v", d)
	}
}

func TestStallKeepsBytesAndResumeSendsThem(t *testing.T) {
	l := start(t, Options{})
	c := dial(t, l)
	stalled := make(chan struct{})
	l.After(Down, 3, func() {
		l.Stall()
		close(stalled)
	})
	c.Write([]byte("abcdef"))
	<-stalled
	got := make([]byte, 6)
	io.ReadFull(c, got[:3])
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(got[3:]); err == nil {
		t.Fatalf("%d bytes came through a stalled link", n)
	}
	l.Resume()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, got[3:]); err != nil || string(got) != "abcdef" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestCutAtAnExactByte(t *testing.T) {
	l := start(t, Options{})
	c := dial(t, l)
	l.After(Up, 100_000, l.Cut)
	go c.Write(make([]byte, 1<<20))
	if _, err := io.Copy(io.Discard, c); err == nil {
		t.Error("the connection ended without an error")
	}
	if n := l.Forwarded(Up); n != 100_000 {
		t.Errorf("%d bytes went up, want 100000", n)
	}
	// A new connection works.
	c = dial(t, l)
	c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestReject(t *testing.T) {
	l := start(t, Options{})
	l.Reject(true)
	if c, err := net.Dial("tcp", l.Addr()); err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a refused connection could be read from")
		}
		c.Close()
	}
	l.Reject(false)
	c := dial(t, l)
	c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestCloseWhileStalled(t *testing.T) {
	l := start(t, Options{Delay: time.Millisecond})
	c := dial(t, l)
	l.Stall()
	c.Write(make([]byte, 1<<20))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
