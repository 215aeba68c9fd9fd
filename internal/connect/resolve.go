package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jsm.go/natscontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// ErrSettings says that the settings contradict each other, name something
// that isn't there, or can't be honoured. No connection was tried.
var ErrSettings = errors.New("connection settings")

// Origin says where a setting came from.
type Origin string

// The origins, strongest first.
const (
	FromCommandLine Origin = "command line"
	FromEnvironment Origin = "environment"
	FromContext     Origin = "context"
	FromSelection   Origin = "selected context"
	FromDefault     Origin = "default"
)

// Resolved is what the settings come to.
type Resolved struct {
	// Server is the URL or URLs, without credentials.
	Server     string
	ServerFrom Origin
	// Context is the name of the context in use; both are empty when there is
	// none. ContextFrom tells a named one from one that is merely selected.
	Context     string
	ContextFrom Origin
	// Domain, APIPrefix and InboxPrefix are empty unless set.
	Domain      string
	APIPrefix   string
	InboxPrefix string
	Timeout     time.Duration

	servers  string   // with credentials
	secrets  []string // must not appear in errors
	selected bool     // the selected context decides where this leads
	merged   *natscontext.Context
}

// Explicit reports whether the target was named on the command line or in
// NATS_*. It's false when the server, the user or the place of JetStream comes
// from the context that happens to be selected, or from nowhere.
func (r *Resolved) Explicit() bool {
	return !r.selected && (r.ServerFrom == FromCommandLine || r.ServerFrom == FromEnvironment || r.ServerFrom == FromContext)
}

// String names the server and the context, and nothing secret.
func (r Resolved) String() string {
	if r.Context == "" {
		return r.Server
	}
	return fmt.Sprintf("%s (context %s)", r.Server, r.Context)
}

// GoString is String, for %#v.
func (r Resolved) GoString() string { return r.String() }

// layer is one source of settings.
type layer struct {
	Settings
	from Origin
}

// Resolve puts the command line, the environment and the context together. It
// reads files and may run nsc or op when a context says so, but doesn't
// connect.
func (s Settings) Resolve(ctx context.Context) (*Resolved, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	flags := s
	if flags.Timeout < 0 {
		return nil, fmt.Errorf("%w: negative timeout", ErrSettings)
	}
	stored, from, err := loadContext(ctx, flags.Context, env.Context)
	if err != nil {
		return nil, err
	}
	layers := []layer{{flags, FromCommandLine}, {env, FromEnvironment}}
	r := &Resolved{}
	if stored != nil {
		layers = append(layers, layer{contextSettings(stored), FromContext})
		r.Context, r.ContextFrom = stored.Name, from
		if err := checkContext(stored); err != nil {
			return nil, err
		}
	}
	return r, r.merge(layers, stored)
}

// resolveContext is Resolve with a context alone: neither the command line nor
// the environment adds to it.
func resolveContext(ctx context.Context, name string) (*Resolved, error) {
	stored, err := loadNamed(ctx, name)
	switch {
	case errors.Is(err, natscontext.ErrNotFound):
		return nil, fmt.Errorf("%w: there is no NATS context %q", ErrSettings, name)
	case err != nil:
		return nil, fmt.Errorf("%w: context %q: %w", ErrSettings, name, err)
	}
	if err := checkContext(stored); err != nil {
		return nil, err
	}
	r := &Resolved{Context: stored.Name, ContextFrom: FromCommandLine}
	return r, r.merge([]layer{{contextSettings(stored), FromContext}}, stored)
}

