package testnats

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SystemUser is user and password of the system account, which every server
// here has. Connect with nats.UserInfo(SystemUser, SystemUser).
const SystemUser = "sys"

// Options describe a server. The zero value is a server with JetStream and
// without authentication, with a new store directory.
type Options struct {
	// Name is the server's name. Empty: a unique one.
	Name string
	// StoreDir is the server's store_dir, which holds jetstream/. Empty: a new
	// temporary directory.
	StoreDir string
	// NoJetStream leaves JetStream off.
	NoJetStream bool
	// MaxPayload in bytes. Zero: the server's default of 1 MiB.
	MaxPayload int
	// MaxMemory and MaxStore are the server's own limits. Zero: 256 MiB and
	// 64 GiB.
	MaxMemory, MaxStore int64
	// Domain is the JetStream domain.
	Domain string
	// EncryptionKey encrypts the store, with Cipher "chachapoly" or "aes".
	EncryptionKey, Cipher string
	// SyncInterval is how often the store is synced. Zero: hardly ever, for speed.
	SyncInterval time.Duration
	// Users are users of the global account. Connections without a user become
	// the first of them.
	Users []User
	// Accounts are accounts besides the system account. Connections without a
	// user become the first user of the first of them, if there are no Users.
	// With accounts, the global account has no JetStream.
	Accounts []Account
	// Conf is appended to the configuration as it is.
	Conf string
}

// Account is an account with JetStream and its limits. Zero limits are unlimited.
type Account struct {
	Name                   string
	MaxMemory, MaxStore    int64
	MaxStreams             int
	MaxConsumers           int
	MaxAckPending          int
	MemoryMaxStreamBytes   int64
	StoreMaxStreamBytes    int64
	MaxBytesRequired       bool
	NoJetStream            bool
	Exports, Imports, Conf string // lines of configuration, as they are
	// Users of the account. Empty: one with the account's name as user and
	// password.
	Users []User
}

// User is a user with permissions. Empty lists allow everything.
type User struct {
	Name string
	// Password is the name if empty.
	Password                             string
	PubAllow, PubDeny, SubAllow, SubDeny []string
	// Responses allows answering requests.
	Responses bool
}

// clusterConf is what a server of a cluster has besides its options.
type clusterConf struct {
	name   string
	port   int
	routes []int
}

// render writes the server's configuration. A port of -1 is a random one.
func (o Options) render(port int, c *clusterConf) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("server_name: %q", o.Name)
	line("listen: \"127.0.0.1:%d\"", port)
	if o.MaxPayload > 0 {
		line("max_payload: %d", o.MaxPayload)
		line("max_pending: %d", max(64<<20, o.MaxPayload))
	}
	if !o.NoJetStream {
		o.renderJetStream(line)
	}
	if c != nil {
		line("cluster {\n name: %q, listen: \"127.0.0.1:%d\", no_advertise: true, pool_size: 1", c.name, c.port)
		line(" routes: [")
		for _, p := range c.routes {
			line("  \"nats://127.0.0.1:%d\"", p)
		}
		line(" ]\n}")
	}
	o.renderUsers(line)
	line("%s", o.Conf)
	return b.String()
}

func (o Options) renderJetStream(line func(string, ...any)) {
	line("jetstream {\n store_dir: %q", o.StoreDir)
	line(" max_mem: %d\n max_file: %d", orDefault(o.MaxMemory, 256<<20), orDefault(o.MaxStore, 64<<30))
	line(" sync_interval: %q", orDefault(o.SyncInterval, 10*time.Minute))
	if o.Domain != "" {
		line(" domain: %q", o.Domain)
	}
	if o.EncryptionKey != "" {
		line(" key: %q", o.EncryptionKey)
	}
	if o.Cipher != "" {
		line(" cipher: %q", o.Cipher)
	}
	line("}")
}

func (o Options) renderUsers(line func(string, ...any)) {
	var anonymous string
	line("accounts {\n $SYS { users: [ {user: %q, password: %q} ] }", SystemUser, SystemUser)
	for i, a := range o.Accounts {
		if len(a.Users) == 0 {
			a.Users = []User{{Name: a.Name}}
		}
		if i == 0 {
			anonymous = a.Users[0].Name
		}
		a.render(line)
	}
	line("}")
	users := o.Users
	if len(users) == 0 && len(o.Accounts) == 0 {
		users = []User{{Name: "anyone"}}
	}
	if len(users) > 0 {
		anonymous = users[0].Name
		line("authorization {\n%s\n}", renderUserList(users))
	}
	line("no_auth_user: %q", anonymous)
}

func (a Account) render(line func(string, ...any)) {
	line(" %q {\n%s", a.Name, renderUserList(a.Users))
	if !a.NoJetStream {
		line("  jetstream {")
		limit := func(name string, v int64) {
			if v != 0 {
				line("   %s: %d", name, v)
			}
		}
		limit("max_mem", a.MaxMemory)
		limit("max_store", a.MaxStore)
		limit("max_streams", int64(a.MaxStreams))
		limit("max_consumers", int64(a.MaxConsumers))
		limit("max_ack_pending", int64(a.MaxAckPending))
		limit("mem_max_stream_bytes", a.MemoryMaxStreamBytes)
		limit("store_max_stream_bytes", a.StoreMaxStreamBytes)
		line("   max_bytes_required: %t\n  }", a.MaxBytesRequired)
	}
	line("%s\n%s\n%s\n }", a.Exports, a.Imports, a.Conf)
}

func renderUserList(users []User) string {
	var b strings.Builder
	b.WriteString("users: [\n")
	for _, u := range users {
		fmt.Fprintf(&b, "  {user: %q, password: %q, permissions: {", u.Name, orDefault(u.Password, u.Name))
		for _, p := range []struct {
			verb        string
			allow, deny []string
		}{{"publish", u.PubAllow, u.PubDeny}, {"subscribe", u.SubAllow, u.SubDeny}} {
			if len(p.allow)+len(p.deny) == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s: {", p.verb)
			if len(p.allow) > 0 {
				fmt.Fprintf(&b, "allow: %s, ", quoteAll(p.allow))
			}
			if len(p.deny) > 0 {
				fmt.Fprintf(&b, "deny: %s, ", quoteAll(p.deny))
			}
			b.WriteString("}, ")
		}
		if u.Responses {
			b.WriteString("allow_responses: true")
		}
		b.WriteString("}}\n")
	}
	b.WriteString(" ]")
	return b.String()
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
