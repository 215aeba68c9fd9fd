package embedded

import (
	"crypto/aes"
	stdcipher "crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// The names of ciphers, as a server's configuration has them.
const (
	CipherChaCha = "chachapoly"
	CipherAES    = "aes"
)

// KeyError says that a stream or consumer can't be read for want of the right
// encryption key.
type KeyError struct {
	Stream string
	Reason string
}

func (e *KeyError) Error() string { return fmt.Sprintf("stream %q: %s", e.Stream, e.Reason) }

// minMetaKey is the least size of meta.key: a nonce, a seed and a tag.
const minMetaKey = 64

var errWrongKey = errors.New("the encryption key doesn't fit")

// sealing is an asset's own key. It is made of the server's key, the account and
// the asset's name, as the server does it: that opens meta.key, which holds a
// nonce and an encrypted seed; the seed is the key of meta.inf.
type sealing struct {
	cipher string
	aead   stdcipher.AEAD
}

// unseal decrypts a meta.inf with either cipher, as a server does.
func unseal(key, account, context string, metaKey, metaInf []byte) (*sealing, []byte, error) {
	if len(metaKey) < minMetaKey {
		return nil, nil, fmt.Errorf("bad key file of %d bytes", len(metaKey))
	}
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(account))
	mac.Write([]byte(context))
	secret := mac.Sum(nil)
	for _, name := range []string{CipherChaCha, CipherAES} {
		kek, err := newAEAD(name, secret)
		if err != nil {
			return nil, nil, err
		}
		seed, err := open(kek, metaKey)
		if err != nil {
			continue
		}
		aead, err := newAEAD(name, seed)
		if err != nil {
			continue
		}
		plain, err := open(aead, metaInf)
		if err != nil {
			return nil, nil, errors.New("the key fits, and the file is damaged")
		}
		return &sealing{name, aead}, plain, nil
	}
	return nil, nil, errWrongKey
}

func newAEAD(name string, key []byte) (stdcipher.AEAD, error) {
	if name == CipherChaCha {
		return chacha20poly1305.NewX(key)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return stdcipher.NewGCMWithNonceSize(block, block.BlockSize())
}

// open decrypts what begins with its nonce.
func open(aead stdcipher.AEAD, sealed []byte) ([]byte, error) {
	n := aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("too short")
	}
	return aead.Open(nil, sealed[:n], sealed[n:], nil)
}

// seal encrypts, with a new nonce.
func (s *sealing) seal(plain []byte) ([]byte, error) {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return s.aead.Seal(nonce, nonce, plain, nil), nil
}
