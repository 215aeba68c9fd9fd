package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/jetkeep/jetkeep/format"
)

// asset is the directory of a stream or of one of its consumers.
type asset struct {
	dir, account, stream, consumer string
}

// sumName keys the checksum, context the encryption.
func (a asset) sumName() string {
	if a.consumer == "" {
		return a.stream
	}
	return a.stream + "/" + a.consumer
}

func (a asset) context() string {
	if a.consumer == "" {
		return a.stream
	}
	return a.stream + "." + a.consumer
}

// encrypted reports whether the asset has a key file.
func (a asset) encrypted() bool {
	_, err := os.Stat(filepath.Join(a.dir, server.JetStreamMetaFileKey))
	return err == nil
}

// meta is what an asset's meta.inf holds: its configuration, with Created, and
// with Name in a consumer's.
type meta struct {
	fields format.Object
	sealed *sealing // nil: plain text
}

// read reads meta.inf. It returns a *KeyError when that needs another key. The
// checksum of a consumer isn't checked: the server never does.
func (a asset) read(key string) (*meta, error) {
	data, err := os.ReadFile(filepath.Join(a.dir, server.JetStreamMetaFile))
	if err != nil {
		return nil, err
	}
	if a.consumer == "" {
		if err := a.checkSum(data); err != nil {
			return nil, err
		}
	}
	m := &meta{}
	metaKey, err := os.ReadFile(filepath.Join(a.dir, server.JetStreamMetaFileKey))
	switch {
	case err == nil && key == "":
		return nil, &KeyError{a.stream, "it is encrypted, and no key is given"}
	case err == nil:
		if m.sealed, data, err = unseal(key, a.account, a.context(), metaKey, data); err != nil {
			if errors.Is(err, errWrongKey) {
				return nil, &KeyError{a.stream, "it is encrypted with another key than the one given"}
			}
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if m.fields, err = format.ParseObject(data); err != nil {
		return nil, fmt.Errorf("%s: %w", server.JetStreamMetaFile, err)
	}
	return m, nil
}

// write replaces meta.inf and its checksum.
func (a asset) write(m *meta) error {
	data, err := m.fields.MarshalJSON()
	if err != nil {
		return err
	}
	if m.sealed != nil {
		if data, err = m.sealed.seal(data); err != nil {
			return err
		}
	}
	sum, err := metaSum(a.sumName(), data)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(a.dir, server.JetStreamMetaFile), data, 0o600),
		os.WriteFile(filepath.Join(a.dir, server.JetStreamMetaFileSum), []byte(sum), 0o600),
	)
}

func (a asset) checkSum(data []byte) error {
	said, err := os.ReadFile(filepath.Join(a.dir, server.JetStreamMetaFileSum))
	if err != nil {
		return err
	}
	sum, err := metaSum(a.sumName(), data)
	if err == nil && sum != string(said) {
		err = fmt.Errorf("checksums of %s do not match", server.JetStreamMetaFile)
	}
	return err
}

// metaSum is the checksum that the server puts beside a meta.inf.
func metaSum(name string, data []byte) (string, error) {
	key := sha256.Sum256([]byte(name))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		return "", err
	}
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// config is the configuration without what only the file has.
func (m *meta) config() format.Object {
	cfg := m.fields.Clone()
	cfg.Delete("Created", "Name")
	return cfg
}

func (m *meta) created() time.Time {
	var t time.Time
	_ = m.fields.Get("Created", &t) // one that can't be read is as good as none
	return t
}
