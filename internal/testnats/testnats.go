// Package testnats gives tests real NATS servers: single ones and clusters of
// three in the process, server binaries of any version as child processes,
// slow links, small disks, and realistic streams to fill them with.
//
// Nothing of NATS is mocked. Everything listens on loopback only, lives in the
// test's temporary directory, and is gone when the test ends. The package is
// for tests; nothing else may import it.
package testnats

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
)

// patience bounds every wait for a server. Waits end as soon as what they wait
// for is there; the bound is only reached when something is wrong.
const patience = 30 * time.Second

var names atomic.Uint64

// Name returns a name that no other call in this process returns, made of the
// test's name, and fit for a stream, a bucket, an account or a subject token.
func Name(t testing.TB) string {
	clean := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, t.Name())
	if len(clean) > 60 {
		clean = clean[len(clean)-60:]
	}
	return fmt.Sprintf("%s_%d", clean, names.Add(1))
}

// missing skips the test for want of something of the machine. In CI nothing
// may be missing: there it fails.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// connect opens a connection that is closed at the end of the test.
func connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	all := append([]nats.Option{
		nats.Name(t.Name()),
		nats.Timeout(patience),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)
	nc, err := nats.Connect(url, all...)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Eventually calls f until it reports nil, and fails the test with its last
// error when that takes too long.
func Eventually(t testing.TB, f func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
