package restore

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jetkeep/jetkeep/format"
)

// What a bucket's configuration and consumers say of its subjects moves along;
// everything else stays.
func TestBucketsConfigurationMoves(t *testing.T) {
	t.Parallel()
	r, err := renaming("KV_old", "KV_new")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ in, want string }{
		"sources": {
			`{"sources":[{"name":"KV_a","x":1,"subject_transforms":[{"src":"$KV.a.>","dest":"$KV.old.>"},{"src":"a","dest":"b"}]},{"name":"S"}]}`,
			`{"sources":[{"name":"KV_a","x":1,"subject_transforms":[{"src":"$KV.a.>","dest":"$KV.new.>"},{"src":"a","dest":"b"}]},{"name":"S"}]}`,
		},
		"republish":     {`{"republish":{"src":"$KV.old.>","dest":"copy.$KV.old.>","z":[1]}}`, `{"republish":{"src":"$KV.new.>","dest":"copy.$KV.old.>","z":[1]}}`},
		"none":          {`{"republish":null,"sources":null}`, `{"republish":null,"sources":null}`},
		"nothing":       {`{}`, `{}`},
		"similar names": {`{"republish":{"src":"$KV.older.>"}}`, `{"republish":{"src":"$KV.older.>"}}`},
	} {
		o := parse(t, c.in)
		if err := r.origins(&o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same(t, name, o, c.want)
	}
	for name, c := range map[string]struct{ in, want string }{
		"one":     {`{"filter_subject":"$KV.old.a.>"}`, `{"filter_subject":"$KV.new.a.>"}`},
		"several": {`{"filter_subjects":["$KV.old.a","$KV.old.b"]}`, `{"filter_subjects":["$KV.new.a","$KV.new.b"]}`},
		"none":    {`{"durable_name":"$KV.old.a"}`, `{"durable_name":"$KV.old.a"}`},
	} {
		o := parse(t, c.in)
		if err := r.consumer(&o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same(t, name, o, c.want)
	}
	for _, bad := range []string{`{"sources":7}`, `{"sources":[{"subject_transforms":7}]}`, `{"republish":7}`, `{"republish":{"src":7}}`} {
		o := parse(t, bad)
		if r.origins(&o) == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// The metadata of an object names its bucket, and so do links in it.
func TestObjectsMove(t *testing.T) {
	t.Parallel()
	r, err := renaming("OBJ_old", "OBJ_new")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ subject, payload, wantSubject, want string }{
		"object":               {"$O.old.M.eA==", `{"name":"x","bucket":"old","n":1}`, "$O.new.M.eA==", `{"name":"x","bucket":"new","n":1}`},
		"link inside":          {"$O.old.M.eA==", `{"bucket":"old","options":{"link":{"bucket":"old","name":"y"},"k":1}}`, "$O.new.M.eA==", `{"bucket":"new","options":{"link":{"bucket":"new","name":"y"},"k":1}}`},
		"link elsewhere":       {"$O.old.M.eA==", `{"bucket":"old","options":{"link":{"bucket":"b","name":"y"}}}`, "$O.new.M.eA==", `{"bucket":"new","options":{"link":{"bucket":"b","name":"y"}}}`},
		"options without link": {"$O.old.M.eA==", `{"bucket":"old","options":{"max_chunk_size":5}}`, "$O.new.M.eA==", `{"bucket":"new","options":{"max_chunk_size":5}}`},
		"chunk":                {"$O.old.C.nuid", `raw`, "$O.new.C.nuid", `raw`},
		"purged metadata":      {"$O.old.M.eA==", ``, "$O.new.M.eA==", ``},
		"another subject":      {"$O.older.C.nuid", `raw`, "$O.older.C.nuid", `raw`},
	} {
		m := format.Message{Subject: []byte(c.subject), Payload: []byte(c.payload)}
		if err := r.message(&m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if string(m.Subject) != c.wantSubject {
			t.Errorf("%s: %s", name, m.Subject)
		}
		if len(c.want) == 0 || c.want[0] != '{' {
			if string(m.Payload) != c.want {
				t.Errorf("%s: %s", name, m.Payload)
			}
			continue
		}
		same(t, name, parse(t, string(m.Payload)), c.want)
	}
	m := format.Message{Subject: []byte("$O.old.M.eA=="), Payload: []byte("no JSON")}
	if r.message(&m) == nil {
		t.Error("broken metadata passes")
	}
}

func parse(t *testing.T, s string) format.Object {
	t.Helper()
	o, err := format.ParseObject([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// same compares JSON.
func same(t *testing.T, what string, got format.Object, want string) {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal(raw, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		t.Fatalf("%s: %s", what, raw)
	}
	if d := cmp.Diff(b, a); d != "" {
		t.Errorf("%s: %s", what, d)
	}
}
