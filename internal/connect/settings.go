// Package connect turns flags, the NATS_* environment and the contexts of the
// nats CLI into a connection, with that tool's names and rules: a flag wins
// over the environment, and the environment over the context.
//
// It never writes to the files of the contexts, never prints, and lets no
// secret into an error or a label. What it can't honour it refuses.
package connect

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Settings are what the user gave on the command line. Empty fields are taken
// from the environment, then from the context; the zero value connects as
// plain `nats` would.
type Settings struct {
	// Server is a URL or several, separated by commas (NATS_URL); in the end
	// nats://127.0.0.1:4222.
	Server string
	// Creds is a credentials file (NATS_CREDS), Nkey a file with a seed
	// (NATS_NKEY). Both may be a URI: file:, env:, data:, op:, nsc:.
	Creds string
	Nkey  string
	// User without Password is a token (NATS_USER, NATS_PASSWORD).
	User     string
	Password string
	Token    string // NATS_TOKEN
	// JWT and Seed (NATS_JWT, NATS_SEED) are the text itself, a file, or a URI
	// as above.
	JWT  string
	Seed string
	// Files for TLS: NATS_CERT, NATS_KEY, NATS_CA.
	TLSCert string
	TLSKey  string
	TLSCA   string
	// TLSFirst shakes hands before the server's greeting.
	TLSFirst bool
	// SocksProxy (NATS_SOCKS_PROXY) is a URL; "none" leaves out the context's.
	SocksProxy string
	// Context is a name or a .json file (NATS_CONTEXT), else the selected one.
	Context string
	// JSDomain and JSAPIPrefix say where JetStream is; give at most one.
	JSDomain    string
	JSAPIPrefix string
	// InboxPrefix is _INBOX if empty.
	InboxPrefix string
	// Timeout for connecting and for each request (NATS_TIMEOUT); zero is 5 s.
	Timeout time.Duration
}

const defaultTimeout = 5 * time.Second

// AddFlags adds a flag for each setting.
func (s *Settings) AddFlags(f *pflag.FlagSet) {
	f.StringVarP(&s.Server, "server", "s", "", "NATS server `URLs` ($NATS_URL)")
	f.StringVar(&s.Creds, "creds", "", "user credentials `file` ($NATS_CREDS)")
	f.StringVar(&s.Nkey, "nkey", "", "user NKey seed `file` ($NATS_NKEY)")
	f.StringVar(&s.User, "user", "", "user `name`, or a token ($NATS_USER)")
	f.StringVar(&s.Password, "password", "", "`password` of the user ($NATS_PASSWORD)")
	f.StringVar(&s.Token, "token", "", "authentication `token` ($NATS_TOKEN)")
	f.StringVar(&s.JWT, "jwt", "", "user JWT: `file`, URI or text ($NATS_JWT)")
	f.StringVar(&s.Seed, "seed", "", "user seed: `file`, URI or text ($NATS_SEED)")
	f.StringVar(&s.TLSCert, "tlscert", "", "TLS certificate `file` ($NATS_CERT)")
	f.StringVar(&s.TLSKey, "tlskey", "", "TLS private key `file` ($NATS_KEY)")
	f.StringVar(&s.TLSCA, "tlsca", "", "TLS certificate authority `file` ($NATS_CA)")
	f.BoolVar(&s.TLSFirst, "tlsfirst", false, "TLS handshake before the server's greeting")
	f.StringVar(&s.Context, "context", "", "NATS context `name` or .json file ($NATS_CONTEXT; else the selected one)")
	f.StringVar(&s.JSDomain, "js-domain", "", "JetStream `domain`")
	f.StringVar(&s.JSAPIPrefix, "js-api-prefix", "", "`prefix` of the JetStream API")
	f.StringVar(&s.InboxPrefix, "inbox-prefix", "", "`prefix` of inboxes")
	f.DurationVar(&s.Timeout, "timeout", 0, "`time` to wait for answers ($NATS_TIMEOUT; else 5s, or 1m with --store-dir)")
}

// environment returns the settings in the NATS_* variables.
func environment() (Settings, error) {
	e := Settings{
		Server: os.Getenv("NATS_URL"), Creds: os.Getenv("NATS_CREDS"), Nkey: os.Getenv("NATS_NKEY"),
		User: os.Getenv("NATS_USER"), Password: os.Getenv("NATS_PASSWORD"), Token: os.Getenv("NATS_TOKEN"),
		JWT: os.Getenv("NATS_JWT"), Seed: os.Getenv("NATS_SEED"),
		TLSCert: os.Getenv("NATS_CERT"), TLSKey: os.Getenv("NATS_KEY"), TLSCA: os.Getenv("NATS_CA"),
		SocksProxy: os.Getenv("NATS_SOCKS_PROXY"), Context: os.Getenv("NATS_CONTEXT"),
	}
	if t := os.Getenv("NATS_TIMEOUT"); t != "" {
		d, err := time.ParseDuration(t)
		if err != nil || d <= 0 {
			return e, fmt.Errorf("%w: NATS_TIMEOUT=%q isn't a duration such as 10s", ErrSettings, t)
		}
		e.Timeout = d
	}
	return e, nil
}

// String shows the settings without their secrets.
func (s Settings) String() string {
	var b strings.Builder
	b.WriteString("settings{")
	for _, f := range []struct {
		name, value string
		secret      bool
	}{
		{"server", redactServers(s.Server), false}, {"context", s.Context, false},
		{"creds", s.Creds, true}, {"nkey", s.Nkey, true}, {"user", s.User, true}, {"password", s.Password, true},
		{"token", s.Token, true}, {"jwt", s.JWT, true}, {"seed", s.Seed, true},
		{"tlscert", s.TLSCert, false}, {"tlskey", s.TLSKey, false}, {"tlsca", s.TLSCA, false},
		{"js-domain", s.JSDomain, false}, {"js-api-prefix", s.JSAPIPrefix, false}, {"inbox-prefix", s.InboxPrefix, false},
	} {
		if f.value == "" {
			continue
		}
		if f.secret {
			f.value = "***"
		}
		fmt.Fprintf(&b, " %s=%q", f.name, f.value)
	}
	b.WriteString(" }")
	return b.String()
}

// GoString is String, for %#v.
func (s Settings) GoString() string { return s.String() }
