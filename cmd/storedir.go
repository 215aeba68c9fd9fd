package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/embedded"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/snapshot"
	"github.com/jetkeep/jetkeep/internal/ui"
	"github.com/jetkeep/jetkeep/restore"
)

// storeFlags name a stopped server's store directory in place of a connection.
type storeFlags struct {
	Dir     string
	Account string
	KeyFile string
	Cipher  string
	// connection are the flags that a store directory has no use for.
	connection *pflag.FlagSet
}

func (s *storeFlags) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&s.Dir, "store-dir", "", "`directory` of a stopped nats-server (its store_dir), in place of a server")
	f.StringVar(&s.Account, "account", "", "`name` of the account's directory in there (in operator mode its public key); may be left out if only one has streams")
	f.StringVar(&s.KeyFile, "store-key-file", "", "`file` with the key of an encrypted store directory ($JETKEEP_STORE_KEY)")
}

// rival notes the flags that a store directory has no use for.
func (s *storeFlags) rival(g flagGroup) flagGroup {
	s.connection = g.flags
	return g
}

// check refuses flags that don't go together.
func (s *storeFlags) check() error {
	if s.Dir == "" {
		for _, f := range []struct{ name, value string }{
			{"account", s.Account}, {"store-key-file", s.KeyFile}, {"store-cipher", s.Cipher},
		} {
			if f.value != "" {
				return usagef("--%s is for --store-dir, which isn't given", f.name)
			}
		}
		return nil
	}
	if s.Cipher != "" && s.Cipher != "chacha" && s.Cipher != embedded.CipherChaCha && s.Cipher != embedded.CipherAES {
		return usagef("--store-cipher %q is neither %s nor %s", s.Cipher, embedded.CipherChaCha, embedded.CipherAES)
	}
	var err error
	s.connection.VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "timeout" && err == nil {
			err = usagef("--store-dir works without a server, and --%s is about one: give one of them", f.Name)
		}
	})
	return err
}

// key reads the key of an encrypted store.
func (s *storeFlags) key() (string, error) {
	if s.KeyFile == "" {
		return os.Getenv("JETKEEP_STORE_KEY"), nil
	}
	data, err := os.ReadFile(s.KeyFile)
	if err != nil {
		return "", usagef("--store-key-file: %w", err)
	}
	key := strings.TrimRight(string(data), "\r\n")
	if key == "" {
		return "", usagef("--store-key-file %s: there is no key in it", s.KeyFile)
	}
	return key, nil
}

// account and key, for opening.
func (s *storeFlags) resolve() (account, key string, err error) {
	if account, err = embedded.ChooseAccount(s.Dir, s.Account); err != nil {
		return "", "", fmt.Errorf("store directory %s: %w (--account)", s.Dir, err)
	}
	key, err = s.key()
	return account, key, err
}

// storeTimeout limits one request to a server in the process, which is late only
// when the machine is busy.
const storeTimeout = time.Minute

