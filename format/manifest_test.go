package format

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// oddObject has what a careless round trip loses.
const oddObject = `{"future":{"b":[1,2.50,1e2,null],"a":"x"},"max":18446744073709551615,"name":"S","neg":-9007199254740993,"nothing":null,"precise":0.1000}`

func TestObjectKeepsWhatItDoesNotKnow(t *testing.T) {
	o := mustObject(t, oddObject)
	written, err := json.Marshal(o)
	if err != nil || string(written) != oddObject {
		t.Errorf("%s, %v", written, err)
	}
	o.Set("name", "T")
	o.Delete("future", "never there")
	want := `{"max":18446744073709551615,"name":"T","neg":-9007199254740993,"nothing":null,"precise":0.1000}`
	if written, _ := json.Marshal(o); string(written) != want {
		t.Errorf("%s", written)
	}
	if !o.Has("nothing") || string(o.Raw("nothing")) != "null" || o.Has("future") || o.Raw("future") != nil {
		t.Error("null and missing members are confused")
	}
	var n uint64
	if err := o.Get("max", &n); err != nil || n != 1<<64-1 {
		t.Error(n, err)
	}
}

func TestObjectKeepsRawBytes(t *testing.T) {
	o := mustObject(t, ` {"a" : [1,  "<é>&\u003e\ud800"] } `)
	if got := string(o.Raw("a")); got != `[1,  "<é>&\u003e\ud800"]` {
		t.Error(got)
	}
}

func TestObjectIsAnObjectAndNothingElse(t *testing.T) {
	for _, s := range []string{"", "null", "[]", "1", `"{}"`, "{", "{}}", `{"a"}`, "{} {}", "\ufeff{}"} {
		if _, err := ParseObject([]byte(s)); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
	var o struct{ X Object }
	if err := json.Unmarshal([]byte(`{"x":null}`), &o); err == nil {
		t.Error("null is accepted as a member")
	}
}

func TestZeroObjectIsEmpty(t *testing.T) {
	var o Object
	if b, err := json.Marshal(o); err != nil || string(b) != "{}" {
		t.Errorf("%s, %v", b, err)
	}
	if o.Has("x") || o.Raw("x") != nil || len(o.Names()) != 0 {
		t.Error("it has members")
	}
	o.Delete("x")
	v := "unchanged"
	if err := o.Get("x", &v); err != nil || v != "unchanged" {
		t.Error(v, err)
	}
	o.Set("x", 1)
	if !slices.Equal(o.Names(), []string{"x"}) {
		t.Error(o.Names())
	}
}

func TestCloneIsIndependent(t *testing.T) {
	o := mustObject(t, `{"a":1}`)
	c := o.Clone()
	c.Set("a", 2)
	c.Set("b", 3)
	if b, _ := json.Marshal(o); string(b) != `{"a":1}` {
		t.Errorf("%s", b)
	}
}

func TestGetNamesTheField(t *testing.T) {
	o := mustObject(t, `{"a":"x"}`)
	var n int
	if err := o.Get("a", &n); err == nil || !strings.Contains(err.Error(), `field "a"`) {
		t.Error(err)
	}
	var s struct{ A int }
	if err := o.Decode(&s); err == nil {
		t.Error("Decode accepts a string for a number")
	}
}

func TestBackupFileSurvivesARoundTrip(t *testing.T) {
	in := `{"config":` + oddObject + `,"state":{"messages":3,"first_seq":1,"last_seq":18446744073709551615,"future":[null]}}`
	b, err := ParseBackupFile([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := json.Marshal(b); err != nil || string(out) != in {
		t.Errorf("%s, %v", out, err)
	}
	s, err := b.StreamState()
	if b.StreamName() != "S" || err != nil || s.LastSeq != 1<<64-1 {
		t.Error(b.StreamName(), s, err)
	}
}

func TestBackupFileNeedsANameAndAState(t *testing.T) {
	for in, want := range map[string]string{
		``:                                     "unexpected end",
		`[]`:                                   "cannot unmarshal array",
		`{}`:                                   "names no stream",
		`{"config":null,"state":{}}`:           "expected a JSON object",
		`{"config":{"name":7},"state":{}}`:     "names no stream",
		`{"config":{"name":"S"}}`:              "no stream state",
		`{"config":{"name":"S"},"state":null}`: "no stream state",
		`{"config":{"name":"S"},"state":[]}`:   "state: json",
		`{"config":{"name":"S"},"state":{}}x`:  "invalid character",
	} {
		if _, err := ParseBackupFile([]byte(in)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "backup.json: ") {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

const sampleManifest = `{"manifest_version":1,"id":"20260101T000000Z-abcd","stream":"S","started":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:01Z",
"jetkeep_version":"1","server":{"version":"2.15.3"},"stream_created":"2025-01-01T00:00:00Z","format":"v2",
"objects":[{"key":"stream.arc.s2","bytes":1,"raw_bytes":2,"sha256":"aa","first_seq":1,"last_seq":18446744073709551615}],
"backup_json_sha256":"bb","figures":{"messages":1,"first_seq":1,"last_seq":2,"bytes":3,"store_bytes":4,"deleted":1,"gaps":1,
"subjects":{"count":1,"exact":true},"ttl":{"messages":0}},"future":1}`

func TestManifestSurvivesARoundTrip(t *testing.T) {
	m, err := ParseManifest([]byte(sampleManifest))
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseManifest(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, again); diff != "" {
		t.Error(diff)
	}
	if m.Objects[0].LastSeq != 1<<64-1 || m.Figures.StoreBytes != 4 {
		t.Errorf("%+v", m)
	}
	if strings.Contains(string(out), "0001-01-01") {
		t.Errorf("times that aren't there are written: %s", out)
	}
}

func TestManifestOfAnotherVersionIsRefused(t *testing.T) {
	for in, version := range map[string]bool{
		strings.Replace(sampleManifest, `version":1`, `version":2`, 1): true,
		strings.Replace(sampleManifest, `version":1`, `version":0`, 1): false,
		`{}`: false, // damaged, not newer
		// A later version may have changed the type of anything else.
		`{"manifest_version":9,"id":[],"objects":"x"}`: true,
		`{"manifest_version":"1"}`:                     false,
		`{"manifest_version":1.5}`:                     false,
		`null x`:                                       false,
	} {
		_, err := ParseManifest([]byte(in))
		if err == nil || errors.Is(err, ErrManifestVersion) != version || !strings.HasPrefix(err.Error(), "manifest.json: ") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestManifestNamesPlainFiles(t *testing.T) {
	for old, bad := range map[string][]string{
		`"stream.arc.s2"`:              {`""`, `"../x"`, `"a/b"`, `"a\\b"`, `".hidden"`, `".."`},
		`"id":"20260101T000000Z-abcd"`: {`"id":""`},
		`"stream":"S"`:                 {`"stream":""`},
		`"bytes":1,"raw`:               {`"bytes":-1,"raw`},
		`"raw_bytes":2`:                {`"raw_bytes":-2`},
	} {
		for _, b := range bad {
			in := strings.Replace(sampleManifest, old, b, 1)
			if _, err := ParseManifest([]byte(in)); err == nil || in == sampleManifest {
				t.Errorf("%s in place of %s is accepted", b, old)
			}
		}
	}
	if _, err := ParseManifest([]byte(`{"manifest_version":1,"id":"i","stream":"s","objects":[]}`)); err == nil {
		t.Error("a manifest without objects is accepted")
	}
}
