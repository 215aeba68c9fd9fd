package testnats

import (
	"net/url"
	"strings"
	"testing"

	"github.com/jetkeep/jetkeep/internal/slowlink"
)

// ProxyOptions say how a proxy's line behaves.
type ProxyOptions = slowlink.Options

// Proxy puts a line with delay in front of target, a host:port or nats:// URL.
// It is closed at the end of the test.
func Proxy(t testing.TB, target string, o ProxyOptions) *slowlink.Link {
	t.Helper()
	if strings.Contains(target, "://") {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatalf("proxy target: %v", err)
		}
		target = u.Host
	}
	l, err := slowlink.Start(target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