// storeLink is a link to a server in the process.
func storeLink(srv *embedded.Server, dir, account string, conn connect.Settings) (*link, error) {
	nc, err := srv.Connect(account)
	if err != nil {
		return nil, err
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	js := jsapi.Options{Timeout: conn.Timeout}
	if js.Timeout == 0 {
		js.Timeout = storeTimeout
	}
	return &link{Connection: &connect.Connection{NC: nc, JS: js, Resolved: &connect.Resolved{}}, account: known(account), StoreDir: dir}, nil
}

// openStoreTarget opens a store directory to restore a stream into it; for a dry
// run a copy of it, since opening alone changes a directory.
func openStoreTarget(ctx context.Context, o restoreOptions, stream string, p *printer) (*link, error) {
	s := o.Store
	if err := embedded.CheckTarget(s.Dir); err != nil {
		return nil, err
	}
	account, key, err := s.resolve()
	if err != nil {
		return nil, err
	}
	cipher, err := embedded.ChooseCipher(s.Dir, account, key, s.Cipher)
	if err != nil {
		return nil, fmt.Errorf("store directory %s: %w", s.Dir, err)
	}
	eo := embedded.Options{StoreDir: s.Dir, Accounts: []string{account}, EncryptionKey: key, Cipher: cipher}
	var srv *embedded.Server
	if o.DryRun {
		bar := p.progress(stream)
		srv, err = embedded.StartOnCopy(ctx, eo, "", copyProgress(bar))
		bar.Done()
	} else {
		srv, err = embedded.Start(ctx, eo)
	}
	if err != nil {
		return nil, err
	}
	l, err := storeLink(srv, s.Dir, account, o.Connection)
	if err == nil {
		l.undo, l.stop = srv.Undo, srv.Stop
		err = l.report(srv.Unrecovered(), stream, p)
	}
	if err != nil {
		return nil, errors.Join(err, cleanedUp(srv.Undo()))
	}
	return l, nil
}

// report warns of the streams that the server couldn't recover. One of the name
// that is to be restored is in the way: the server would add to its files.
func (l *link) report(lost []embedded.Unrecovered, stream string, p *printer) error {
	for _, u := range lost {
		if u.Stream == stream && u.Consumer == "" {
			return &restore.Refused{Stream: stream, Findings: []restore.Finding{{Check: "target", Level: restore.Refusal,
				Text: fmt.Sprintf("the directory holds a stream of that name that can't be recovered (%s): move it out of %s first", u.Reason, l.StoreDir)}}}
		}
		l.warn(p, "in %s, not recovered and left as it is: %s", l.StoreDir, u)
	}
	return nil
}

// openStoreCopy copies a stream out of a store directory and opens the copy.
func openStoreCopy(ctx context.Context, o backupOptions, stream string, p *printer) (*link, *backup.Original, error) {
	s := o.Store
	if err := embedded.CheckDir(s.Dir); err != nil {
		return nil, nil, err
	}
	account, key, err := s.resolve()
	if err != nil {
		return nil, nil, err
	}
	bar := p.progress(stream)
	c, err := embedded.OpenCopy(ctx, embedded.CopyOptions{StoreDir: s.Dir, Account: account, Key: key, Progress: copyProgress(bar)}, stream)
	bar.Done()
	if err != nil {
		return nil, nil, err
	}
	l, err := storeLink(c.Server, s.Dir, account, o.Connection)
	if err != nil {
		return nil, nil, errors.Join(err, cleanedUp(c.Close()))
	}
	l.undo, l.stop = c.Close, c.Close
	for _, text := range c.Doubts() {
		l.warn(p, "stream %s may be damaged, or its server was killed: %s", stream, text)
	}
	whole := wholeness{l, stream, o.AcceptLoss, p}
	if !o.NoConsumers {
		var lost []string
		for _, u := range c.Unrecovered() {
			lost = append(lost, u.String())
		}
		if err := whole.judge(lost); err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
	}
	return l, &backup.Original{
		Config: c.Original.Config, Created: c.Original.Created, Consumers: c.Original.Consumers,
		Check: func(ctx context.Context, ins *format.Inspection) error {
			lost, err := c.Lost(ctx, ins.Figures.Messages)
			if err != nil {
				return err
			}
			return whole.judge(lost)
		},
	}, nil
}

// wholeness decides about a stream of which something is lost.
type wholeness struct {
	l          *link
	stream     string
	acceptLoss bool
	p          *printer
}

func (w wholeness) judge(lost []string) error {
	if len(lost) == 0 {
		return nil
	}
	if !w.acceptLoss {
		return &embedded.DamagedError{Dir: w.l.StoreDir, Stream: w.stream, Reasons: append(lost, "--accept-loss backs up the rest")}
	}
	for _, text := range lost {
		w.l.warn(w.p, "stream %s is damaged: %s", w.stream, text)
	}
	return nil
}

// warn warns, now and in the summary.
func (l *link) warn(p *printer, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.warnings = append(l.warnings, text)
	p.warn("%s", text)
}

func copyProgress(bar *ui.Progress) func(done, total int64) {
	return func(done, total int64) { bar.Update(ui.Status{Phase: "copy", Bytes: done, TotalBytes: total}) }
}

// end closes a link behind a restore that ended with err. Only now is what was
// restored into a store directory safely there.
func (l *link) end(stream string, dryRun bool, err error) error {
	if l.stop == nil {
		l.NC.Close()
		return err
	}
	l.NC.Close()
	stop := l.stop
	if dryRun || err != nil {
		stop = l.undo
	}
	l.stop, l.undo = nil, nil
	serr := stop()
	switch {
	case serr == nil:
		return err
	case err != nil || dryRun:
		return errors.Join(err, cleanedUp(serr))
	}
	return &restore.LeftBehindError{Stream: stream, Err: serr,
		What: fmt.Sprintf("stream %q in %s, of which not everything may be on the disk: delete it and restore again", stream, l.StoreDir)}
}

// Close closes the connection, and the server if it's ours.
func (l *link) Close() error {
	if l.stop == nil {
		l.NC.Close()
		return nil
	}
	return l.end("", true, nil)
}

// explainStoreBackup tells damage from what may pass: a server on a copy that
// can't read it won't be able to the next time either.
func explainStoreBackup(err error, stream string, l *link) error {
	if e, ok := errors.AsType[*snapshot.StatusError](err); ok && e.Status == "500" {
		return fmt.Errorf("%w: %w", &embedded.DamagedError{Dir: l.StoreDir, Stream: stream, Reasons: []string{e.Text}}, err)
	}
	return err
}

// isStoreInUse is a store directory that another process uses.
func isStoreInUse(err error) bool {
	return is[*embedded.InUseError](err) || errors.Is(err, embedded.ErrChanged)
}

// isNoStore is what the command line names and a store directory isn't, or
// doesn't hold.
func isNoStore(err error) bool {
	return anyOf(embedded.ErrNotStoreDir, embedded.ErrNoAccount, embedded.ErrNoStream)(err)
}
