package subject

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"
)

// genSubject makes subjects of few short tokens, so that they meet often.
func genSubject(tokens ...string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		s := rapid.SampledFrom(tokens).Draw(t, "token")
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			s += "." + rapid.SampledFrom(tokens).Draw(t, "token")
		}
		if rapid.Bool().Draw(t, "rest") && len(tokens) > 3 {
			s += ".>"
		}
		return s
	})
}

func TestOverlapAgreesWithTheServer(t *testing.T) {
	gen := genSubject("a", "b", "*", "a*")
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if got, want := Overlap(a, b), server.SubjectsCollide(a, b); got != want {
			t.Fatalf("Overlap(%q, %q) = %v", a, b, got)
		}
	})
}

func TestMatchIsOverlapWithALiteral(t *testing.T) {
	filters, literals := genSubject("a", "b", "*", "a*"), genSubject("a", "b", "a*")
	rapid.Check(t, func(t *rapid.T) {
		f, s := filters.Draw(t, "filter"), literals.Draw(t, "subject")
		want := server.SubjectsCollide(f, s)
		if got := Match(f, s); got != want {
			t.Fatalf("Match(%q, %q) = %v", f, s, got)
		}
		if got := NewSet([]string{"x", f}).Match([]byte(s)); got != want {
			t.Fatalf("Set of %q matches %q: %v", f, s, got)
		}
	})
}

func TestSetRemembersLittle(t *testing.T) {
	s := NewSet([]string{"a.>"})
	long := "a." + strings.Repeat("x", rememberedSubject)
	if !s.Match([]byte(long)) || len(s.known) > 0 {
		t.Errorf("a long subject: %d remembered", len(s.known))
	}
	for n := range 3 * remembered {
		if !s.Match(fmt.Appendf(nil, "a.%0900d", n)) {
			t.Fatal("no match")
		}
		sum := 0
		if n%5000 == 0 {
			for k := range s.known {
				sum += len(k)
			}
			if sum != s.bytes {
				t.Errorf("%d bytes remembered, counted %d", sum, s.bytes)
			}
		}
		if s.bytes > rememberedBytes || len(s.known) > remembered {
			t.Fatalf("%d bytes of %d subjects remembered", s.bytes, len(s.known))
		}
	}
}
