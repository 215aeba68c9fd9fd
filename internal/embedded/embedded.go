// Package embedded runs a nats-server inside the process on a store directory
// (a server's store_dir, which holds jetstream/): to restore into one or back
// one up without a running server, for rehearsals, for the conversion of old
// archives, and for the demo.
//
// It listens on no port of any kind, handles no signals, needs no HOME, and is
// reached only through connections that the Server itself hands out. It never
// opens a directory that it can see another process using.
//
// Opening a directory changes it: the server expires messages, writes index
// files and, given another cipher, encrypts anew. A directory that matters is
// therefore copied first; Start itself doesn't copy. What a server can't
// recover it skips with a line in its log; Start turns those lines into the
// list that Unrecovered returns, and callers must look at it.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/nats-io/nuid"
)

const (
	// GlobalAccount is the account of servers that configure none.
	GlobalAccount = "$G"
	// DefaultMaxPayload has room for the largest message that a stream can hold
	// (just below 32 MiB), also in the answers that encode it in base64.
	DefaultMaxPayload = 64 << 20
	// Unlimited as a MaxStore or MaxMemory lifts the limit.
	Unlimited = -1

	readyTimeout = 10 * time.Second
	// unlimited is what the server gets for Unlimited: far beyond any disk, and
	// small enough that sums of it don't overflow.
	unlimited = 1 << 60
)

// Options say how to open a store directory. Only StoreDir is required.
type Options struct {
	// StoreDir is the directory that holds jetstream/. It is created.
	StoreDir string
	// Accounts to open, by the names of their directories (in operator mode
	// their public keys). Empty: those on disk, or $G if there are none. Others
	// are left as they are.
	Accounts []string
	// Log gets all that the server logs, except debugging. Nil: nothing.
	Log *slog.Logger
	// EncryptionKey and Cipher ("chachapoly", which is the default, or "aes")
	// open an encrypted store. A store opened with another cipher is encrypted
	// anew; with a wrong key nothing is recovered.
	EncryptionKey, Cipher string
	// MaxPayload in bytes. Zero: DefaultMaxPayload.
	MaxPayload int32
	// MaxStore limits what all streams together may take or reserve. Zero: what
	// the directory holds plus what is free on its disk. Unlimited suits
	// rehearsals, where a stream may reserve (max_bytes) more than there is.
	MaxStore int64
	// MaxMemory does so for memory streams. Zero: three quarters of the
	// machine's memory, or of GOMEMLIMIT.
	MaxMemory int64
	// Throwaway is for directories that nobody will need after Stop, which then
	// doesn't wait for the disk.
	Throwaway bool
}

// Server is a running server on a store directory.
type Server struct {
	opts        Options
	accounts    []string
	srv         *server.Server
	log         *capture
	keys        map[string]nkeys.KeyPair // by account
	unrecovered []Unrecovered
	made        *made
	unlock      func()
	stands      string // the directory that ours is a copy of, if it is one
	temp        string // to be removed in the end, if set

	stopOnce sync.Once
	stopErr  error
}

// Start opens the directory, recovers all of its streams, and returns when
// that is done. It refuses with an *InUseError a directory that another process
// has open, as far as this can be seen. If ctx ends, Start still waits for the
// recovery under way, closes the directory cleanly and returns ctx's error.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := prepare(o)
	if err != nil {
		return nil, fmt.Errorf("open store directory %s: %w", o.StoreDir, err)
	}
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("open store directory %s: %w", o.StoreDir, errors.Join(err, s.Undo()))
	}
	return s, nil
}