// merge fills r from the layers, strongest first.
func (r *Resolved) merge(layers []layer, stored *natscontext.Context) error {
	for _, l := range layers {
		r.secrets = append(r.secrets, l.Password, l.Token, l.JWT, l.Seed)
		r.secrets = append(r.secrets, urlSecrets(l.Server)...)
		if l.Password == "" && l.from != FromContext {
			r.secrets = append(r.secrets, l.User) // may be a token
		}
	}
	first := func(get func(Settings) string) (string, Origin) {
		for _, l := range layers {
			if v := get(l.Settings); v != "" {
				return v, l.from
			}
		}
		return "", FromDefault
	}
	var final Settings
	final.Server, r.ServerFrom = first(func(s Settings) string { return s.Server })
	if final.Server == "" {
		final.Server = nats.DefaultURL
	}
	authFrom, err := final.takeAuth(layers)
	if err != nil {
		return r.scrub(err)
	}
	placeFrom := final.takePlace(layers)
	final.TLSCert, _ = first(func(s Settings) string { return s.TLSCert })
	final.TLSKey, _ = first(func(s Settings) string { return s.TLSKey })
	final.TLSCA, _ = first(func(s Settings) string { return s.TLSCA })
	final.SocksProxy, _ = first(func(s Settings) string { return s.SocksProxy })
	final.InboxPrefix, _ = first(func(s Settings) string { return s.InboxPrefix })
	for _, l := range layers {
		final.TLSFirst = final.TLSFirst || l.TLSFirst
		if final.Timeout == 0 {
			final.Timeout = l.Timeout
		}
	}
	if final.Timeout == 0 {
		final.Timeout = defaultTimeout
	}
	if r.ContextFrom == FromSelection {
		r.selected = slices.Contains([]Origin{r.ServerFrom, authFrom, placeFrom}, FromContext)
	}
	if err := final.check(); err != nil {
		return r.scrub(err)
	}
	r.servers, r.Server = final.Server, redactServers(final.Server)
	r.Domain, r.APIPrefix, r.InboxPrefix, r.Timeout = final.JSDomain, final.JSAPIPrefix, final.InboxPrefix, final.Timeout
	r.merged, err = final.natsContext(stored)
	return r.scrub(err)
}

// methods returns the ways to authenticate that are set, tokens apart since
// they can go with others.
func (s *Settings) methods() []string {
	var m []string
	for _, f := range []struct{ name, value string }{
		{"user", s.User}, {"creds", s.Creds}, {"nkey", s.Nkey}, {"jwt", s.JWT},
	} {
		if f.value != "" {
			m = append(m, f.name)
		}
	}
	return m
}

// takeAuth takes the way to authenticate from the strongest layer that has
// one, so that credentials of a weaker layer can't win over it. A password or
// seed may also come from the command line or environment while the user or
// JWT that it belongs to comes from somewhere else.
func (s *Settings) takeAuth(layers []layer) (Origin, error) {
	i := slices.IndexFunc(layers, func(l layer) bool { return len(l.methods()) > 0 || l.Token != "" })
	if i < 0 {
		return FromDefault, refuseHalves(s, layers)
	}
	owner := layers[i]
	if m := owner.methods(); len(m) > 1 {
		return owner.from, fmt.Errorf("%w: %s of the %s can't be combined, choose one", ErrSettings, strings.Join(m, " and "), owner.from)
	}
	s.User, s.Creds, s.Nkey, s.JWT, s.Token = owner.User, owner.Creds, owner.Nkey, owner.JWT, owner.Token
	for _, l := range append(slices.Clone(layers), owner) {
		if l.from == FromContext && owner.from != FromContext {
			continue
		}
		if s.User != "" && s.Password == "" {
			s.Password = l.Password
		}
		if s.JWT != "" && s.Seed == "" {
			s.Seed = l.Seed
		}
	}
	if err := refuseHalves(s, layers[:i+1]); err != nil {
		return owner.from, err
	}
	if s.User != "" && s.Password == "" && owner.from != FromContext { // as the nats CLI reads it
		if s.Token != "" {
			return owner.from, fmt.Errorf("%w: a user without a password is a token, and there is a token too", ErrSettings)
		}
		s.User, s.Token = "", s.User
	}
	s.JWT, s.Seed = fileURI(s.JWT), fileURI(s.Seed)
	return owner.from, nil
}

