package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// link is a connection, with what every line of outcome names.
type link struct {
	*connect.Connection
	// Account is "" when the user may not know it.
	Account string
}

// openLink connects. verb is how the connection shows on the server.
func openLink(ctx context.Context, s connect.Settings, verb string) (*link, error) {
	c, err := connect.Connect(ctx, s, "jetkeep "+verb)
	if err != nil {
		return nil, err
	}
	l := &link{Connection: c}
	js, err := jsapi.New(c.NC, c.JS)
	if err != nil {
		c.Close()
		return nil, err
	}
	defer js.Close()
	if u, err := js.UserInfo(ctx); err == nil { // a user may lack this permission
		l.Account = u.Account
	}
	if err := context.Cause(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return l, nil
}

// target says where a verb works, for JSON.
type target struct {
	Server  string `json:"server"`
	Account string `json:"account,omitempty"`
	Context string `json:"context,omitempty"`
}

func (l *link) target() target {
	return target{Server: l.Resolved.Server, Account: l.Account, Context: l.Resolved.Context}
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
	return fmt.Sprintf("%s (%s)", t.Server, strings.Join(about, ", "))
}