// prepare checks everything that can be checked without opening, and locks the
// directory.
func prepare(o Options) (s *Server, err error) {
	if o.StoreDir == "" {
		return nil, errors.New("no directory given")
	}
	dir, err := filepath.Abs(o.StoreDir)
	if err != nil {
		return nil, err
	}
	o.StoreDir = dir
	before := remember(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(dir, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, before.remove())
			unlock()
		}
	}()
	if err := checkUnused(dir); err != nil {
		return nil, err
	}
	accounts := o.Accounts
	if len(accounts) == 0 {
		if accounts, err = Accounts(dir); err != nil {
			return nil, err
		}
	}
	if len(accounts) == 0 {
		accounts = []string{GlobalAccount}
	}
	s = &Server{
		opts: o, accounts: accounts, log: newCapture(o.Log), keys: make(map[string]nkeys.KeyPair),
		made: before, unlock: unlock,
	}
	so, err := s.serverOptions()
	if err != nil {
		return nil, err
	}
	if s.srv, err = server.NewServer(so); err != nil {
		return nil, err
	}
	s.srv.SetLoggerV2(s.log, false, false, false)
	return s, nil
}

func (s *Server) serverOptions() (*server.Options, error) {
	o := s.opts
	maxStore, err := maxStore(o)
	if err != nil {
		return nil, err
	}
	maxPayload := o.MaxPayload
	if maxPayload == 0 {
		maxPayload = DefaultMaxPayload
	}
	so := &server.Options{
		ServerName:             "jetkeep-" + nuid.Next(),
		DontListen:             true,
		NoSigs:                 true,
		NoLog:                  true,
		MaxPayload:             maxPayload,
		MaxPending:             2 * max(int64(maxPayload), server.MAX_PENDING_SIZE),
		JetStream:              true,
		StoreDir:               o.StoreDir,
		JetStreamMaxStore:      maxStore,
		JetStreamMaxMemory:     o.MaxMemory,
		JetStreamKey:           o.EncryptionKey,
		DisableJetStreamBanner: true,
	}
	if o.MaxMemory == Unlimited {
		so.JetStreamMaxMemory = unlimited
	}
	if o.Throwaway {
		so.SyncInterval = 24 * time.Hour
	}
	if so.JetStreamCipher, err = cipher(o); err != nil {
		return nil, err
	}
	return so, s.addAccounts(so)
}

func cipher(o Options) (server.StoreCipher, error) {
	switch o.Cipher {
	case "", "chachapoly", "chacha":
		if o.EncryptionKey == "" {
			return server.NoCipher, nil
		}
		return server.ChaCha, nil
	case "aes":
		return server.AES, nil
	}
	return server.NoCipher, fmt.Errorf("unknown cipher %q: chachapoly and aes are known", o.Cipher)
}

// addAccounts gives each account one user, with a key that only we know.
func (s *Server) addAccounts(so *server.Options) error {
	for _, name := range s.accounts {
		if name == server.DEFAULT_SYSTEM_ACCOUNT {
			return fmt.Errorf("%s is the system account, which holds no streams", name)
		}
		if _, ok := s.keys[name]; ok {
			return fmt.Errorf("account %s is named twice", name)
		}
		key, err := nkeys.CreateUser()
		if err != nil {
			return err
		}
		public, err := key.PublicKey()
		if err != nil {
			return err
		}
		s.keys[name] = key
		user := &server.NkeyUser{Nkey: public}
		if name != GlobalAccount {
			user.Account = server.NewAccount(name)
			so.Accounts = append(so.Accounts, user.Account)
		}
		so.Nkeys = append(so.Nkeys, user)
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	before, err := readInventory(s.opts.StoreDir, s.accounts)
	if err != nil {
		return err
	}
	s.srv.Start()
	if err := s.log.fatal(); err != nil {
		return err
	}
	if !s.srv.ReadyForConnections(readyTimeout) {
		return errors.New("the embedded server doesn't get ready")
	}
	if err := s.enableAccounts(ctx); err != nil {
		return err
	}
	s.unrecovered, err = s.compare(ctx, before)
	return err
}

// enableAccounts recovers the accounts' streams. The server has done $G itself
// if it is the only one.
func (s *Server) enableAccounts(ctx context.Context) error {
	for _, name := range s.accounts {
		if err := ctx.Err(); err != nil {
			return err
		}
		acc, err := s.srv.LookupAccount(name)
		if err != nil {
			return fmt.Errorf("account %s: %w", name, err)
		}
		if err := enable(acc); err != nil {
			return fmt.Errorf("account %s: %w", name, err)
		}
	}
	return ctx.Err()
}

// enable recovers an account's streams, a few at a time.
func enable(acc *server.Account) error {
	const workers = 4
	tasks := make(chan func())
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for f := range tasks {
				f()
			}
		})
	}
	err := acc.EnableJetStream(nil, tasks)
	close(tasks)
	wg.Wait()
	return err
}