// refuseHalves refuses a password or seed that nothing uses.
func refuseHalves(s *Settings, layers []layer) error {
	for _, l := range layers {
		if l.Password != "" && s.User == "" {
			return fmt.Errorf("%w: the password of the %s needs a user", ErrSettings, l.from)
		}
		if l.Seed != "" && s.JWT == "" {
			return fmt.Errorf("%w: the seed of the %s needs a JWT", ErrSettings, l.from)
		}
	}
	return nil
}

// takePlace takes domain and API prefix from the strongest layer that has one.
func (s *Settings) takePlace(layers []layer) Origin {
	for _, l := range layers {
		if l.JSDomain != "" || l.JSAPIPrefix != "" {
			s.JSDomain, s.JSAPIPrefix = l.JSDomain, l.JSAPIPrefix
			return l.from
		}
	}
	return FromDefault
}

// check refuses what doesn't fit together, and files that can't be read.
func (s *Settings) check() error {
	if s.JSDomain != "" && s.JSAPIPrefix != "" {
		return fmt.Errorf("%w: a JetStream domain and an API prefix can't be combined", ErrSettings)
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return fmt.Errorf("%w: a TLS certificate and its key go together, one is missing", ErrSettings)
	}
	for _, f := range []struct {
		name, path string
		sound      func([]byte) error
	}{
		{"credentials", s.Creds, soundCreds}, {"NKey", s.Nkey, nil},
		{"TLS certificate", s.TLSCert, nil}, {"TLS key", s.TLSKey, nil}, {"TLS authority", s.TLSCA, nil},
	} {
		if f.path == "" || strings.Contains(f.path, ":") || strings.ContainsAny(f.path, "~$") {
			continue // a URI, or natscontext expands it
		}
		data, err := os.ReadFile(f.path)
		if err == nil && f.sound != nil {
			err = f.sound(data)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrSettings, f.name, err)
		}
	}
	return nil
}

// soundCreds reports a credentials file that nats.go couldn't use: it would
// say so only while connecting, as if the server were at fault.
func soundCreds(data []byte) error {
	if _, err := nkeys.ParseDecoratedJWT(data); err != nil {
		return err
	}
	_, err := nkeys.ParseDecoratedUserNKey(data)
	return err
}

// natsContext makes a context of the settings, which then makes the options of
// nats.go. The stored one adds what only contexts have.
func (s *Settings) natsContext(stored *natscontext.Context) (*natscontext.Context, error) {
	opts := []natscontext.Option{
		natscontext.WithServerURL(s.Server), natscontext.WithCreds(s.Creds), natscontext.WithNKey(s.Nkey),
		natscontext.WithUser(s.User), natscontext.WithPassword(s.Password), natscontext.WithToken(s.Token),
		natscontext.WithUserJWT(s.JWT), natscontext.WithUserSeed(s.Seed),
		natscontext.WithCertificate(s.TLSCert), natscontext.WithKey(s.TLSKey), natscontext.WithCA(s.TLSCA),
		natscontext.WithSocksProxy(s.SocksProxy), natscontext.WithInboxPrefix(s.InboxPrefix),
	}
	if s.TLSFirst {
		opts = append(opts, natscontext.WithTLSHandshakeFirst())
	}
	if stored != nil {
		opts = append(opts, natscontext.WithWindowsCertStore(stored.WindowsCertStore()),
			natscontext.WithWindowsCertStoreMatch(stored.WindowsCertStoreMatch()),
			natscontext.WithWindowsCertStoreMatchBy(stored.WindowsCertStoreMatchBy()),
			natscontext.WithWindowsCaCertsMatch(stored.WindowsCaCertsMatch()...))
	}
	return natscontext.New("", false, opts...)
}

