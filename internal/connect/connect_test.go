package connect

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"

	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// clean gives the test an empty configuration directory, and no NATS_*.
func clean(t *testing.T) (dir string) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "NATS_") {
			t.Setenv(name, "")
		}
	}
	dir = t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	return dir
}

func write(t *testing.T, content string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func writeContext(t *testing.T, dir, name, content string) {
	t.Helper()
	write(t, content, dir, "nats", "context", name+".json")
}

func selectContext(t *testing.T, dir, name string) {
	t.Helper()
	write(t, name, dir, "nats", "context.txt")
}

func start(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true}
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

func connectTo(t *testing.T, s Settings) *Connection {
	t.Helper()
	c, err := Connect(t.Context(), s, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// user asks the server who has connected.
func user(t *testing.T, c *Connection) string {
	t.Helper()
	api, err := jsapi.New(c.NC, c.JS)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	u, err := api.UserInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return u.User
}

func TestPrecedence(t *testing.T) {
	dir := clean(t)
	writeContext(t, dir, "one", `{"url":"nats://one:1","user":"ctx","password":"ctxpw","jetstream_domain":"ctxdom","inbox_prefix":"_CTX","description":"d"}`)
	writeContext(t, dir, "two", `{"url":"nats://two:2","token":"ctxtoken","jetstream_api_prefix":"CTX.API"}`)
	creds, _, _ := userCreds(t, nil)
	credsFile := write(t, string(creds), dir, "u.creds")

	type auth struct{ user, password, creds, token, jwt, seed string }
	for _, tc := range []struct {
		name     string
		selected string
		env      map[string]string
		flags    Settings
		server   string
		from     Origin
		context  string
		ctxFrom  Origin
		explicit bool
		auth     auth
		domain   string
		prefix   string
	}{
		{name: "nothing", server: "nats://127.0.0.1:4222", from: FromDefault},
		{name: "selected", selected: "one", server: "nats://one:1", from: FromContext, context: "one", ctxFrom: FromSelection,
			auth: auth{user: "ctx", password: "ctxpw"}, domain: "ctxdom"},
		{name: "env names the context", selected: "one", env: map[string]string{"NATS_CONTEXT": "two"}, server: "nats://two:2", from: FromContext,
			context: "two", ctxFrom: FromEnvironment, explicit: true, auth: auth{token: "ctxtoken"}, prefix: "CTX.API"},
		{name: "flag names the context", env: map[string]string{"NATS_CONTEXT": "two"}, flags: Settings{Context: "one"}, server: "nats://one:1",
			from: FromContext, context: "one", ctxFrom: FromCommandLine, explicit: true, auth: auth{user: "ctx", password: "ctxpw"}, domain: "ctxdom"},
		{name: "env over context", selected: "one", env: map[string]string{"NATS_URL": "nats://env:3", "NATS_USER": "e", "NATS_PASSWORD": "epw"},
			server: "nats://env:3", from: FromEnvironment, context: "one", ctxFrom: FromSelection, auth: auth{user: "e", password: "epw"}, domain: "ctxdom"},
		{name: "flag over env", env: map[string]string{"NATS_URL": "nats://env:3", "NATS_USER": "e", "NATS_PASSWORD": "epw"},
			flags: Settings{Server: "nats://flag:4", User: "f", Password: "fpw"}, server: "nats://flag:4", from: FromCommandLine, explicit: true,
			auth: auth{user: "f", password: "fpw"}},
		{name: "the server named, the user from the selection", selected: "one", flags: Settings{Server: "nats://flag:4"},
			server: "nats://flag:4", from: FromCommandLine, context: "one", ctxFrom: FromSelection, auth: auth{user: "ctx", password: "ctxpw"}, domain: "ctxdom"},
		{name: "all that matters named", selected: "one", flags: Settings{Server: "nats://flag:4", Token: "t", JSDomain: "d"},
			server: "nats://flag:4", from: FromCommandLine, context: "one", ctxFrom: FromSelection, explicit: true, auth: auth{token: "t"}, domain: "d"},
		{name: "credentials over the user of the context", selected: "one", flags: Settings{Creds: credsFile},
			server: "nats://one:1", from: FromContext, context: "one", ctxFrom: FromSelection, auth: auth{creds: credsFile}, domain: "ctxdom"},
		{name: "credentials over the user of the environment", env: map[string]string{"NATS_USER": "e", "NATS_PASSWORD": "epw"}, flags: Settings{Creds: credsFile},
			server: "nats://127.0.0.1:4222", from: FromDefault, auth: auth{creds: credsFile}},
		{name: "a lone user is a token", flags: Settings{User: "tok"}, server: "nats://127.0.0.1:4222", from: FromDefault, auth: auth{token: "tok"}},
		{name: "user by flag, password by environment", env: map[string]string{"NATS_PASSWORD": "epw"}, flags: Settings{User: "f"},
			server: "nats://127.0.0.1:4222", from: FromDefault, auth: auth{user: "f", password: "epw"}},
		{name: "password over that of the context", selected: "one", env: map[string]string{"NATS_PASSWORD": "epw"},
			server: "nats://one:1", from: FromContext, context: "one", ctxFrom: FromSelection, auth: auth{user: "ctx", password: "epw"}, domain: "ctxdom"},
		{name: "a domain over the context's prefix", flags: Settings{Context: "two", JSDomain: "d"}, server: "nats://two:2", from: FromContext,
			context: "two", ctxFrom: FromCommandLine, explicit: true, auth: auth{token: "ctxtoken"}, domain: "d"},
		{name: "jwt and seed", env: map[string]string{"NATS_SEED": "sss"}, flags: Settings{JWT: "jjj"}, server: "nats://127.0.0.1:4222", from: FromDefault,
			auth: auth{jwt: "jjj", seed: "sss"}},
		{name: "a file as the context", flags: Settings{Context: filepath.Join(dir, "nats", "context", "two.json")}, server: "nats://two:2", from: FromContext,
			context: "two", ctxFrom: FromCommandLine, explicit: true, auth: auth{token: "ctxtoken"}, prefix: "CTX.API"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			selectContext(t, dir, tc.selected)
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			r, err := tc.flags.Resolve(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.Server != tc.server || r.ServerFrom != tc.from {
				t.Errorf("server %s (%s)", r.Server, r.ServerFrom)
			}
			if r.Context != tc.context || r.ContextFrom != tc.ctxFrom || r.Explicit() != tc.explicit {
				t.Errorf("context %q (%s), explicit %v", r.Context, r.ContextFrom, r.Explicit())
			}
			m := r.merged
			if got := (auth{m.User(), m.Password(), m.Creds(), m.Token(), m.UserJWT(), m.UserSeed()}); got != tc.auth {
				t.Errorf("auth %+v", got)
			}
			if r.Domain != tc.domain || r.APIPrefix != tc.prefix || r.Timeout != 5*time.Second {
				t.Errorf("domain %q, prefix %q, timeout %v", r.Domain, r.APIPrefix, r.Timeout)
			}
		})
	}
}

func TestRefusedSettings(t *testing.T) {
	dir := clean(t)
	for name, content := range map[string]string{
		"future":   `{"url":"nats://x","quantum_key":"k"}`,
		"harmless": `{"url":"nats://x","quantum_key":"","color_scheme":"yellow"}`,
		"password": `{"url":"nats://x","password":"hunter2"}`,
		"seed":     `{"url":"nats://x","user_seed":"hunter2"}`,
		"cert":     `{"url":"nats://x","cert":"c.pem"}`,
		"two":      `{"url":"nats://x","user":"u","password":"hunter2","creds":"c"}`,
		"place":    `{"url":"nats://x","jetstream_domain":"d","jetstream_api_prefix":"p"}`,
		"broken":   `{"token":"hunter2"`,
	} {
		writeContext(t, dir, name, content)
	}
	for _, tc := range []struct {
		name  string
		flags Settings
		env   string
		want  string // empty: accepted
	}{
		{"harmless", Settings{Context: "harmless"}, "", ""},
		{"unknown field", Settings{Context: "future"}, "", `context "future" (named by --context): field "quantum_key" isn't supported`},
		{"password alone", Settings{Context: "password"}, "", `context "password" has a password and no user`},
		{"seed alone", Settings{Context: "seed"}, "", "user_seed and no user_jwt"},
		{"cert alone", Settings{Context: "cert"}, "", "only one of cert and key"},
		{"two ways in a context", Settings{Context: "two"}, "", "user and creds of the context can't be combined"},
		{"two places in a context", Settings{Context: "place"}, "", "domain and an API prefix can't be combined"},
		{"not JSON", Settings{Context: "broken"}, "", `context "broken" (named by --context): not a JSON object`},
		{"no such context", Settings{Context: "nope"}, "", `there is no NATS context "nope" (named by --context)`},
		{"two ways as flags", Settings{Creds: "a", Nkey: "b"}, "", "creds and nkey of the command line can't be combined"},
		{"no such file", Settings{Creds: filepath.Join(dir, "nope")}, "", "credentials: open " + filepath.Join(dir, "nope")},
		{"not credentials", Settings{Creds: filepath.Join(dir, "nats", "context", "cert.json")}, "", "credentials: "},
		{"flag password", Settings{Password: "hunter2", Token: "t"}, "", "the password of the command line needs a user"},
		{"flag seed", Settings{Seed: "hunter2"}, "", "the seed of the command line needs a JWT"},
		{"key alone", Settings{TLSKey: "k"}, "", "go together"},
		{"environment's timeout", Settings{}, "NATS_TIMEOUT=5", `NATS_TIMEOUT="5" isn't a duration`},
		{"environment's context", Settings{}, "NATS_CONTEXT=nope", `"nope" (named by NATS_CONTEXT)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if k, v, ok := strings.Cut(tc.env, "="); ok {
				t.Setenv(k, v)
			}
			_, err := tc.flags.Resolve(t.Context())
			switch {
			case tc.want == "" && err == nil:
			case err == nil || !errors.Is(err, ErrSettings) || !strings.Contains(err.Error(), tc.want):
				t.Errorf("got %v", err)
			case strings.Contains(err.Error(), "hunter2"):
				t.Errorf("a secret in %v", err)
			}
		})
	}
	selectContext(t, dir, "gone")
	if _, err := (Settings{Server: "nats://x"}).Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), `"gone" (the selected one)`) {
		t.Errorf("a selected context that is gone: %v", err)
	}
}

// TestNoHome is case U1: without a home nothing fails until a context is asked
// for.
func TestNoHome(t *testing.T) {
	clean(t)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	s := start(t, nil)
	connectTo(t, Settings{Server: s.ClientURL()})
	if _, err := Connect(t.Context(), Settings{Context: "x"}, "test"); !errors.Is(err, ErrSettings) {
		t.Errorf("got %v", err)
	}
}

func TestContextsAreOnlyRead(t *testing.T) {
	dir := clean(t)
	s := start(t, nil)
	writeContext(t, dir, "c", fmt.Sprintf(`{"url":%q}`, s.ClientURL()))
	selectContext(t, dir, "c")
	before := listing(t, dir)
	c := connectTo(t, Settings{})
	if want := fmt.Sprintf("%s (context c)", s.ClientURL()); c.Label() != want {
		t.Errorf("label %s", c.Label())
	}
	if after := listing(t, dir); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime(), info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestUserTokenAndNKey(t *testing.T) {
	dir := clean(t)
	kp, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	pub, _ := kp.PublicKey()
	seed, _ := kp.Seed()
	s := start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "p"}}
		o.Nkeys = []*server.NkeyUser{{Nkey: pub}}
	})
	url := s.ClientURL()
	if got := user(t, connectTo(t, Settings{Server: url, User: "u", Password: "p"})); got != "u" {
		t.Errorf("user %q", got)
	}
	if got := user(t, connectTo(t, Settings{Server: strings.Replace(url, "://", "://u:p@", 1)})); got != "u" {
		t.Errorf("user in the URL %q", got)
	}
	seedFile := write(t, string(seed), dir, "user.nk")
	if got := user(t, connectTo(t, Settings{Server: url, Nkey: seedFile})); got != pub {
		t.Errorf("nkey %q", got)
	}
	t.Setenv("THE_SEED", string(seed))
	if got := user(t, connectTo(t, Settings{Server: url, Nkey: "env://THE_SEED"})); got != pub {
		t.Errorf("nkey from a URI %q", got)
	}
	// A seed where a file belongs must not be repeated.
	_, err = Connect(t.Context(), Settings{Server: url, Nkey: string(seed)}, "test")
	if !errors.Is(err, ErrSettings) || strings.Contains(err.Error(), string(seed)) {
		t.Errorf("got %v", err)
	}

	token := start(t, func(o *server.Options) { o.Authorization = "s3cret-token" })
	connectTo(t, Settings{Server: token.ClientURL(), Token: "s3cret-token"})
	connectTo(t, Settings{Server: token.ClientURL(), User: "s3cret-token"})
}

// userCreds makes an operator, an account with JetStream left out, and a user
// of it. It returns the credentials file, the JWT and the seed.
func userCreds(t *testing.T, o *server.Options) (creds []byte, userJWT, seed string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	operator, err := nkeys.CreateOperator()
	check(err)
	account, err := nkeys.CreateAccount()
	check(err)
	usr, err := nkeys.CreateUser()
	check(err)
	operatorPub, _ := operator.PublicKey()
	accountPub, _ := account.PublicKey()
	userPub, _ := usr.PublicKey()
	rawSeed, _ := usr.Seed()
	oc := jwt.NewOperatorClaims(operatorPub)
	oc.Name = "O"
	operatorJWT, err := oc.Encode(operator)
	check(err)
	ac := jwt.NewAccountClaims(accountPub)
	ac.Name = "A"
	accountJWT, err := ac.Encode(operator)
	check(err)
	uc := jwt.NewUserClaims(userPub)
	uc.Name = "U"
	userJWT, err = uc.Encode(account)
	check(err)
	creds, err = jwt.FormatUserConfig(userJWT, rawSeed)
	check(err)
	if o != nil {
		parsed, err := jwt.DecodeOperatorClaims(operatorJWT)
		check(err)
		resolver := &server.MemAccResolver{}
		check(resolver.Store(accountPub, accountJWT))
		o.TrustedOperators = []*jwt.OperatorClaims{parsed}
		o.AccountResolver = resolver
	}
	return creds, userJWT, string(rawSeed)
}

func TestCredsAndJWT(t *testing.T) {
	dir := clean(t)
	var creds []byte
	var userJWT, seed string
	s := start(t, func(o *server.Options) { creds, userJWT, seed = userCreds(t, o) })
	url := s.ClientURL()
	file := write(t, string(creds), dir, "u.creds")
	connectTo(t, Settings{Server: url, Creds: file})
	connectTo(t, Settings{Server: url, JWT: userJWT, Seed: seed})
	connectTo(t, Settings{Server: url, JWT: write(t, userJWT, dir, "u.jwt"), Seed: "file://" + write(t, seed, dir, "u.nk")})
	writeContext(t, dir, "c", fmt.Sprintf(`{"url":%q,"creds":%q}`, url, file))
	t.Setenv("NATS_CONTEXT", "c")
	connectTo(t, Settings{})

	foreign, _, _ := userCreds(t, nil)
	_, err := Connect(t.Context(), Settings{Creds: write(t, string(foreign), dir, "f.creds")}, "test")
	if !errors.Is(err, ErrAuth) || !strings.Contains(err.Error(), "(context c)") {
		t.Errorf("foreign credentials: %v", err)
	}
}

// certificates writes an authority and a certificate for server and client.
func certificates(t *testing.T, dir string) (ca, cert, key string) {
	t.Helper()
	newKey := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey, leafKey := newKey(), newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, template, template, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotBefore: template.NotBefore, NotAfter: template.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, template, leafKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(name, kind string, der []byte) string {
		return write(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})), dir, name)
	}
	return encode("ca.pem", "CERTIFICATE", caDER), encode("cert.pem", "CERTIFICATE", leafDER), encode("key.pem", "PRIVATE KEY", keyDER)
}

func TestTLS(t *testing.T) {
	dir := clean(t)
	ca, cert, key := certificates(t, dir)
	withTLS := func(first bool) func(*server.Options) {
		return func(o *server.Options) {
			cfg, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: cert, KeyFile: key, CaFile: ca, Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			o.TLSConfig, o.TLSVerify, o.TLSHandshakeFirst, o.TLSTimeout = cfg, true, first, 2
		}
	}
	s := start(t, withTLS(false))
	url := strings.Replace(s.ClientURL(), "tls://", "nats://", 1)
	c := connectTo(t, Settings{Server: url, TLSCA: ca, TLSCert: cert, TLSKey: key})
	if state, err := c.NC.TLSConnectionState(); err != nil || state.Version < tls.VersionTLS12 {
		t.Errorf("TLS state %v", err)
	}
	_, err := Connect(t.Context(), Settings{Server: url, TLSCert: cert, TLSKey: key}, "test")
	if !errors.Is(err, ErrConnect) || !strings.Contains(err.Error(), "--tlsca") {
		t.Errorf("without the authority: %v", err)
	}
	if _, err = Connect(t.Context(), Settings{Server: url, TLSCA: ca}, "test"); !errors.Is(err, ErrConnect) {
		t.Errorf("without a client certificate: %v", err)
	}

	first := start(t, withTLS(true))
	url = strings.Replace(first.ClientURL(), "tls://", "nats://", 1)
	connectTo(t, Settings{Server: url, TLSCA: ca, TLSCert: cert, TLSKey: key, TLSFirst: true})
	t.Setenv("NATS_CA", ca)
	t.Setenv("NATS_CERT", cert)
	t.Setenv("NATS_KEY", key)
	writeContext(t, dir, "c", fmt.Sprintf(`{"url":%q,"tls_first":true}`, url))
	connectTo(t, Settings{Context: "c"})

	plain := start(t, nil)
	_, err = Connect(t.Context(), Settings{Server: strings.Replace(plain.ClientURL(), "nats://", "tls://", 1)}, "test")
	if !errors.Is(err, ErrConnect) || !strings.Contains(err.Error(), "doesn't offer it") {
		t.Errorf("TLS to a plain server: %v", err)
	}
}

func TestErrorsNameTheServer(t *testing.T) {
	clean(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()

	// A listener that never greets.
	_, err = Connect(t.Context(), Settings{Server: "nats://" + addr, Timeout: 50 * time.Millisecond}, "test")
	if !errors.Is(err, ErrConnect) || !strings.HasSuffix(err.Error(), "no answer in time") {
		t.Errorf("silent server: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = Connect(ctx, Settings{Server: "nats://" + addr}, "test"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended context: %v", err)
	}
	_ = l.Close()

	_, err = Connect(t.Context(), Settings{Server: "nats://u:hunter2@" + addr}, "test")
	want := "no connection: cannot reach nats://" + addr + ": connection refused"
	if !errors.Is(err, ErrConnect) || err.Error() != want {
		t.Errorf("refused: %v", err)
	}
	_, err = Connect(t.Context(), Settings{Server: "nats://u:hunter2@host:port:port"}, "test")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("bad URL: %v", err)
	}
	s := start(t, func(o *server.Options) { o.Username, o.Password = "u", "p" })
	_, err = Connect(t.Context(), Settings{Server: s.ClientURL(), User: "u", Password: "hunter2"}, "test")
	if want := "authentication failed: " + s.ClientURL() + ": Authorization Violation"; !errors.Is(err, ErrAuth) || err.Error() != want {
		t.Errorf("wrong password: %v", err)
	}
}

func TestSecretsDontPrint(t *testing.T) {
	clean(t)
	s := Settings{Server: "nats://u:hunter2@a,nats://hunter2@b", User: "u", Password: "hunter2", Token: "hunter2", JWT: "hunter2", Seed: "hunter2", Creds: "data:;base64,hunter2"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, s); strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", format, text)
		}
	}
	if got := redactServers(s.Server); got != "nats://a,nats://b" {
		t.Errorf("servers %s", got)
	}
	r, err := Settings{Server: s.Server, Token: "hunter2"}.Resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format+format, r, *r); strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", format, text)
		}
	}
}

func TestConnectionOptions(t *testing.T) {
	clean(t)
	s := start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"x"}}}}}
	})
	stderr := os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w
	c := connectTo(t, Settings{Server: s.ClientURL(), User: "u", Password: "p", InboxPrefix: "_MINE", JSDomain: "hub", Timeout: 3 * time.Second})
	_ = c.NC.Publish("x", nil)
	_ = c.NC.Flush()
	for end := time.Now().Add(2 * time.Second); c.NC.LastError() == nil && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	os.Stderr = stderr
	_ = w.Close()
	var printed bytes.Buffer
	_, _ = printed.ReadFrom(r)
	if printed.Len() > 0 {
		t.Errorf("on stderr: %s", printed.String())
	}
	if c.JS != (jsapi.Options{Domain: "hub", Timeout: 3 * time.Second}) {
		t.Errorf("JetStream %+v", c.JS)
	}
	if inbox := c.NC.NewInbox(); !strings.HasPrefix(inbox, "_MINE.") {
		t.Errorf("inbox %s", inbox)
	}
	s.Shutdown()
	for end := time.Now().Add(5 * time.Second); !c.NC.IsReconnecting() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if err := c.NC.Publish("y", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("publish while disconnected: %v", err)
	}
}

func TestFlags(t *testing.T) {
	var s Settings
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	s.AddFlags(f)
	err := f.Parse(strings.Fields("-s a --creds b --nkey c --user d --password e --token f --jwt g --seed h --tlscert i --tlskey j --tlsca k --tlsfirst" +
		" --context l --js-domain m --js-api-prefix n --inbox-prefix o --timeout 7s"))
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{Server: "a", Creds: "b", Nkey: "c", User: "d", Password: "e", Token: "f", JWT: "g", Seed: "h", TLSCert: "i", TLSKey: "j", TLSCA: "k",
		TLSFirst: true, Context: "l", JSDomain: "m", JSAPIPrefix: "n", InboxPrefix: "o", Timeout: 7 * time.Second}
	if s != want {
		t.Errorf("got %v", s)
	}
}
