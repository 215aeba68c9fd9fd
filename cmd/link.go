package cmd

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// link is a connection, with what every line of outcome names.
type link struct {
	*connect.Connection
	// account waits for the account's name, which is asked for while the work
	// begins; "" when the user may not know it.
	account func() string
	// StoreDir is set for a server in the process on that directory; the rest
	// goes with it: stop ends it, undo too, and leaves nothing behind.
	StoreDir   string
	stop, undo func() error
	warnings   []string
}

// openLink connects. verb is how the connection shows on the server.
func openLink(ctx context.Context, s connect.Settings, verb string) (*link, error) {
	c, err := connect.Connect(ctx, s, "jetkeep "+verb)
	if err != nil {
		return nil, err
	}
	js, err := jsapi.New(c.NC, c.JS)
	if err != nil {
		c.Close()
		return nil, err
	}
	name := make(chan string, 1)
	go func() {
		defer js.Close()
		u, err := js.UserInfo(ctx)
		if err != nil { // a user may lack this permission
			name <- ""
			return
		}
		name <- u.Account
	}()
	return &link{Connection: c, account: sync.OnceValue(func() string { return <-name })}, nil
}

// known is an account that needn't be asked for.
func known(account string) func() string { return func() string { return account } }

// target says where a verb works, for JSON.
type target struct {
	Server   string `json:"server,omitempty"`
	StoreDir string `json:"store_dir,omitempty"`
	Account  string `json:"account,omitempty"`
	Context  string `json:"context,omitempty"`
}

func (l *link) target() target {
	return target{Server: l.Resolved.Server, StoreDir: l.StoreDir, Account: l.account(), Context: l.Resolved.Context}
}

// String names server, account and context, for the line of outcome.
func (l *link) String() string { return l.target().String() }

func (t target) String() string {
	var about []string
	if t.Account != "" {
		about = append(about, "account "+t.Account)
	} else {
		about = append(about, "account unknown")
	}
	if t.Context != "" {
		about = append(about, "context "+t.Context)
	}
	return fmt.Sprintf("%s (%s)", t.where(), strings.Join(about, ", "))
}

// at is String, in front of it what it is.
func (l *link) at() string {
	if l.StoreDir != "" {
		return l.String()
	}
	return "server " + l.String()
}

// where is a server's URL, or a store directory.
func (t target) where() string {
	if t.StoreDir != "" {
		return "store directory " + t.StoreDir
	}
	return t.Server
}
