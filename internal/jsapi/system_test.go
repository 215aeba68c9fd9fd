package jsapi

import (
	"errors"
	"testing"

	"github.com/jetkeep/jetkeep/internal/testnats"
)

// TestServersWithoutTheSystemAccount: nobody answers an ordinary user, which is
// about the connection.
func TestServersWithoutTheSystemAccount(t *testing.T) {
	_, err := Servers(t.Context(), testnats.Single(t).Connect(t))
	if !errors.Is(err, ErrNoResponders) || !Temporary(err) {
		t.Errorf("got %v", err)
	}
}