// loadContext loads the context that is named, or selected, or none. Without a
// home directory none is selected.
func loadContext(ctx context.Context, flag, env string) (*natscontext.Context, Origin, error) {
	name, from := flag, FromCommandLine
	if name == "" {
		name, from = env, FromEnvironment
	}
	if name == "" {
		from = FromSelection
		var err error
		if name, err = natscontext.NewDefaultFileBackend().Selected(ctx); err != nil {
			return nil, FromDefault, nil
		}
	}
	c, err := loadNamed(ctx, name)
	switch {
	case errors.Is(err, natscontext.ErrNotFound):
		err = fmt.Errorf("%w: there is no NATS context %q (%s)", ErrSettings, name, contextOrigin(from))
	case err != nil:
		err = fmt.Errorf("%w: context %q (%s): %w", ErrSettings, name, contextOrigin(from), err)
	}
	return c, from, err
}

// loadNamed loads the context of that name, or in the .json file of that path.
func loadNamed(ctx context.Context, name string) (*natscontext.Context, error) {
	if info, err := os.Stat(name); err == nil && !info.IsDir() && strings.HasSuffix(name, ".json") {
		single := natscontext.NewSingleFileBackend(name)
		return loadFrom(ctx, single, single.Name())
	}
	return loadFrom(ctx, natscontext.NewDefaultFileBackend(), name)
}

func contextOrigin(o Origin) string {
	switch o {
	case FromCommandLine:
		return "named by --context"
	case FromEnvironment:
		return "named by NATS_CONTEXT"
	}
	return "the selected one"
}

// knownFields are the members of a context that this package honours, and
// those that mean nothing to a program without colours and advisories.
var knownFields = strings.Fields(`name description url socks_proxy token user password creds nkey cert key ca nsc
	jetstream_domain jetstream_api_prefix jetstream_event_prefix inbox_prefix user_jwt user_seed color_scheme tls_first
	windows_cert_store windows_cert_match_by windows_cert_match windows_ca_certs_match`)

// loadFrom loads a context after looking for members that it would lose.
func loadFrom(ctx context.Context, store natscontext.Backend, name string) (*natscontext.Context, error) {
	raw, err := store.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, fmt.Errorf("not a JSON object")
	}
	for m, v := range members {
		empty := slices.Contains([]string{`""`, "null", "false", "0", "[]", "{}"}, string(v))
		if !empty && !slices.Contains(knownFields, m) {
			return nil, fmt.Errorf("field %q isn't supported", m)
		}
	}
	return natscontext.NewRegistry(store).Load(ctx, name)
}

// checkContext refuses half settings that would be left out in silence.
func checkContext(c *natscontext.Context) error {
	switch {
	case c.Password() != "" && c.User() == "":
		return fmt.Errorf("%w: context %q has a password and no user", ErrSettings, c.Name)
	case c.UserSeed() != "" && c.UserJWT() == "":
		return fmt.Errorf("%w: context %q has a user_seed and no user_jwt", ErrSettings, c.Name)
	case (c.Certificate() == "") != (c.Key() == ""):
		return fmt.Errorf("%w: context %q has only one of cert and key", ErrSettings, c.Name)
	}
	return nil
}

// contextSettings reads a context as settings.
func contextSettings(c *natscontext.Context) Settings {
	return Settings{
		Server: c.ServerURL(), Creds: c.Creds(), Nkey: c.NKey(), User: c.User(), Password: c.Password(), Token: c.Token(),
		JWT: c.UserJWT(), Seed: c.UserSeed(), TLSCert: c.Certificate(), TLSKey: c.Key(), TLSCA: c.CA(),
		TLSFirst: c.TLSHandshakeFirst(), SocksProxy: c.SocksProxy(),
		JSDomain: c.JSDomain(), JSAPIPrefix: c.JSAPIPrefix(), InboxPrefix: c.InboxPrefix(),
	}
}

// fileURI turns the name of a file into a URI that natscontext reads.
func fileURI(v string) string {
	if v == "" || strings.Contains(v, ":") {
		return v
	}
	if info, err := os.Stat(v); err == nil && info.Mode().IsRegular() {
		return "file://" + v
	}
	return v
}