// Accounts are the accounts that are open. The first is what Connect takes for
// an empty name.
func (s *Server) Accounts() []string { return append([]string(nil), s.accounts...) }

// StoreDir is the directory, as an absolute path.
func (s *Server) StoreDir() string { return s.opts.StoreDir }

// Connect opens a connection in an account; an empty name means the first of
// Accounts. The caller closes it. It ends with the server, and doesn't
// reconnect.
func (s *Server) Connect(account string, opts ...nats.Option) (*nats.Conn, error) {
	if account == "" {
		account = s.accounts[0]
	}
	key, ok := s.keys[account]
	if !ok {
		return nil, fmt.Errorf("account %s isn't open in %s", account, s.opts.StoreDir)
	}
	public, err := key.PublicKey()
	if err != nil {
		return nil, err
	}
	all := []nats.Option{
		nats.InProcessServer(s.srv), nats.Nkey(public, key.Sign), nats.Name("jetkeep"), nats.NoReconnect(),
		nats.Timeout(readyTimeout),
	}
	return nats.Connect("", append(all, opts...)...)
}

// Unrecovered lists the streams and consumers that are in the directory but
// that the server could not recover, or not make available.
func (s *Server) Unrecovered() []Unrecovered {
	list := append([]Unrecovered(nil), s.unrecovered...)
	if s.stands != "" {
		for i := range list {
			list[i].Reason = strings.ReplaceAll(list[i].Reason, s.opts.StoreDir, filepath.Clean(s.stands))
		}
	}
	return list
}

// Warnings are the warnings and errors that the server has logged so far, such
// as those about damaged blocks, up to a bound.
func (s *Server) Warnings() []string { return s.log.warnings() }

// Stop shuts the server down, waits until it has written everything, and then
// makes the directory durable, unless it is a Throwaway. Connections end. The
// server swallows most failures at this stage; those that it has logged are
// returned. To be sure that a directory holds what it should, open it again.
// Stop may be called more than once.
func (s *Server) Stop() error {
	s.stopOnce.Do(func() {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
		defer s.unlock()
		s.stopErr = errors.Join(s.log.writeFailure(), s.removeDeleted())
		if !s.opts.Throwaway {
			s.stopErr = errors.Join(s.stopErr, syncTree(filepath.Join(s.opts.StoreDir, server.JetStreamStoreDir)))
		}
		if s.temp != "" {
			s.stopErr = os.RemoveAll(s.temp) // nobody needs what couldn't be written
		}
		if s.stopErr != nil {
			s.stopErr = fmt.Errorf("close store directory %s: %w", s.opts.StoreDir, s.stopErr)
		}
	})
	return s.stopErr
}

// removeDeleted removes the directories of deleted streams, which the server
// does in the background, and doesn't finish when it stops.
func (s *Server) removeDeleted() error {
	var errs []error
	for _, account := range s.accounts {
		dir := filepath.Join(s.opts.StoreDir, server.JetStreamStoreDir, account, streamsDir)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // there are none
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") && e.IsDir() {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// Undo stops the server, and removes again the empty directories that Start has
// made, the store directory itself among them.
func (s *Server) Undo() error {
	return errors.Join(s.Stop(), s.made.remove())
}
