package subject

import (
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
