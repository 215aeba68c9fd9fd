package repo

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Latest names the newest backup of a stream where an id is expected.
const Latest = "latest"

const (
	idTime   = "20060102T150405.000Z"
	idRandom = 3 // bytes
)

// NewID returns a new id for a backup that began at t: the time in UTC and a
// random suffix. Ids sort by time and are safe as file names and object keys.
func NewID(t time.Time) string {
	return t.UTC().Format(idTime) + "-" + randomHex(idRandom)
}

// ValidID reports whether s has the form of an id.
func ValidID(s string) bool {
	if len(s) != len(idTime)+1+2*idRandom || s[len(idTime)] != '-' {
		return false
	}
	stamp, suffix := s[:len(idTime)], s[len(idTime)+1:]
	if t, err := time.Parse(idTime, stamp); err != nil || t.Format(idTime) != stamp {
		return false // the second test: Parse takes a comma for the point
	}
	return strings.Trim(suffix, "0123456789abcdef") == ""
}

// ParseRef splits STREAM, STREAM@latest or STREAM@ID. An '@' splits only before
// "latest" or a valid id, since stream names may hold one. Without an id, id is
// empty, which [Repository.Find] takes for the latest.
func ParseRef(arg string) (stream, id string) {
	at := strings.LastIndexByte(arg, '@')
	if at > 0 && (arg[at+1:] == Latest || ValidID(arg[at+1:])) {
		return arg[:at], arg[at+1:]
	}
	return arg, ""
}

// PathName maps a stream's name to one that every file system and object store
// takes as it is. Letters, digits and a few harmless characters stay, other
// bytes become %XX; a long name is cut and gets its SHA-256 instead. Different
// streams get different names, although some may differ in case only.
func PathName(stream string) string {
	var b strings.Builder
	for i := range len(stream) {
		if c := stream[i]; plainByte(c) && !(c == '.' && (i == 0 || i == len(stream)-1)) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	name := b.String()
	switch {
	case name == "":
		return "%"
	case reserved(name):
		return fmt.Sprintf("%%%02X%s", name[0], name[1:])
	case len(name) > maxPathName:
		return shorten(name, stream)
	}
	return name
}

const maxPathName = 200

// shorten joins the head of an escaped name and a digest with "%-", which no
// escaped name holds.
func shorten(name, stream string) string {
	sum := sha256.Sum256([]byte(stream))
	tail := "%-" + hex.EncodeToString(sum[:])
	head := name[:maxPathName-len(tail)]
	if at := strings.LastIndexByte(head, '%'); at > len(head)-3 {
		head = head[:at]
	}
	return head + tail
}

// streamName undoes PathName where it can.
func streamName(path string) string {
	if name, err := url.PathUnescape(path); err == nil {
		return name
	}
	return path
}

func plainByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("_-.@+=,", c) >= 0
}

// reserved reports names that mean a device on Windows, with any extension, and
// the repository's own file.
func reserved(name string) bool {
	name = strings.ToLower(name)
	base, _, _ := strings.Cut(name, ".")
	switch base {
	case "con", "prn", "aux", "nul":
		return true
	}
	if len(base) == 4 && (base[:3] == "com" || base[:3] == "lpt") && '0' <= base[3] && base[3] <= '9' {
		return true
	}
	return name == configName
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails, says its documentation
	return hex.EncodeToString(b)
}
