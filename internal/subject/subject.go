// Package subject compares NATS subjects: does a filter match a subject, can two
// filters match the same one.
package subject

import "strings"

// Match reports whether a filter, which may hold wildcards, matches a literal
// subject.
func Match(filter, subject string) bool {
	for {
		ftok, frest, fmore := strings.Cut(filter, ".")
		if ftok == ">" && !fmore {
			return true
		}
		stok, srest, smore := strings.Cut(subject, ".")
		if ftok != "*" && ftok != stok {
			return false
		}
		if !fmore || !smore {
			return fmore == smore
		}
		filter, subject = frest, srest
	}
}

// Overlap reports whether some subject matches both filters.
func Overlap(a, b string) bool {
	for {
		atok, arest, amore := strings.Cut(a, ".")
		btok, brest, bmore := strings.Cut(b, ".")
		if atok == ">" && !amore || btok == ">" && !bmore {
			return true
		}
		if atok != "*" && btok != "*" && atok != btok {
			return false
		}
		if !amore || !bmore {
			return amore == bmore
		}
		a, b = arest, brest
	}
}

// Set matches literal subjects against several filters and remembers answers.
type Set struct {
	filters []string
	all     bool
	known   map[string]bool
	bytes   int // of the subjects in known
}

// How much a Set remembers at most. A subject may have megabytes.
const (
	remembered        = 10_000
	rememberedBytes   = 8 << 20
	rememberedSubject = 1 << 10 // a longer one isn't remembered
)

// NewSet returns a Set of filters. One without filters matches nothing.
func NewSet(filters []string) *Set {
	s := &Set{filters: filters, known: map[string]bool{}}
	for _, f := range filters {
		s.all = s.all || f == ">"
	}
	return s
}

// Match reports whether one of the filters matches the subject. It allocates
// only for subjects that it hasn't seen lately, and very long ones.
func (s *Set) Match(subject []byte) bool {
	if s.all {
		return true
	}
	if yes, ok := s.known[string(subject)]; ok {
		return yes
	}
	name := string(subject)
	yes := false
	for _, f := range s.filters {
		if yes = Match(f, name); yes {
			break
		}
	}
	if len(name) > rememberedSubject {
		return yes
	}
	if len(s.known) >= remembered || s.bytes+len(name) > rememberedBytes {
		clear(s.known)
		s.bytes = 0
	}
	s.known[name] = yes
	s.bytes += len(name)
	return yes
}
